"""Which Spark sessions can carry an instance, told before anything is asked of one.

Decides by what a session is; whether its settings fit is ``session``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext

from tidemill.errors import ConfigError

_CONNECT = "pyspark.sql.connect."


def require_classic(session: Any) -> None:
    """ConfigError for a session of Spark Connect, or for what is no session at all."""
    kind = type(session)
    if f"{kind.__module__}.".startswith(_CONNECT):
        raise ConfigError(
            "the session that was handed in is a Spark Connect session, whose JVM is out of reach: hand in a classic one "
            "(SparkSession.builder.master('local[4]').getOrCreate() without SPARK_REMOTE), or none"
        )
    if not hasattr(session, "sparkContext"):
        raise ConfigError(f"session is a {kind.__module__}.{kind.__qualname__}, expected a SparkSession")


def require_room_for_own(environ: Mapping[str, str]) -> None:
    """ConfigError where a session of our own can't be started: a process has one SparkContext at most."""
    if environ.get("SPARK_REMOTE"):
        raise ConfigError("SPARK_REMOTE is set, which makes every session a Spark Connect session: unset it, and start again")
    active = SparkContext._active_spark_context
    if active is not None:
        raise ConfigError(
            f"this process has a SparkSession already ({active.appName}): hand it in with KafkaStreams(..., session=spark), or "
            "stop it first with spark.stop()"
        )
