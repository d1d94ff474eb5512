"""``foreach_batch`` on a plan: its node is a sink, whose records go into a file instead of a topic, and the driver calls.

Decides how the plan sees such a node (as a ``SinkNode`` of no topic, so that all rules for sinks hold for it) and what the
function gets of a batch's file (`steps.commit.batch_file`). When it is called, and what a failure means, is the last step's and
the runtime's. The function never leaves the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemill.spark.plan.codecs import decoded
from tidemill.steps.commit.batch_file import FILE_DDL
from tidemill.steps.step_spec import BatchSinkSpec
from tidemill.topology.nodes import Node, ProcessorNode, SinkNode, Topology
from tidemill.topology.spark_operations import ForeachBatch

_NO_TOPIC = "foreach-batch:"
"""Begins what stands for the topic of such a sink; no topic's name has a colon."""


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


def batch_frame(session: SparkSession, path: str, made: BatchFunction) -> DataFrame:
    """The records in a file that ``write_batch`` has written: key, value, timestamp, headers, topic, partition, offset."""
    rows = session.read.schema(FILE_DDL).parquet(path)
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
