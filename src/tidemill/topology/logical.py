"""The logical graph: what a program said, operator by operator, before any optimisation.

Decides how operators hang together and in which order they count (``priority``: Kafka Streams' build priority, which
is the order in which they become nodes). Every change gives a new graph. Leaves rewrites to ``optimization``, and what
an operator becomes in a topology to ``lowering``. Invariant: parents are made before their children.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tidemill.topology.nodes import Serde, Store
from tidemill.topology.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """Reads topics, or all topics that match a pattern, as a stream."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    offset_reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KTableSource:
    """Reads one topic as a table: a source node and a processor node, which has a store only if ``materialized``."""

    topic: str
    source_name: str
    store: Store
    materialized: bool
    reuses_topic: bool = False
    """The topic itself serves as the store's changelog."""
    offset_reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One processor node, with the store that it brings, if any; serdes are those of what leaves it."""

    operation: Operation
    store: Store | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition:
    """A filter, a sink, an internal topic and a source; ``mergeable`` as far as the optimiser is concerned.

    The logical node has the name of its source node.
    """

    topic: str
    filter_name: str
    sink_name: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    partitions: int | None = None
    mergeable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Writes a topic."""

    topic: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None


Effect = StreamSource | KTableSource | Process | Repartition | Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalNode:
    """An operator: the name of the node that its children hang on, and what it becomes."""

    name: str
    effect: Effect
    changes_key: bool = False
    changes_value: bool = False
    merges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalGraph:
    """Operators by id, in the order in which the program made them; parents in the order of their linking."""

    nodes: Mapping[int, LogicalNode] = field(default_factory=dict)
    parents: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    priorities: Mapping[int, int] = field(default_factory=dict)

    def children(self, node: int) -> tuple[int, ...]:
        """The operators that ``node`` feeds, by id."""
        return tuple(child for child in sorted(self.nodes) if node in self.parents[child])

    def next_id(self) -> int:
        return max(self.nodes, default=-1) + 1


def added(graph: LogicalGraph, node: LogicalNode, parents: tuple[int, ...]) -> tuple[LogicalGraph, int]:
    """The graph with one more operator, last in order; and its id."""
    made = graph.next_id()
    return moved_last(
        replace(
            graph,
            nodes={**graph.nodes, made: node},
            parents={**graph.parents, made: tuple(dict.fromkeys(parents))},
        ),
        made,
    ), made


def moved_last(graph: LogicalGraph, node: int) -> LogicalGraph:
    """The graph with ``node`` last in the build order (what Kafka Streams does to an operator that is linked again)."""
    last = max(graph.priorities.values(), default=-1) + 1
    return replace(graph, priorities={**graph.priorities, node: last})


def changed(graph: LogicalGraph, node: int, change: Callable[[LogicalNode], LogicalNode]) -> LogicalGraph:
    """The graph with one operator replaced."""
    return replace(graph, nodes={**graph.nodes, node: change(graph.nodes[node])})


def linked(graph: LogicalGraph, parent: int, child: int) -> LogicalGraph:
    """The graph where ``parent`` feeds ``child``; no change if it does already."""
    if parent in graph.parents[child]:
        return graph
    return replace(graph, parents={**graph.parents, child: (*graph.parents[child], parent)})


def unlinked(graph: LogicalGraph, parent: int, child: int) -> LogicalGraph:
    """The graph where ``parent`` does not feed ``child``."""
    return replace(graph, parents={**graph.parents, child: tuple(p for p in graph.parents[child] if p != parent)})


def removed(graph: LogicalGraph, node: int) -> LogicalGraph:
    """The graph without an operator and its links."""
    return LogicalGraph(
        nodes={n: made for n, made in graph.nodes.items() if n != node},
        parents={n: tuple(p for p in above if p != node) for n, above in graph.parents.items() if n != node},
        priorities={n: priority for n, priority in graph.priorities.items() if n != node},
    )
