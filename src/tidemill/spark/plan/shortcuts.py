"""Nodes that use the vectorised shortcut of their operation, by their place in the topology.

Decides by the topology around a node. Three shortcuts take nodes out of their part into a vectorised step: *groups*,
neighbours that could be a part (``graph_parts``), but of which every node that needs Python values has one. A shortcut passes on
the last result of a key and a batch, as Kafka Streams' record cache does, so it is taken only where nothing below counts or
keeps the updates. The fourth runs a part that is one join of two streams and nothing else. How a shortcut works is
``steps.vector``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemill.dsl.serdes import Serdes
from tidemill.operators.operation_table import Shortcut, entry_of, has_record_cache, kept_store, tables_of
from tidemill.steps.step_spec import GraphEntry, GraphSpec, JoinSide, WindowJoin
from tidemill.steps.vector.retained_rows import IMMUTABLE
from tidemill.topology.join_operations import JoinWindowed, StreamStreamJoin, StreamTableJoin
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Store, StoreKind, Topology
from tidemill.topology.operations import Counting, PassThrough, SessionAggregate, TableSource, TableToStream, WindowAggregate
from tidemill.topology.values import Serde
from tidemill.topology.windows import TimeWindows


def has_shortcut(topology: Topology, name: str) -> bool:
    """True if a batch of the node's records can be handled at once, in a step of its own."""
    node = topology.nodes[name]
    if not isinstance(node, ProcessorNode):
        return False
    fits = FITS.get(entry_of(node.operation).shortcut)
    return fits is not None and fits(topology, node)


def _counts_windows(topology: Topology, node: ProcessorNode) -> bool:
    match node.operation:
        case WindowAggregate(windows=TimeWindows(), aggregation=Counting(), emit_final=False):
            return keeps_longs(topology, node) and _is_seen_by_streams(topology, node)
        case _:
            return False


def _folds_sessions(topology: Topology, node: ProcessorNode) -> bool:
    match node.operation:
        case SessionAggregate(emit_final=False, store=kept):
            return not topology.stores[kept].logs_headers and _is_seen_by_streams(topology, node)
        case _:
            return False


def _looks_up(topology: Topology, node: ProcessorNode) -> bool:
    return lookup_store(topology, node) is not None


FITS: Mapping[Shortcut | None, Callable[[Topology, ProcessorNode], bool]] = {
    Shortcut.WINDOW_COUNT: _counts_windows,
    Shortcut.SESSION_FOLD: _folds_sessions,
    Shortcut.TABLE_LOOKUP: _looks_up,
}
"""True if a node may leave its part for a step."""


def lookup_store(topology: Topology, node: ProcessorNode) -> str | None:
    """The store in which ``steps.vector.table_lookup`` can look up for a join with a table; None if the join must run record by
    record.

    The table must be kept as it comes from its topic: what a batch makes of an aggregate or a versioned table is not known
    record by record. Nor may a record be both stream and table: the graph decides which comes first.
    """
    match node.operation:
        case StreamTableJoin(table=table, grace_ms=None):
            pass
        case _:
            return None
    if not _sources(topology, node.name).isdisjoint(_sources(topology, table)):
        return None
    match topology.nodes[table]:
        case ProcessorNode(operation=TableSource(store=str(kept))):
            store = topology.stores[kept]
            return kept if store.kind is StoreKind.TIMESTAMPED_KEY_VALUE and not store.with_headers else None
        case _:
            return None


def forwards_last_changes(topology: Topology, table: ProcessorNode) -> bool:
    """True if a step may forward the last change of each row only, as a record cache does. A join that looks rows up takes the
    changes of a batch from what the table has forwarded, and needs each."""
    if not has_record_cache(topology, table.name):
        return False
    nodes = (node for node in topology.nodes.values() if isinstance(node, ProcessorNode))
    return not any(table.name in tables_of(node.operation) for node in nodes)


def _sources(topology: Topology, name: str) -> set[str]:
    """The sources that a node's records come from."""
    parents = topology.parents[name]
    return set().union(*(_sources(topology, parent) for parent in parents)) if parents else {name}


def tables_first(topology: Topology, names: tuple[str, ...]) -> list[str]:
    """``names``, parents before children, in an order in which tables also come before what looks up their rows in a step."""
    below: set[str] = set()
    for name in names:
        node = topology.nodes[name]
        looks = isinstance(node, ProcessorNode) and lookup_store(topology, node) is not None
        if looks or any(parent in below for parent in topology.parents[name]):
            below.add(name)
    return [*(name for name in names if name not in below), *(name for name in names if name in below)]


def keeps_longs(topology: Topology, node: ProcessorNode) -> bool:
    """True if a step may keep counts as it does, in eight bytes: a program may give their store another serde of numbers."""
    store = kept_store(node.operation)
    return store is not None and topology.stores[store].value_serde in (None, Serdes.long())


def _is_seen_by_streams(topology: Topology, node: ProcessorNode) -> bool:
    """True if the serde of the results' keys is known, and below are only streams that may get the last changes."""
    children = [topology.nodes[child] for child in topology.children(node.name)]
    are_streams = all(isinstance(c, ProcessorNode) and isinstance(c.operation, TableToStream) for c in children)
    return node.key_serde is not None and are_streams and has_record_cache(topology, node.name)


# --- a part that is one join of two streams ----------------------------------------------------------------------------


def window_join_of(spec: GraphSpec) -> WindowJoin | None:
    """The join that is all of ``spec``; None if it is something else, or has more to it: more than sources, one join, and sinks
    or columns below it, stores of other serdes than the records', keys that a function may change, a wrapped processor."""
    topology = spec.topology
    if any(isinstance(node, ProcessorNode) and node.wrapped is not None for node in topology.nodes.values()):
        return None
    sides: dict[bool, JoinSide] = {}
    below: set[tuple[str, ...]] = set()
    waiting: set[str | None] = set()
    for entry in spec.entries.values():
        side = _side(topology, entry)
        if side is None:
            return None
        waiting.add(side.operation.outer_store)
        sides[side.operation.is_left] = side
        below.add(topology.children(side.node))
    if len(spec.entries) != 2 or len(sides) != 2 or len(below) != 1 or len(waiting) != 1:
        return None
    targets = _targets(spec, below.pop())
    if not targets or len(topology.nodes) != 2 * 3 + 1 + len(targets):
        return None
    serdes = [_value_serde(spec, target) for target in targets]
    if any(serde != serdes[0] for serde in serdes):
        return None
    [outer] = waiting
    return WindowJoin((sides[True], sides[False]), None if outer is None else topology.stores[outer], targets, serdes[0])


def _side(topology: Topology, entry: GraphEntry) -> JoinSide | None:
    """The nodes below an entry: its records are kept, then joined."""
    path = [entry.node]
    while len(path) < 3:
        children = topology.children(path[-1])
        if len(children) != 1:
            return None
        path += children
    match [topology.nodes[name] for name in path]:
        case [
            SourceNode(),
            ProcessorNode(operation=JoinWindowed(store=kept)) as windowed,
            ProcessorNode(operation=StreamStreamJoin() as join),
        ] if _keeps_what_comes(topology.stores[kept], entry):
            return JoinSide(entry.node, windowed.name, path[-1], join, topology.stores[kept])
        case _:
            return None


def _keeps_what_comes(store: Store, entry: GraphEntry) -> bool:
    is_plain = store.kind is StoreKind.WINDOW and store.retain_duplicates and not store.time_ordered and not store.with_headers
    same = store.key_serde == entry.key_serde and store.value_serde == entry.value_serde
    return is_plain and same and isinstance(store.key_serde, IMMUTABLE)


def _value_serde(spec: GraphSpec, target: str) -> Serde:
    node = spec.topology.nodes[target]
    serde = node.value_serde if isinstance(node, SinkNode) else spec.exits[target].value_serde
    assert serde is not None
    return serde


def _targets(spec: GraphSpec, below: tuple[str, ...]) -> tuple[str, ...] | None:
    """The children of the node that merges both sides, if these are sinks of one topic or nodes of columns."""
    topology = spec.topology
    if len(below) != 1:
        return None
    merge = topology.nodes[below[0]]
    if not isinstance(merge, ProcessorNode) or not isinstance(merge.operation, PassThrough) or below[0] not in spec.inside:
        return None
    targets = topology.children(below[0])
    for name in targets:
        node = topology.nodes[name]
        if name in spec.choosing_sinks or (isinstance(node, SinkNode) and node.topic_extractor is not None):
            return None
        if not isinstance(node, SinkNode) and name not in spec.exits:
            return None
    return targets
