"""The Spark session in which an application's plans are made: a clone of the one that the code of its owner has.

Decides what both share. A plan is made again while the application runs (a refresh of ``join_dataframe``, an added thread, a
backlog), and has to be the one that was checked at the start. So settings that code of the owner changes meanwhile, in
``foreach_batch`` or in a notebook, are not those of a plan, and no setting of the owner's changes for a plan's sake.
"""

from __future__ import annotations

from pyspark import RDD
from pyspark.sql import SparkSession

_OWN = {
    # Adaptive execution would put exchanges and re-planning into a plan that must stay as it is (rule 18).
    "spark.sql.adaptive.enabled": "false",
    # The static sides of join_dataframe are broadcast by a hint.
    "spark.sql.optimizer.disableHints": "false",
    # Rows only go to a process of the same machine; and of a column that is null Spark's lz4 makes what no worker can read.
    "spark.sql.execution.arrow.compression.codec": "none",
    # A run's workers wait for records; how long a batch may take, tidemill.batch.timeout.ms says.
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "0",
}


def plan_session(session: SparkSession) -> SparkSession:
    """A session with the settings, views and functions that ``session`` has now, in the same context."""
    to_frame = RDD.toDF
    own = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    RDD.toDF = to_frame  # type: ignore[method-assign]  # a new session makes it its own; it stays the owner's
    for name, value in _OWN.items():
        own.conf.set(name, value)
    return own
