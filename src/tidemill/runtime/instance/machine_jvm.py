"""The JVM that starts Spark fastest on this machine: choice of Java and cache, logged in one line.

Which Javas there are is ``embedded.java``'s, the contents of a cache are ``embedded.jvm_cache``'s.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tidemill.embedded.jars import cache_folder
from tidemill.embedded.java import Java, find_java
from tidemill.embedded.jvm_cache import JvmCache, cache_of
from tidemill.log_format import LogEvent
from tidemill.spark.launch.fork_server import ForkServer
from tidemill.spark.launch.jvm_process import JVM_FLAGS, SPARK
from tidemill.spark.launch.session import StartingJvm, start_jvm
from tidemill.spark.launch.session_checks import require_classic_environment

JVM_HEAP = "512m"

log = logging.getLogger("tidemill.java")


def spark_cache(java: Java, folder: Path) -> JvmCache:
    """The cache for this Java and this PySpark, in the user's cache folder."""
    return cache_of("spark", java, SPARK / "jars", folder, made_with=(pyspark.__version__, *JVM_FLAGS))


def machine_jvm(
    environ: Mapping[str, str],
    *,
    application_id: str,
    threads: int,
    settings: Mapping[str, str],
    heap: str = JVM_HEAP,
    jvm_options: Sequence[str] = (),
    forks: ForkServer | None = None,
    written: Mapping[str, str] | None = None,
) -> StartingJvm:
    """``start_jvm`` on the Java that is preferred here, with the cache that ``tidemill prepare`` has made for it, if it has.

    Raises:
        ConfigError: the environment makes every session one of Spark Connect. EnvironmentProblem: there is no Java.
    """
    require_classic_environment(environ)
    java = find_java(environ)
    cache = spark_cache(java, cache_folder(environ))
    with_ = cache.kind if cache.is_made else "nothing (tidemill prepare makes a cache)"
    log.info(LogEvent("java", version=java.major, path=java.path, starts_with=with_))
    return start_jvm(
        java=java.path,
        application_id=application_id,
        threads=threads,
        settings=settings,
        heap=heap,
        jvm_options=[*jvm_options, *cache.options()],
        forks=forks,
        written=written,
    )
