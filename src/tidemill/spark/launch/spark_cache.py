"""Which cache of a JVM's (``embedded.jvm_cache``) is that of Spark's."""

from __future__ import annotations

from pathlib import Path

import pyspark

from tidemill.embedded.java import Java
from tidemill.embedded.jvm_cache import JvmCache, cache_of
from tidemill.spark.launch.session import JVM_FLAGS

SPARK = Path(pyspark.__file__).parent


def spark_cache(java: Java, folder: Path, spark: Path = SPARK) -> JvmCache:
    """The cache for this Java and this PySpark, in the user's cache folder."""
    return cache_of("spark", java, spark / "jars", folder, made_with=(pyspark.__version__, *JVM_FLAGS))
