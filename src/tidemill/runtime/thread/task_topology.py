"""What stream threads and their tasks need of a topology: changelogs, internal topics, reset policies.

Decides nothing: all of it follows from the topology.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.config.values import OffsetReset, OffsetResetByDuration, offset_reset
from tidemill.topology.graph import broker_topic, changelog_of, subtopologies
from tidemill.topology.join_operations import StreamStreamJoin, StreamTableJoin
from tidemill.topology.nodes import ProcessorNode, SourceNode, Topology
from tidemill.topology.operations import (
    Operation,
    ProcessRecords,
    SessionAggregate,
    Suppress,
    TableTransformValues,
    WindowAggregate,
)

ResetPolicy = OffsetReset | OffsetResetByDuration


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTopology:
    """Sub-topologies are by their number, topics by their real names."""

    changelogs: Mapping[int, Mapping[str, str]]
    """Changelog topics by sub-topology and store; global stores have none."""
    has_stores: frozenset[int]
    internal_topics: frozenset[str]
    """Repartition topics."""
    source_changelogs: frozenset[str]
    """Source topics that serve as changelogs."""
    topics: tuple[str, ...]
    """All source topics: the subscription."""
    offset_resets: Mapping[str, ResetPolicy]
    """Reset policies of topics whose source has its own."""
    punctuates: bool = False
    """True if something may happen by the wall clock alone: processors may schedule punctuators, suppress may wait by it."""
    may_defer: bool = False
    """True if operators may forward other records than the one that they have just got: ``punctuates``, or some hold records."""
    has_output: frozenset[int] = frozenset()
    """Sub-topologies that write to topics of the user's."""


def task_topology(topology: Topology, application: str) -> TaskTopology:
    """The facts about all sub-topologies of ``topology``."""
    parts = subtopologies(topology, application)
    changelogs = {
        part.id: {s: topic for s in part.state_stores if (topic := changelog_of(topology, application, s)) is not None}
        for part in parts
        if not part.is_global
    }
    processors = [node for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    punctuates = any(_may_punctuate(node.operation) or node.wrapped is not None for node in processors)
    internal = frozenset(topic for part in parts for topic in part.repartition_source_topics)
    return TaskTopology(
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
        punctuates=punctuates,
        may_defer=punctuates or any(_holds_records(node.operation) for node in processors),
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


def _holds_records(operation: Operation) -> bool:
    match operation:
        case Suppress():
            return True
        case WindowAggregate(emit_final=is_final) | SessionAggregate(emit_final=is_final):
            return is_final
        case StreamStreamJoin(outer_store=store) | StreamTableJoin(buffer=store):
            return store is not None
        case _:
            return False
