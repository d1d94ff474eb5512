"""Summing rows in the JVM before a count or a repartition topic that only a count reads.

Decides what one row stands for; which rows may be summed, and as what, is ``compile``'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.spark.plan.codecs import Encoded
from tidemill.steps.rows.codecs_wire import Physical

_APART = ("off", "seq", "child", "headers", "value", "value_num", "wall")


def can_be_grouped_by(key: Encoded) -> bool:
    """Not by doubles: Spark makes one of 0.0 and -0.0, which are two keys in Kafka."""
    return key.kind is not Physical.DOUBLE


def presummed(frame: DataFrame, sink_tags: Sequence[int]) -> DataFrame:
    """One row per (node, task, key) of rows with ``summed``; all others keep themselves apart by what summed rows leave null.

    ``sink_tags``: of the rows that may be summed over tasks, because a repartition topic gets them. No column is of a nested
    type: one in the key took as long as all else. Doubles are no grouping columns, because Spark makes one of 0.0 and -0.0
    there; the greatest of a row kept apart is that row's own.
    """
    part = F.col("part")
    if sink_tags:
        part = F.when(F.col("node").isin(list(sink_tags)) & F.col("summed"), F.lit(-1)).otherwise(part)
    apart = [F.when(~F.col("summed"), F.col(name)).alias(name) for name in _APART]
    grouped = frame.select("node", part.alias("part"), "key", "key_num", *apart, "key_dbl", "value_dbl", "n", "ts").groupBy(
        "node", "part", "key", "key_num", *_APART
    )
    return grouped.agg(
        F.sum(F.coalesce("n", F.lit(1))).alias("n"), *[F.max(name).alias(name) for name in ("ts", "key_dbl", "value_dbl")]
    )
