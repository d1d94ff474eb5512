"""Checks of functions of PySpark Columns without a JVM: uses of a Column as one record's value."""
