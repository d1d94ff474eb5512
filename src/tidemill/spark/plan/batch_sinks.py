"""The input of ``foreach_batch`` functions: a batch's file (`steps.commit.batch_file`) as a DataFrame.

Decides its columns. When a function is called, and what a failure means, is the last step's and the runtime's. The function
never leaves the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemill.operators.operation_table import operations_of
from tidemill.spark.plan.codecs import decoded, has_times
from tidemill.spark.plan.row_columns import in_layer, row
from tidemill.steps.commit.batch_file import FILE_DDL
from tidemill.steps.step_spec import BatchSinkSpec
from tidemill.topology.functions import UserFunction
from tidemill.topology.nodes import Topology
from tidemill.topology.spark_operations import ForeachBatch
from tidemill.topology.values import Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFunction:
    """A function of ``foreach_batch``, with what its DataFrames are made by. ``topic``: if records come from this one only."""

    function: UserFunction
    key_serde: Serde
    value_serde: Serde
    topic: str | None


def batch_frame(session: SparkSession, path: str, made: BatchFunction, plans: SparkSession) -> DataFrame:
    """The records in a file that ``write_batch`` has written: key, value, timestamp, headers, topic, partition, offset.

    ``session``: the frame's, which is the owner's. Times in JSON are read in ``plans`` ahead of the function: a setting that the
    owner changes while the application runs (``spark.sql.legacy.timeParserPolicy``) would give other times."""
    if plans is session or not any(has_times(serde) for serde in (made.key_serde, made.value_serde)):
        return _decoded(session, path, made)
    frame = _decoded(plans, path, made)
    frame.write.mode("overwrite").parquet(decoded_path(path))
    return session.read.schema(frame.schema).parquet(decoded_path(path))


def decoded_path(path: str) -> str:
    """The folder of a file's records once they are decoded ahead of the function."""
    return f"{path}-decoded"


def _decoded(session: SparkSession, path: str, made: BatchFunction) -> DataFrame:
    return in_layer(session.read.schema(FILE_DDL).parquet(path)).select(
        decoded(made.key_serde, "key").alias("key"),
        decoded(made.value_serde, "value").alias("value"),
        F.timestamp_millis(row("ts")).alias("timestamp"),
        row("headers").alias("headers"),
        F.lit(made.topic).cast("string").alias("topic"),
        row("part").alias("partition"),
        row("off").alias("offset"),
    )


def batch_functions(topology: Topology, sinks: Mapping[str, BatchSinkSpec]) -> dict[str, BatchFunction]:
    """Functions of ``foreach_batch`` by node; ``topology`` is the program's."""
    functions = operations_of(topology, ForeachBatch)
    return {
        name: BatchFunction(
            function=functions[name].function,
            key_serde=sink.key_serde,
            value_serde=sink.value_serde,
            topic=sink.inputs[0] if len(sink.inputs) == 1 else None,
        )
        for name, sink in sinks.items()
    }
