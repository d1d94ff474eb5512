"""The Spark session in which an application's plans are made: a clone of the one that the code of its owner has.

Decides what both share. A plan is made again while the application runs (a refresh of ``join_dataframe``, an added thread, a
backlog), and has to be the one that was checked at the start. So settings that code of the owner changes meanwhile, in
``foreach_batch`` or in a notebook, are not those of a plan, and no setting of the owner's changes for a plan's sake. What the
application's settings say of SQL holds in its plans, whosever the session is.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyspark import RDD
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from tidemill.errors import ConfigError
from tidemill.spark.batch_failures import causes_of, one_line, one_sentence

_OWN = {
    # Adaptive execution would put exchanges and re-planning into a plan that must stay as it is (rule 18).
    "spark.sql.adaptive.enabled": "false",
    # The static sides of join_dataframe are broadcast by a hint.
    "spark.sql.optimizer.disableHints": "false",
    # A column that the lambda of a higher-order function uses would be the one that the same projection makes under its name.
    "spark.sql.lateralColumnAlias.enableImplicitResolution": "false",
    # Rows only go to a process of the same machine; and of a column that is null Spark's lz4 makes what no worker can read.
    "spark.sql.execution.arrow.compression.codec": "none",
    # A run's workers wait for records; how long a batch may take, tidemill.batch.timeout.ms says.
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "0",
}

_MAKING = threading.Lock()
"""Held while a session is made: of two instances that start at the same time, one would take the other's ``RDD.toDF`` for the
owner's."""


def plan_session(session: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with the settings, views and functions that ``session`` has now, in the same context. ``settings``: the
    application's ``spark.*`` settings; those of SQL that a running session takes hold in it.

    Raises:
        ConfigError: Spark refuses the value of one.
    """
    with _MAKING:
        to_frame = RDD.toDF
        own = SparkSession(session.sparkContext, _clone(session, settings or {}))
        RDD.toDF = to_frame  # type: ignore[method-assign]  # a new session makes it its own; it stays the owner's
    for name, value in (settings or {}).items():
        if name.startswith("spark.sql.") and own.conf.isModifiable(name):
            _set(own, name, value)
    for name, value in _OWN.items():
        own.conf.set(name, value)
    return own


def _clone(session: SparkSession, settings: Mapping[str, str]) -> Any:
    """The JVM's clone. A session that started with a value that Spark refuses says so only now."""
    try:
        return session._jsparkSession.cloneSession()
    except CapturedException as refused:
        for _, said in causes_of(refused):
            for name, value in settings.items():
                if f'"{name}"' in said:
                    raise ConfigError(f"{name} is {value!r}, which Spark refuses: {one_sentence(said)}") from None
        raise


def _set(session: SparkSession, name: str, value: str) -> None:
    try:
        session.conf.set(name, value)
    except CapturedException as refused:
        raise ConfigError(f"{name} is {value!r}, which Spark refuses: {one_line(refused)}") from None
