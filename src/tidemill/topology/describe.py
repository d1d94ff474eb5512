"""A topology as Kafka's ``describe()`` text, as JSON and as a Mermaid flowchart.

Decides the order of nodes within a sub-topology exactly as ``InternalTopologyBuilder.describe()``: by the size of what
lies below, then by name; and predecessors and successors in the order of sets that were filled while those sizes grew.
Topics stand without the application id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from tidemill.java_collections.hash_table import HashTable, hash_order, string_hash
from tidemill.java_collections.tree_set import TreeSet
from tidemill.topology.functions import PerRecord
from tidemill.topology.graph import node_groups
from tidemill.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, Topology

_GLOBAL = " for global store (will not generate tasks)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedNode:
    """A node with its neighbours, in the order in which Kafka prints them."""

    node: Node
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of a source, in Kafka's order; the topic of a sink."""
        match self.node:
            case SourceNode():
                # twice a set: the source's own, and the copy that is described
                own = HashTable.copy_of(string_hash, dict.fromkeys(self.node.topics))
                return tuple(HashTable.copy_of(string_hash, own))
            case SinkNode():
                return (self.node.topic,) if self.node.topic_extractor is None else ()
            case ProcessorNode():
                return ()

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores of a processor, in Kafka's order."""
        if not isinstance(self.node, ProcessorNode):
            return ()
        return tuple(HashTable.copy_of(string_hash, HashTable(string_hash, self.node.stores)))


def described(topology: Topology) -> tuple[tuple[DescribedNode, ...], ...]:
    """The nodes of each sub-topology in the order in which Kafka prints them."""
    return tuple(_described_group(topology, group) for group in node_groups(topology))


def describe(topology: Topology) -> str:
    """The text of Kafka's ``Topology.describe()``."""
    text = ["Topologies:\n "]
    for number, nodes in enumerate(described(topology)):
        is_global = any(isinstance(node.node, SourceNode) and node.node.is_global for node in nodes)
        text.append(f"  Sub-topology: {number}{_GLOBAL if is_global else ''}\n")
        text.extend(f"    {_node_text(node)}\n" for node in nodes)
        if not is_global:
            text.append("\n")
    return "".join(text)


def to_json(topology: Topology) -> str:
    """The same as JSON text: sub-topologies, their nodes in the same order, and what these are connected to."""
    parts = [
        {"id": number, "nodes": [_node_json(node) for node in nodes]}
        for number, nodes in enumerate(described(topology))
    ]
    return json.dumps({"subtopologies": parts}, indent=2)


def to_mermaid(topology: Topology) -> str:
    """A Mermaid flowchart: a box per sub-topology, topics between them, stores next to the nodes that use them."""
    parts = described(topology)
    ids = {described.node.name: f"n{at}" for at, described in enumerate(node for nodes in parts for node in nodes)}
    topics = {topic: f"t{at}" for at, topic in enumerate(
        dict.fromkeys(topic for nodes in parts for node in nodes for topic in _mermaid_topics(node))
    )}
    stores = {store: f"s{at}" for at, store in enumerate(topology.stores)}
    lines = ["flowchart TD"]
    lines += [f"  {topics[topic]}[/{_label(topic)}/]" for topic in topics]
    for number, nodes in enumerate(parts):
        lines.append(f"  subgraph sub{number} [Sub-topology {number}]")
        lines += [f"    {ids[node.node.name]}[{_label(node.node.name)}]" for node in nodes]
        used = dict.fromkeys(store for node in nodes for store in node.stores)
        lines += [f"    {stores[store]}[({_label(store)})]" for store in used]
        lines.append("  end")
    for node in (node for nodes in parts for node in nodes):
        here = ids[node.node.name]
        from_topics = isinstance(node.node, SourceNode)
        lines += [
            f"  {topics[topic]} --> {here}" if from_topics else f"  {here} --> {topics[topic]}"
            for topic in _mermaid_topics(node)
        ]
        lines += [f"  {here} --> {ids[below]}" for below in node.successors]
        lines += [f"  {here} -.- {stores[store]}" for store in node.stores]
    return "\n".join(lines) + "\n"


# --- order -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Sized:
    """A node while its sub-topology is put in order; ``size`` counts it and, once per path, all below it."""

    name: str
    depth: int
    """Higher than that of each node above it."""
    size: int = 1
    predecessors: TreeSet[_Sized] = field(init=False)
    successors: TreeSet[_Sized] = field(init=False)

    def __post_init__(self) -> None:
        self.predecessors, self.successors = TreeSet(_by_size_then_name), TreeSet(_by_size_then_name)

    def grow(self, by: int) -> None:
        """Adds to the sizes of the node and, once for each path, of those above it. Each is visited once, after all below it:
        n joins of a table with what is made of it have 2**n paths."""
        growth = {self: by}
        growing = [(-self.depth, self.name, self)]
        while growing:
            _, _, node = heappop(growing)
            node.size += growth[node]
            for above in node.predecessors:
                if above not in growth:
                    growth[above] = 0
                    heappush(growing, (-above.depth, above.name, above))
                growth[above] += growth[node]


def _by_size_then_name(one: _Sized, other: _Sized) -> int:
    if one is other:
        return 0
    if one.size != other.size:
        return other.size - one.size
    return -1 if one.name < other.name else 1


def _described_group(topology: Topology, group: tuple[str, ...]) -> tuple[DescribedNode, ...]:
    order = TopologicalSorter({name: topology.parents[name] for name in group}).static_order()
    depths = {name: depth for depth, name in enumerate(order)}
    sized = {name: _Sized(name, depths[name]) for name in hash_order(group, string_hash)}
    for name, node in sized.items():
        for parent in topology.parents[name]:
            above = sized[parent]
            node.predecessors.add(above)
            above.successors.add(node)
            above.grow(node.size)
    return tuple(
        DescribedNode(
            node=topology.nodes[node.name],
            predecessors=tuple(above.name for above in node.predecessors),
            successors=tuple(below.name for below in node.successors),
        )
        for node in sorted(sized.values(), key=lambda node: (-node.size, node.name))
    )


# --- text ------------------------------------------------------------------------------------------------------------


def _node_text(described: DescribedNode) -> str:
    name = described.node.name
    above = f"\n      <-- {_names(described.predecessors)}"
    below = f"\n      --> {_names(described.successors)}"
    match described.node:
        case SourceNode(topic_pattern=pattern):
            topics = f"[{', '.join(described.topics)}]" if pattern is None else pattern
            return f"Source: {name} (topics: {topics}){below}"
        case ProcessorNode():
            return f"Processor: {name} (stores: [{', '.join(described.stores)}]){below}{above}"
        case SinkNode(topic=topic, topic_extractor=None):
            return f"Sink: {name} (topic: {topic}){above}"
        case SinkNode(topic_extractor=extractor):
            return f"Sink: {name} (extractor class: {_function_name(extractor)}){above}"


def _function_name(function: object) -> str:
    """The name of a function, the class of a callable object: in place of Java's toString()."""
    if isinstance(function, PerRecord):
        function = function.function
    return str(getattr(function, "__name__", type(function).__name__))


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _node_json(described: DescribedNode) -> dict[str, object]:
    node = described.node
    found: dict[str, object] = {"type": type(node).__name__.removesuffix("Node").lower(), "name": node.name}
    match node:
        case SourceNode(topic_pattern=str(pattern)):
            found["pattern"] = pattern
        case SourceNode():
            found["topics"] = list(described.topics)
        case SinkNode(topic_extractor=None):
            found["topic"] = node.topic
        case SinkNode():
            found["topic_extractor"] = _function_name(node.topic_extractor)
        case ProcessorNode():
            found |= {"operation": type(node.operation).__name__, "stores": list(described.stores)}
    return found | {"predecessors": list(described.predecessors), "successors": list(described.successors)}


def _mermaid_topics(described: DescribedNode) -> tuple[str, ...]:
    if isinstance(described.node, SourceNode) and described.node.topic_pattern is not None:
        return (described.node.topic_pattern,)
    return described.topics


def _label(text: str) -> str:
    return '"' + text.replace('"', "#quot;") + '"'
