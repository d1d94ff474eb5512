"""Spark jobs that run beside the micro-batches: refreshing static sides, functions of ``foreach_batch``, snapshots of stores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession

_PROPERTY = "spark.scheduler.pool"
_POOL = "tidemill-beside"


@contextlib.contextmanager
def beside_the_batches(session: SparkSession) -> Iterator[None]:
    """Within it, jobs of this thread share the slots fairly with micro-batches (``spark.scheduler.mode=FAIR``, Tidemill's
    default). In one pool with them, a job of many tasks would go before each batch that begins later."""
    context = session.sparkContext
    before = context.getLocalProperty(_PROPERTY)
    context.setLocalProperty(_PROPERTY, _POOL)
    try:
        yield
    finally:
        context.setLocalProperty(_PROPERTY, before)  # type: ignore[arg-type]  # None takes it away
