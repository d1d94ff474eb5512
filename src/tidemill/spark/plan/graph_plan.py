"""A part of the topology cut out as a topology of its own, with the serdes at its borders: what a worker needs to run it.

Decides names and tags at the borders. Rows enter at sources: the real one where all of a source's records go into the part,
else one named ``node|in`` for each node that rows of columns enter. Records leave at sinks and towards the nodes of columns
below. Only nodes of the part travel to the worker: what is a function of columns stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidemill.dsl.serdes import Serdes
from tidemill.errors import TopologyError
from tidemill.spark.plan.batch_sinks import is_batch_sink
from tidemill.spark.plan.graph_parts import GraphPart
from tidemill.spark.plan.graph_serdes import Sides, filled, leaving_serdes, store_serdes
from tidemill.steps.commit.sinks import chooses_partitions
from tidemill.steps.rows.schema import Tags
from tidemill.steps.step_spec import GraphEntry, GraphExit, GraphSpec
from tidemill.steps.vector.join_shape import window_join_of
from tidemill.topology.graph import broker_topic
from tidemill.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, Store, Topology
from tidemill.topology.operations import PassThrough

Entering = Mapping[str, Sides]
"""Serdes of what enters a part: by source, and by ``node|in``."""


def entered_by_columns(topology: Topology, part: GraphPart) -> tuple[str, ...]:
    """The part's nodes that get rows from outside of it, sources of its own not counted."""
    own = {*part.nodes, *part.sources}
    return tuple(name for name in part.nodes if any(parent not in own for parent in topology.parents[name]))


def left_to_columns(topology: Topology, part: GraphPart) -> tuple[str, ...]:
    """The nodes of columns right below the part."""
    below = (child for name in part.nodes for child in topology.children(name))
    return tuple(dict.fromkeys(n for n in below if n not in part.nodes and isinstance(topology.nodes[n], ProcessorNode)))


def sides_of_part(
    topology: Topology, part: GraphPart, entering: Entering, default: Sides
) -> tuple[dict[str, Sides], dict[str, Store]]:
    """(what leaves each of its nodes, its stores with their serdes)."""
    leaving = leaving_serdes(topology, part.nodes, entering, default)
    return leaving, store_serdes(topology, part.nodes, leaving, entering, default)


def sink_sides(topology: Topology, name: str, leaving: Mapping[str, Sides], default: Sides) -> Sides:
    """The serdes that a sink below the part writes with; None where nothing says it."""
    node = topology.nodes[name]
    assert isinstance(node, SinkNode)
    above = next((leaving[parent] for parent in topology.parents[name] if parent in leaving), default)
    known = Sides(above.key or default.key, above.value or default.value)
    inner = Sides(default.key or known.key, default.value or known.value)
    return Sides(filled(node.key_serde or known.key, inner), filled(node.value_serde or known.value, inner))


def exit_sides(topology: Topology, name: str, leaving: Mapping[str, Sides]) -> Sides:
    """The serdes of what goes on to a node of columns; all its parents in the part must have the same."""
    above = [leaving[parent] for parent in topology.parents[name] if parent in leaving]
    if any(sides != above[0] for sides in above):
        raise TopologyError(f"{name} merges streams with different serdes: give the operators above it the same")
    for side in ("key", "value"):
        if getattr(above[0], side) is None:
            raise TopologyError(
                f"no serde for the {side}s that enter {name}, whose function works on columns: give the function above it one "
                f"(per_record(f, serde=...)), set default.{side}.serde, or wrap {name}'s function in per_record(...) too"
            )
    return above[0]


def graph_spec(
    topology: Topology,
    application_id: str,
    part: GraphPart,
    subtopology: int,
    entering: Entering,
    default: Sides,
    shift: int,
    emit_interval_ms: int,
    shared: Mapping[str, Store],
) -> GraphSpec:
    """What a worker needs to run ``part``; ``shared``: the global stores.

    Raises:
        TopologyError: a serde is missing at its border.
    """
    leaving, stores = sides_of_part(topology, part, entering, default)
    cut = _Cut(topology, application_id, part, entering)
    for name in topology.nodes:
        if name in part.sources:
            cut.source(name)
        elif name in part.nodes:
            cut.node(name)
        elif any(parent in part.nodes or parent in part.sources for parent in topology.parents[name]):
            cut.exit(name, leaving, default)
    spec = GraphSpec(
        number=part.number,
        subtopology=subtopology,
        topology=replace(topology, nodes=cut.nodes, parents=cut.parents, stores={**stores, **shared}, copartition_groups=()),
        inside=frozenset(cut.nodes.keys() - set(left_to_columns(topology, part))),
        entries=cut.entries,
        exits=cut.exits,
        choosing_sinks=frozenset(
            name
            for name, node in cut.nodes.items()
            if isinstance(node, SinkNode)
            and (is_batch_sink(node) or chooses_partitions(node.partitioner, node.partitioning, node.key_serde))
        ),
        writes_alone=not cut.exits and _writes_alone(topology, cut.nodes),
        shift=shift,
        emit_interval_ms=emit_interval_ms,
        is_global=part.is_global,
        global_stores=frozenset(shared),
        key_serde=default.key or Serdes.bytes(),
        value_serde=default.value or Serdes.bytes(),
    )
    return replace(spec, window_join=window_join_of(spec))


def _writes_alone(topology: Topology, own: Mapping[str, Node]) -> bool:
    sinks = {name: node for name, node in topology.nodes.items() if isinstance(node, SinkNode)}
    if any(node.topic_extractor is not None for node in sinks.values()):
        return False
    if any(is_batch_sink(node) for node in own.values()):
        return False  # their records tell their offsets
    return {node.topic for name, node in sinks.items() if name in own}.isdisjoint(
        node.topic for name, node in sinks.items() if name not in own
    )


class _Cut:
    """A part's topology in the making."""

    def __init__(self, topology: Topology, application_id: str, part: GraphPart, entering: Entering) -> None:
        self._topology, self._application_id, self._part, self._entering = topology, application_id, part, entering
        self._tags = Tags(topology)
        self._entered = entered_by_columns(topology, part)
        self.nodes: dict[str, Node] = {}
        self.parents: dict[str, tuple[str, ...]] = {}
        self.entries: dict[int, GraphEntry] = {}
        self.exits: dict[str, GraphExit] = {}

    def source(self, name: str) -> None:
        node = self._topology.nodes[name]
        assert isinstance(node, SourceNode)
        sides = self._entering[name]
        self._add(replace(node, key_serde=sides.key, value_serde=sides.value, timestamp_extractor=None), ())
        self._entry(self._tags.arrived(name), name, self._tags.index(name), self._topics(name))

    def node(self, name: str) -> None:
        node = self._topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        own = tuple(p for p in self._topology.parents[name] if p in self._part.nodes or p in self._part.sources)
        if name in self._entered:
            border = name + "|in"
            self._add(SourceNode(name=border, topics=()), ())
            self._entry(self._tags.arrived(name), border, None, self._topics_above(name))
            own = (*own, border)
        self._add(node, own)

    def exit(self, name: str, leaving: Mapping[str, Sides], default: Sides) -> None:
        node = self._topology.nodes[name]
        own = tuple(p for p in self._topology.parents[name] if p in self._part.nodes or p in self._part.sources)
        if not isinstance(node, SinkNode):
            sides = exit_sides(self._topology, name, leaving)
            self._add(ProcessorNode(name=name, operation=PassThrough()), own)
            tag = self._tags.arrived(name)
            self.exits[name] = GraphExit(tag=tag, key_serde=sides.key, value_serde=sides.value)
            return
        sides = sink_sides(self._topology, name, leaving, default)
        _require(sides, f"that {name} writes", f"of {name}")
        topic = broker_topic(self._topology, self._application_id, node.topic)
        self._add(replace(node, topic=topic, key_serde=sides.key, value_serde=sides.value), own)

    def _add(self, node: Node, parents: tuple[str, ...]) -> None:
        self.nodes[node.name], self.parents[node.name] = node, parents

    def _entry(self, tag: int, name: str, source: int | None, topics: tuple[str, ...]) -> None:
        sides = self._entering[name]
        _require(sides, f"of {name}", f"of {name}")
        self.entries[tag] = GraphEntry(
            node=name, key_serde=sides.key, value_serde=sides.value, source=source, topics=topics
        )

    def _topics(self, source: str) -> tuple[str, ...]:
        node = self._topology.nodes[source]
        assert isinstance(node, SourceNode)
        return tuple(broker_topic(self._topology, self._application_id, topic) for topic in node.topics)

    def _topics_above(self, name: str) -> tuple[str, ...]:
        """Of the only source above; of several, one text with all of their topics."""
        found: dict[str, None] = {}
        left = [p for p in self._topology.parents[name] if p not in self._part.nodes]
        while left:
            above = left.pop()
            if isinstance(self._topology.nodes[above], SourceNode):
                found[above] = None
            left += self._topology.parents[above]
        if len(found) == 1:
            return self._topics(next(iter(found)))
        return ("|".join(sorted(topic for source in found for topic in self._topics(source))),)


def _require(sides: Sides, whose: str, where: str) -> None:
    for side in ("key", "value"):
        if getattr(sides, side) is None:
            raise TopologyError(f"no serde for the {side}s {whose}: give {side}= {where}, or set default.{side}.serde")
