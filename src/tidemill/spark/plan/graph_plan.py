"""A part of the topology as a topology of its own, with the serdes at its borders: the spec with which a worker runs it.

Decides names and tags at the borders. Rows enter at sources: the real one where all of a source's records go into the part,
else one named ``node|in`` for each node that rows of columns enter. Records leave at sinks and towards the nodes of columns
below. Only nodes of the part travel to the worker: what is a function of columns stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidemill.dsl.serdes import Serdes
from tidemill.operators.operation_table import record_caches
from tidemill.spark.plan.graph_parts import GraphPart, entered_by_columns, left_to_columns
from tidemill.spark.plan.planned_topology import is_batch_sink
from tidemill.spark.plan.serde_rules import PartSerdes, exit_edge, of_foreign_key_join, require, sink_edge
from tidemill.spark.plan.shortcuts import window_join_of
from tidemill.steps.commit.sinks import chooses_partitions
from tidemill.steps.rows.codecs_wire import before_it_is_written
from tidemill.steps.rows.schema import Tags
from tidemill.steps.step_spec import GraphEntry, GraphExit, GraphSpec
from tidemill.topology.graph import broker_topic
from tidemill.topology.key_value_serdes import NO_SERDES, KeyValueSerdes
from tidemill.topology.methods import method_of
from tidemill.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, Store, Topology
from tidemill.topology.operations import PassThrough

_BORDER = "|in"
"""Ends the names of sources that stand for columns; no node's name has such a character."""


def graph_spec(
    topology: Topology,
    application_id: str,
    part: GraphPart,
    *,
    subtopology: int,
    topics: tuple[str, ...],
    serdes: PartSerdes,
    default: KeyValueSerdes,
    shared: Mapping[str, Store],
) -> GraphSpec:
    """The spec with which a worker runs ``part``; ``topics``: those that its sub-topology reads, by the index that ``seq`` has;
    ``shared``: the global stores.

    Raises:
        TopologyError: a serde is missing at its border.
    """
    cut = _Cut(topology, application_id, part, topics, serdes, default)
    for name in topology.nodes:
        if name in part.sources:
            cut.source(name)
        elif name in part.nodes:
            cut.node(name)
        elif any(parent in part.nodes or parent in part.sources for parent in topology.parents[name]):
            cut.exit(name)
    stores = {**serdes.stores, **shared}
    spec = GraphSpec(
        number=part.number,
        subtopology=subtopology,
        topology=replace(topology, nodes=cut.nodes, parents=cut.parents, stores=stores, copartition_groups=()),
        inside=frozenset(cut.nodes.keys() - set(left_to_columns(topology, part))),
        entries=cut.entries,
        exits=cut.exits,
        choosing_sinks=frozenset(
            name
            for name, node in cut.nodes.items()
            if isinstance(node, SinkNode)
            and (is_batch_sink(node) or chooses_partitions(node.partitioner, node.partitioning, node.key_serde))
        ),
        writes_alone=not cut.exits and _writes_alone(topology, cut.nodes, cut.parents),
        is_global=part.is_global,
        global_stores=frozenset(shared),
        caching=record_caches(topology).intersection(part.nodes),
        default_serdes=default.otherwise(KeyValueSerdes(key=Serdes.bytes(), value=Serdes.bytes())),
    )
    return replace(spec, window_join=window_join_of(spec))


def _writes_alone(topology: Topology, own: Mapping[str, Node], parents: Mapping[str, tuple[str, ...]]) -> bool:
    sinks = {name: node for name, node in topology.nodes.items() if isinstance(node, SinkNode)}
    if any(parents[name] != topology.parents[name] for name in sinks if name in own):
        return False  # a sink gets records from elsewhere as well
    if any(node.topic_extractor is not None for node in sinks.values()):
        return False
    if any(is_batch_sink(node) or (isinstance(node, SinkNode) and node.partitioner is not None) for node in own.values()):
        return False  # their records keep their offsets, for the function or an exception handler
    return {node.topic for name, node in sinks.items() if name in own}.isdisjoint(
        node.topic for name, node in sinks.items() if name not in own
    )


class _Cut:
    """A part's topology in the making."""

    def __init__(
        self, topology: Topology, application_id: str, part: GraphPart, topics: tuple[str, ...], serdes: PartSerdes,
        default: KeyValueSerdes,
    ) -> None:  # fmt: skip
        self._topology, self._application_id, self._part, self._topics = topology, application_id, part, topics
        self._serdes, self._default = serdes, default
        self._tags = Tags(topology)
        self._entered = entered_by_columns(topology, part)
        self.nodes: dict[str, Node] = {}
        self.parents: dict[str, tuple[str, ...]] = {}
        self.entries: dict[int, GraphEntry] = {}
        self.exits: dict[str, GraphExit] = {}

    def source(self, name: str) -> None:
        node = self._topology.nodes[name]
        assert isinstance(node, SourceNode)
        edge = self._serdes.leaving[name]
        self._add(replace(node, key_serde=edge.key, value_serde=edge.value, timestamp_extractor=None), ())
        self._entry(self._tags.arrived(name), name, edge, self._tags.index(name))

    def node(self, name: str) -> None:
        own = tuple(p for p in self._topology.parents[name] if p in self._part.nodes or p in self._part.sources)
        if name in self._entered:
            border = name + _BORDER
            self._add(SourceNode(name=border, topics=()), ())
            letters = self._serdes.letters.get(name, NO_SERDES)
            self._entry(self._tags.arrived(name), border, self._serdes.from_columns[name], None, letters)
            own = (*own, border)
        arriving = next((self._serdes.leaving[parent] for parent in own if parent in self._serdes.leaving), None)
        arriving = arriving or self._serdes.from_columns.get(name, NO_SERDES)
        self._add(of_foreign_key_join(self._topology, name, arriving, self._serdes.leaving, self._default), own)

    def exit(self, name: str) -> None:
        node = self._topology.nodes[name]
        own = tuple(p for p in self._topology.parents[name] if p in self._part.nodes or p in self._part.sources)
        if not isinstance(node, SinkNode):
            edge = exit_edge(self._topology, name, self._serdes.leaving)
            self._add(ProcessorNode(name=name, operation=PassThrough()), own)
            tag = self._tags.arrived(name)
            key_serde, value_serde = edge.settled
            self.exits[name] = GraphExit(node=name, tag=tag, key_serde=key_serde, value_serde=value_serde)
            return
        edge = sink_edge(self._topology, name, self._serdes.leaving, self._default)
        require(edge, f"that {name} writes", f"of {method_of(node)}")
        topic = broker_topic(self._topology, self._application_id, node.topic)
        self._add(replace(node, topic=topic, key_serde=edge.key, value_serde=edge.value), own)

    def _add(self, node: Node, parents: tuple[str, ...]) -> None:
        self.nodes[node.name], self.parents[node.name] = node, parents

    def _entry(
        self, tag: int, name: str, edge: KeyValueSerdes, source: int | None, letters: KeyValueSerdes = NO_SERDES
    ) -> None:
        require(edge, f"of {name}", f"of {name}")
        key_serde, value_serde = edge.settled
        if source is None:
            key_serde, value_serde = before_it_is_written(key_serde), before_it_is_written(value_serde)
        self.entries[tag] = GraphEntry(
            node=name, key_serde=key_serde, value_serde=value_serde, source=source, topics=self._topics,
            letter_serdes=(letters.key, letters.value),
        )  # fmt: skip
