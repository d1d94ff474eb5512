"""What a Python worker does with a micro-batch, step by step. Runs in Spark's Python workers, and knows no PySpark."""
