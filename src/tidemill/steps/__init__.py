"""The steps of a micro-batch in a Python worker. Runs in Spark's Python workers, and knows no PySpark."""
