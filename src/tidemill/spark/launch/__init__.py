"""The JVM, the Spark session and the Python workers, from nothing to ready."""
