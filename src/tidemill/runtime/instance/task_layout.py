"""Tasks of an application by its topology, as far as a stream thread must know them.

Decides nothing of its own: which store is restored from which topic, and which topics are internal, is the topology's.
"""

from __future__ import annotations

from tidemill.config.values import offset_reset
from tidemill.runtime.thread.start_offsets import TaskFacts
from tidemill.topology.graph import broker_topic, changelog_of, subtopologies
from tidemill.topology.nodes import ProcessorNode, SourceNode, Topology
from tidemill.topology.operations import Operation, ProcessRecords, Suppress, TableTransformValues


def task_facts(topology: Topology, application: str) -> TaskFacts:
    """The facts of every sub-topology."""
    parts = subtopologies(topology, application)
    changelogs = {
        part.id: {s: topic for s in part.state_stores if (topic := changelog_of(topology, application, s)) is not None}
        for part in parts
    }
    internal = frozenset(topic for part in parts for topic in part.repartition_source_topics)
    return TaskFacts(
        changelogs=changelogs,
        has_stores=frozenset(part.id for part in parts if part.state_stores),
        internal_topics=internal,
        source_changelogs=frozenset(topic for part in parts for topic in part.source_topic_changelogs),
        topics=tuple(sorted({topic for part in parts for topic in part.source_topics})),
        offset_resets={
            broker_topic(topology, application, topic): offset_reset(node.offset_reset)
            for node in topology.nodes.values()
            if isinstance(node, SourceNode) and node.offset_reset is not None
            for topic in node.topics
        },
        punctuates=any(
            isinstance(node, ProcessorNode) and (_may_punctuate(node.operation) or node.wrapped is not None)
            for node in topology.nodes.values()
        ),
        has_output=frozenset(part.id for part in parts if not internal.issuperset(part.sink_topics)),
    )


def _may_punctuate(operation: Operation) -> bool:
    match operation:
        case ProcessRecords() | TableTransformValues():
            return True
        case Suppress(on_wall_clock=on_wall_clock):
            return on_wall_clock
        case _:
            return False
