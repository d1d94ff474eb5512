"""Functions of PySpark Columns, looked at before there is a JVM: what in them treats a Column as one record's value."""
