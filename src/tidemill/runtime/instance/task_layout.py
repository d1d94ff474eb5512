"""What the topology says of an application's tasks, cut to what a stream thread must know.

Decides nothing of its own: which store is restored from which topic, and which topics are internal, is the topology's.
"""

from __future__ import annotations

from tidemill.config.values import offset_reset
from tidemill.runtime.thread.start_offsets import TaskFacts
from tidemill.topology.graph import broker_topic, changelog_of, subtopologies
from tidemill.topology.nodes import ProcessorNode, SourceNode, Topology
from tidemill.topology.operations import ProcessRecords, TableTransformValues


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
            isinstance(node, ProcessorNode) and isinstance(node.operation, (ProcessRecords, TableTransformValues))
            for node in topology.nodes.values()
        ),
        has_output=frozenset(part.id for part in parts if not internal.issuperset(part.sink_topics)),
    )
