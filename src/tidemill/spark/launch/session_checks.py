"""The Spark sessions and settings that can carry the data path (``docs/spark.md`` says why).

Decides which settings are required, and which sessions are refused: by what a session is, before anything is asked of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from py4j.clientserver import ClientServer
from pyspark import SparkContext

from tidemill.errors import ConfigError

_RETRYING_MASTER = re.compile(r"local\[\s*(?P<slots>[0-9]+|\*)\s*,\s*(?P<failures>[0-9]+)\s*\]")
"""A local master with a second number, which counts in place of ``spark.task.maxFailures``."""

REQUIRED: Mapping[str, str] = {
    # A retried source step has moved on: a lost batch starts again at the committed offsets instead (rule 4).
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    # The transactional producer, the consumers and open stores live in the workers from batch to batch.
    "spark.python.worker.reuse": "true",
}

PIN_THREAD = "PYSPARK_PIN_THREAD"
"""Unless it is false, PySpark gives each thread of Python one of the JVM's, which has the local properties of its jobs."""

_CONNECT = "pyspark.sql.connect."
_HEAP = re.compile(r"[1-9]\d*[kmgtKMGT]|[1-9]\d{7,}")
"""What Java takes as a heap's size, and in which an instance could start: without a unit it is a number of bytes."""


def check_settings(settings: Mapping[str, str]) -> None:
    master = str(settings.get("spark.master", ""))
    retrying = _RETRYING_MASTER.fullmatch(master.strip())
    if retrying and int(retrying["failures"]) != 1:
        needed = f"local[{retrying['slots']}]"
        raise ConfigError(
            f"spark.master is {master!r}, which tries a task {retrying['failures']} times, but exactly-once needs {needed!r}: "
            "leave the second number out"
        )
    heap = str(settings.get("spark.driver.memory", "1g"))
    if not _HEAP.fullmatch(heap):
        raise ConfigError(f"spark.driver.memory is {heap!r}, expected a whole number with a unit, such as 512m or 2g")
    for name, needed in REQUIRED.items():
        value = settings.get(name)
        if value is not None and str(value).lower() != needed:
            raise ConfigError(f"{name} is {value!r}, but exactly-once needs {needed!r}: remove the setting")


def require_classic(session: object) -> None:
    """ConfigError for a session of Spark Connect, or for what is no session at all."""
    kind = type(session)
    if f"{kind.__module__}.".startswith(_CONNECT):
        raise ConfigError(
            "the session that was handed in is a Spark Connect session, whose JVM is out of reach: hand in a classic one "
            "(SparkSession.builder.master('local[4]').getOrCreate() without SPARK_REMOTE), or none"
        )
    if not hasattr(session, "sparkContext"):
        raise ConfigError(f"session is a {kind.__module__}.{kind.__qualname__}, expected a SparkSession")
    if not isinstance(session.sparkContext._gateway, ClientServer):
        raise ConfigError(
            f"the session that was handed in was started with {PIN_THREAD}=false, so that threads share those of the JVM: the "
            "job of one would have the properties of another's. Unset it, and start again"
        )


def require_classic_environment(environ: Mapping[str, str]) -> None:
    """ConfigError where PySpark would take a session of our own for one of Spark Connect, whose JVM is out of reach."""
    is_set = {
        "SPARK_REMOTE": bool(environ.get("SPARK_REMOTE")),
        "SPARK_API_MODE=connect": environ.get("SPARK_API_MODE", "").lower() == "connect",
        "SPARK_CONNECT_MODE_ENABLED": "SPARK_CONNECT_MODE_ENABLED" in environ,
    }
    for name in (name for name, found in is_set.items() if found):
        raise ConfigError(f"{name} is set, which makes every session a Spark Connect session: unset it, and start again")


def require_room_for_own() -> None:
    """ConfigError where a session of our own can't be started: a process has one SparkContext at most."""
    active = SparkContext._active_spark_context
    if active is not None:
        raise ConfigError(
            f"this process has a SparkSession already ({active.appName}): hand it in with KafkaStreams(..., session=spark), or "
            "stop it first with spark.stop(). Two applications in one process share a session that is yours, since one of "
            "theirs ends with its application"
        )
