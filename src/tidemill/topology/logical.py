"""The logical graph: the operators of a program, before any optimisation.

Decides how operators hang together and in which order they count (``priority``: Kafka Streams' build priority, which
is the order in which they become nodes). Every change gives a new graph. Leaves rewrites to ``optimization``, and what
an operator becomes in a topology to ``lowering``. Invariant: parents are made before their children.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tidemill.config.values import KafkaExtractor
from tidemill.errors import TopologyError
from tidemill.topology.functions import UserFunction
from tidemill.topology.join_operations import StreamSelfJoin, TableTableJoin
from tidemill.topology.join_operations import StreamStreamJoin as StreamSideJoin
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.operations import Operation, TableFilter, TableMapValues, TableTransformValues
from tidemill.topology.partitioning import Partitioning
from tidemill.topology.values import Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """Reads topics, or all topics that match a pattern, as a stream. Below a sink to an internal topic it reads that one."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    offset_reset: str | None = None
    timestamp_extractor: UserFunction | KafkaExtractor | None = None


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
    timestamp_extractor: UserFunction | KafkaExtractor | None = None
    sends_old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalSource:
    """A global table or store: a source node and the processor that keeps ``store``, in every instance."""

    topic: str
    source_name: str
    store: Store
    supplier: UserFunction | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStore:
    """A store that the program adds by itself; processors name it among those that they use."""

    store: Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One processor node, with the stores that it brings and those of others that it uses.

    Serdes are those of what leaves it. ``spare_store``: the store of a table without one, for the case that somebody needs it.
    """

    operation: Operation
    store: Store | None = None
    more_stores: tuple[Store, ...] = ()
    uses: tuple[str, ...] = ()
    spare_store: Store | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    sends_old: bool = False
    window_close_ms: int | None = None
    """Time from the end of a window to its close: the grace, for sessions also the gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStreamJoinNode:
    """Two processor nodes below the windowed nodes of both sides, and their merge, whose name the logical node has."""

    this_name: str
    other_name: str
    this_windowed: str
    other_windowed: str
    this_operation: StreamSideJoin
    other_operation: StreamSideJoin
    self_join: StreamSelfJoin
    outer_store: Store | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    is_self_join: bool = False
    """Both sides are the same stream: one node and one store are enough (``single.store.self.join``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KTableJoin:
    """Two processor nodes below two tables, and their merge, whose name the logical node has.

    ``this_uses`` and ``other_uses``: the stores in which each looks up the other side's rows.
    """

    this_name: str
    other_name: str
    this_table: str
    other_table: str
    this_operation: TableTableJoin
    other_operation: TableTableJoin
    this_uses: tuple[str, ...]
    other_uses: tuple[str, ...]
    store: Store | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    sends_old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition:
    """A filter, a sink, an internal topic and a source; ``mergeable`` as far as the optimiser is concerned.

    The logical node has the name of its source node. ``filter_name`` None: there is no filter (changes of grouped tables).
    """

    topic: str
    filter_name: str | None
    sink_name: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    partitions: int | None = None
    partitioner: UserFunction | None = None
    mergeable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Writes a topic, an internal one where ``is_internal``; ``topic`` is empty where an extractor names it."""

    topic: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    topic_extractor: UserFunction | None = None
    partitioner: UserFunction | None = None
    partitioning: Partitioning = Partitioning.BY_WINDOWED_KEY
    is_internal: bool = False
    written_at: str = field(default="", compare=False, repr=False)
    """File and line in the program, for messages."""


Effect = (
    StreamSource | KTableSource | GlobalSource | StateStore | Process | StreamStreamJoinNode | KTableJoin | Repartition | Sink
)


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
    copartitioned: tuple[frozenset[str], ...] = ()
    """Names of source nodes whose topics need equally many partitions."""

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
    return replace(
        graph,
        nodes={n: made for n, made in graph.nodes.items() if n != node},
        parents={n: tuple(p for p in above if p != node) for n, above in graph.parents.items() if n != node},
        priorities={n: priority for n, priority in graph.priorities.items() if n != node},
    )


# --- what is known of a table from the nodes above it ---------------------------------------------------------------


def window_close_of(graph: LogicalGraph, node: int) -> int:
    """The time from a window's end until it is closed, in ms: the longest above a table. TopologyError without windows."""
    found = _window_close(graph, node)
    if found is None:
        raise TopologyError(
            f"suppress: {graph.nodes[node].name!r} has no windows, so nothing ever closes: use windowed_by(...) before the"
            " aggregation, or Suppressed.until_time_limit"
        )
    return found


def _window_close(graph: LogicalGraph, node: int) -> int | None:
    """Each node is asked once: n joins of a table with what is made of it have 2**n ways up."""
    closes: dict[int, int | None] = {}
    for each in _with_all_above(graph, node):
        effect = graph.nodes[each].effect
        if isinstance(effect, Process) and effect.window_close_ms is not None:
            closes[each] = effect.window_close_ms
            continue
        above = [closes[parent] for parent in graph.parents[each]]
        known = [close for close in above if close is not None]
        closes[each] = max(known) if known and len(known) == len(above) else None
    return closes[node]


def _with_all_above(graph: LogicalGraph, node: int) -> list[int]:
    """The node and all above it, parents before their children, as they were made."""
    found, todo = {node}, [node]
    while todo:
        new = [parent for parent in graph.parents[todo.pop()] if parent not in found]
        found.update(new)
        todo += new
    return sorted(found)


_Question = Callable[["LogicalGraph", int], bool]


def is_versioned(graph: LogicalGraph, node: int) -> bool:
    """True if a table's changes come from versioned stores only: its own, or, where it has none, those of all above it."""
    match graph.nodes[node].effect:
        case Process(store=None, operation=TableFilter() | TableMapValues() | TableTransformValues() as derived):
            return not derived.forgets_versions and _all_above(is_versioned, graph, node)
        case _:
            return _kept_versions(graph, node, is_versioned)


def answers_as_of(graph: LogicalGraph, node: int) -> bool:
    """True if a table's rows can be looked up as of a time: as ``is_versioned``, but no table without a store forgets."""
    return _kept_versions(graph, node, answers_as_of)


def _kept_versions(graph: LogicalGraph, node: int, of_others: _Question) -> bool:
    match graph.nodes[node].effect:
        case KTableSource(store=store):
            return store.kind is StoreKind.VERSIONED
        case KTableJoin(store=store) | Process(store=Store() as store):
            return store is not None and store.kind is StoreKind.VERSIONED
        case Process(spare_store=Store() as store):
            return store.kind is StoreKind.VERSIONED
        case _:
            return _all_above(of_others, graph, node)


def _all_above(asked: _Question, graph: LogicalGraph, node: int) -> bool:
    parents = graph.parents[node]
    return bool(parents) and all(asked(graph, parent) for parent in parents)
