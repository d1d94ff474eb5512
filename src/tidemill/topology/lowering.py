"""From the logical graph to the topology: operators become nodes, stores and repartition topics.

Decides the insertion order of the nodes, on which the numbers of sub-topologies rest: of all operators whose parents
are written, the one of the least priority is written next. Refuses what Kafka Streams refuses: a name, a store or a
source topic used twice. Leaves optimisation to ``optimization``.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass, field, replace

from tidemill.errors import TopologyError
from tidemill.topology.logical import (
    KTableSource,
    LogicalGraph,
    LogicalNode,
    Process,
    Repartition,
    Sink,
    StreamSource,
)
from tidemill.topology.nodes import Node, ProcessorNode, RepartitionTopic, SinkNode, SourceNode, Store, Topology
from tidemill.topology.operations import NullKeyFilter, TableSource


def lower(graph: LogicalGraph) -> Topology:
    """The topology of a graph; TopologyError if names, stores or topics are used twice."""
    children: dict[int, list[int]] = {node: [] for node in graph.nodes}
    waits_for = {node: len(above) for node, above in graph.parents.items()}
    for node, above in graph.parents.items():
        for parent in above:
            children[parent].append(node)
    ready = [(graph.priorities[node], node) for node, count in waits_for.items() if count == 0]
    heapq.heapify(ready)
    draft = _Draft()
    while ready:
        _, node = heapq.heappop(ready)
        parents = tuple(graph.nodes[parent].name for parent in graph.parents[node])
        _write(draft, graph.nodes[node], parents)
        for child in children[node]:
            waits_for[child] -= 1
            if waits_for[child] == 0:
                heapq.heappush(ready, (graph.priorities[child], child))
    return Topology(
        nodes=draft.nodes, parents=draft.parents, stores=draft.stores, repartition_topics=draft.repartition_topics
    )


@dataclass(slots=True)
class _Draft:
    """The topology while it is being written; it never leaves ``lower``."""

    nodes: dict[str, Node] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stores: dict[str, Store] = field(default_factory=dict)
    repartition_topics: dict[str, RepartitionTopic] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    """Source topic -> the node that reads it."""

    def add(self, node: Node, parents: tuple[str, ...] = ()) -> None:
        if node.name in self.nodes:
            raise TopologyError(
                f"two nodes have the name {node.name!r} ({_what(self.nodes[node.name])} and {_what(node)}): names of"
                " operators, groups, repartitions and sinks must differ; give one of them another name"
            )
        self.nodes[node.name] = node
        self.parents[node.name] = parents

    def add_source(self, node: SourceNode) -> None:
        for topic in node.topics:
            self._claim(topic, node)
        if node.topic_pattern is not None:
            self._claim_pattern(node.topic_pattern, node)
        self.add(node)

    def _claim(self, topic: str, node: SourceNode) -> None:
        patterns = ((made.name, made.topic_pattern) for made in self.nodes.values() if isinstance(made, SourceNode))
        other = self.readers.get(topic) or next((n for n, p in patterns if p and re.fullmatch(p, topic)), None)
        if other is not None:
            raise TopologyError(
                f"the topic {topic!r} is read by two nodes, {other!r} and {node.name!r}: a topic can be read as a"
                " stream or as a table, and by one list of topics only; read it once and use what you get twice"
                " (table.to_stream(), stream.to_table())"
            )
        self.readers[topic] = node.name

    def _claim_pattern(self, pattern: str, node: SourceNode) -> None:
        for topic, other in self.readers.items():
            if re.fullmatch(pattern, topic):
                raise TopologyError(
                    f"the pattern {pattern!r} of node {node.name!r} matches the topic {topic!r}, which node"
                    f" {other!r} reads already: make the pattern narrower or drop the other source"
                )

    def add_store(self, store: Store, node: str) -> None:
        if store.name in self.stores:
            user = next(n.name for n in self.nodes.values() if isinstance(n, ProcessorNode) and store.name in n.stores)
            raise TopologyError(
                f"two stores have the name {store.name!r} (of the nodes {user!r} and {node!r}): give one of them"
                " another name"
            )
        self.stores[store.name] = store


def _write(draft: _Draft, node: LogicalNode, parents: tuple[str, ...]) -> None:
    match node.effect:
        case StreamSource() as source:
            draft.add_source(SourceNode(
                name=node.name, topics=source.topics, topic_pattern=source.pattern, key_serde=source.key_serde,
                value_serde=source.value_serde, offset_reset=source.offset_reset,
            ))
        case KTableSource() as table:
            _write_table(draft, node.name, table)
        case Process() as process:
            if process.store is not None:
                draft.add_store(process.store, node.name)
            draft.add(ProcessorNode(
                name=node.name, operation=process.operation, key_serde=process.key_serde,
                value_serde=process.value_serde, stores=() if process.store is None else (process.store.name,),
            ), parents)
        case Repartition() as through:
            _write_repartition(draft, node.name, through, parents)
        case Sink() as sink:
            draft.add(SinkNode(
                name=node.name, topic=sink.topic, key_serde=sink.key_serde, value_serde=sink.value_serde
            ), parents)


def _write_table(draft: _Draft, name: str, table: KTableSource) -> None:
    store, key, value = table.store, table.store.key_serde, table.store.value_serde
    draft.add_source(SourceNode(
        name=table.source_name, topics=(table.topic,), key_serde=key, value_serde=value,
        offset_reset=table.offset_reset,
    ))
    if table.materialized:
        reusing = replace(store, logged=False, source_topic=table.topic)
        draft.add_store(reusing if table.reuses_topic else store, name)
    draft.add(ProcessorNode(
        name=name, operation=TableSource(store.name if table.materialized else None),
        stores=(store.name,) if table.materialized else (), key_serde=key, value_serde=value,
    ), (table.source_name,))


def _write_repartition(draft: _Draft, name: str, through: Repartition, parents: tuple[str, ...]) -> None:
    topic, key, value = through.topic, through.key_serde, through.value_serde
    draft.repartition_topics[topic] = RepartitionTopic(name=topic, partitions=through.partitions)
    draft.add(ProcessorNode(
        name=through.filter_name, operation=NullKeyFilter(), key_serde=key, value_serde=value
    ), parents)
    draft.add(SinkNode(name=through.sink_name, topic=topic, key_serde=key, value_serde=value), (through.filter_name,))
    draft.add_source(SourceNode(name=name, topics=(topic,), key_serde=key, value_serde=value))


def _what(node: Node) -> str:
    match node:
        case SourceNode():
            return f"the source of {node.topic_pattern or ', '.join(node.topics)}"
        case SinkNode():
            return f"the sink to {node.topic}"
        case ProcessorNode():
            return type(node.operation).__name__
