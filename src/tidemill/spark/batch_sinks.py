"""``foreach_batch`` on a plan: its node is a sink, whose records go into a file instead of a topic, and the driver calls.

Decides how the plan sees such a node (as a ``SinkNode`` of no topic, so that all rules for sinks hold for it), what a batch's
file holds and what the function gets of it. When it is called, and what a failure means, is the last step's and the runtime's.
The function never leaves the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemill.spark.codecs import decoded
from tidemill.spark.outputs import Outputs, ToSink
from tidemill.spark.records import in_order, to_rows
from tidemill.spark.rows import DDL, SCHEMA
from tidemill.spark.step_spec import BatchSinkSpec
from tidemill.topology.nodes import Node, ProcessorNode, SinkNode, Topology
from tidemill.topology.spark_operations import ForeachBatch

_NO_TOPIC = "foreach-batch:"
"""Begins what stands for the topic of such a sink; no topic's name has a colon."""
_SIDES = ("key", "value", "key_num", "value_num", "key_dbl", "value_dbl")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_FILE_DDL = ", ".join(
    [f"{name} {DDL[name]}" for name in ("part", "off", "ts", *_SIDES)] + ["headers array<struct<key: string, value: binary>>"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFunction:
    """A function of ``foreach_batch``, with what its DataFrames are made by. ``topic``: if records come from this one only."""

    function: Callable[..., Any]
    key_serde: Any
    value_serde: Any
    topic: str | None


def with_batch_sinks(topology: Topology) -> Topology:
    """The topology as the plan sees it; the same if it has no ``foreach_batch``."""
    nodes: dict[str, Node] = {name: _as_sink(node) for name, node in topology.nodes.items()}
    return topology if nodes == topology.nodes else replace(topology, nodes=nodes)


def _as_sink(node: Node) -> Node:
    if not (isinstance(node, ProcessorNode) and isinstance(node.operation, ForeachBatch)):
        return node
    return SinkNode(name=node.name, topic=_NO_TOPIC + node.name, key_serde=node.key_serde, value_serde=node.value_serde)


def is_batch_sink(node: Node) -> bool:
    return isinstance(node, SinkNode) and node.topic.startswith(_NO_TOPIC)


def taken_batch(sink: BatchSinkSpec, outputs: Outputs) -> pa.Table | None:
    """What a batch has for the sink, taken out of ``outputs``; None if that is nothing."""
    held = outputs.take(ToSink(sink.name))
    if not held:
        return None
    records = in_order(held)
    rows = to_rows(records, 0, sink.key_serde, sink.value_serde)
    columns = {name: rows.column(name) for name in ("part", "off", "ts", *_SIDES)}
    # What a punctuator has made comes from no record.
    columns["off"] = pa.array([None if at is None or at < 0 else at for at in records.offsets], SCHEMA.field("off").type)
    headers = [[{"key": name, "value": value} for name, value in records.header(at) or ()] for at in range(len(records))]
    return pa.table({**columns, "headers": pa.array(headers, _HEADERS)})


def write_batch(rows: pa.Table, path: str) -> None:
    import pyarrow.parquet as pq  # every worker has this module, few write

    pq.write_table(rows, path, compression="none", use_dictionary=False, write_statistics=False)


def batch_frame(session: SparkSession, path: str, made: BatchFunction) -> DataFrame:
    """The records in a file that ``write_batch`` has written: key, value, timestamp, headers, topic, partition, offset."""
    rows = session.read.schema(_FILE_DDL).parquet(path)
    return rows.select(
        decoded(made.key_serde, "key").alias("key"),
        decoded(made.value_serde, "value").alias("value"),
        F.timestamp_millis(F.col("ts")).alias("timestamp"),
        F.col("headers"),
        F.lit(made.topic).cast("string").alias("topic"),
        F.col("part").alias("partition"),
        F.col("off").alias("offset"),
    )


def batch_functions(topology: Topology, sinks: Mapping[str, BatchSinkSpec]) -> dict[str, BatchFunction]:
    """By node; ``topology`` as the program has made it."""
    found = {}
    for name, sink in sinks.items():
        node = topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        assert isinstance(node.operation, ForeachBatch)
        found[name] = BatchFunction(
            function=node.operation.function,
            key_serde=sink.key_serde,
            value_serde=sink.value_serde,
            topic=sink.inputs[0] if len(sink.inputs) == 1 else None,
        )
    return found
