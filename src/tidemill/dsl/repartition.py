"""How a stream is sent through a repartition topic: the one place where the DSL makes these operators."""

from __future__ import annotations

from tidemill.dsl.recorder import Recorder
from tidemill.topology.logical import LogicalNode, Repartition
from tidemill.topology.naming import legal_name, repartition_nodes, repartition_topic
from tidemill.topology.nodes import Serde
from tidemill.topology.operations import UserFunction


def repartition_node(
    recorder: Recorder,
    prefix: str,
    *,
    key: Serde | None,
    value: Serde | None,
    partitions: int | None = None,
    partitioner: UserFunction | None = None,
    mergeable: bool,
) -> LogicalNode:
    """The operator that sends records through ``<prefix>-repartition``; uses up three indexes of the counter."""
    sink, null_filter, source = repartition_nodes(prefix, recorder.take_index(3))
    topic = legal_name(repartition_topic(prefix), "a repartition topic")
    return LogicalNode(name=source, effect=Repartition(
        topic=topic, filter_name=null_filter, sink_name=sink, key_serde=key, value_serde=value,
        partitions=partitions, partitioner=partitioner, mergeable=mergeable,
    ))
