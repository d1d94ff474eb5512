"""Joins of a stream: with a stream in windows, with a table, with a global table.

Decides names and the order in which they are taken, stores, repartitions, and which topics must be copartitioned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemill.dsl.arguments import function_of, joiner_of, python_function, takes_both_keys
from tidemill.dsl.functions import value_serde_of
from tidemill.dsl.joined import Joined, StreamJoined, joined_as
from tidemill.dsl.old_values import looked_up
from tidemill.dsl.recorder import repartition_node
from tidemill.dsl.stores import checked_store
from tidemill.dsl.table import GlobalKTable, KTable
from tidemill.errors import TopologyError
from tidemill.topology import join_operations as op
from tidemill.topology.durations import milliseconds
from tidemill.topology.functions import JoinFunction, OfColumns, UserFunction
from tidemill.topology.logical import LogicalNode, Process, StreamStreamJoinNode, answers_as_of
from tidemill.topology.naming import numbered
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.values import Serde
from tidemill.topology.windows import JoinWindows

if TYPE_CHECKING:
    from tidemill.dsl.stream import KStream


@dataclass(frozen=True, slots=True)
class JoinKind:
    """Inner, left or outer: records without a match are forwarded for no side, the left side, both sides."""

    operator: str
    left: bool = False
    right: bool = False


_PERSISTENT = frozenset({"persistent"})
INNER, LEFT, OUTER = JoinKind("join"), JoinKind("left_join", left=True), JoinKind("outer_join", left=True, right=True)


def join_with(
    stream: KStream, kind: JoinKind, other: object, joiner: JoinFunction, windows: JoinWindows | None,
    selector: UserFunction | None, joined: StreamJoined | Joined | None, name: str | None,
) -> KStream:
    """The join of a stream with what ``other`` is; TopologyError for arguments that are for another kind of join."""
    from tidemill.dsl.stream import KStream  # streams make joins, and joins streams

    if isinstance(other, KStream):
        if selector is not None:
            raise TopologyError(f"{kind.operator}: selector is for global tables; streams are joined by their keys")
        return join_streams(stream, other, joiner, windows, joined_as(StreamJoined, joined, name, kind.operator), kind)
    if kind is OUTER or not isinstance(other, (KTable, GlobalKTable)):
        expected = "a stream" if kind is OUTER else "a stream, a table or a global table"
        if isinstance(joiner, (KStream, KTable, GlobalKTable)):
            raise TopologyError(f"{kind.operator}: the joiner stands where {expected} belongs; write (other, joiner)")
        raise TopologyError(f"{kind.operator}: a stream can be joined with {expected} only, got {other!r}")
    if windows is not None:
        raise TopologyError(
            f"{kind.operator}: windows are for joins of two streams, got {windows!r} as such; leave them out, and give the "
            "function that names a row of a global table as selector="
        )
    if isinstance(other, KTable):
        if selector is not None:
            raise TopologyError(f"{kind.operator}: selector is for global tables; rows of tables are joined by their keys")
        return join_table(stream, other, joiner, joined_as(Joined, joined, name, kind.operator), kind)
    if joined is not None:
        raise TopologyError(f"{kind.operator}: joined= is not for global tables; give name= only")
    return join_global_table(stream, other, selector, joiner, name, kind)


def join_streams(
    left: KStream, right: KStream, joiner: JoinFunction, windows: JoinWindows | None, joined: StreamJoined, kind: JoinKind
) -> KStream:
    """The stream of ``joiner(left, right)`` over all pairs of one key that ``windows`` bring together."""
    if not isinstance(windows, JoinWindows):
        if isinstance(joiner, JoinWindows):
            raise TopologyError(f"{kind.operator}: the windows stand where the joiner belongs; write (other, joiner, windows)")
        raise TopologyError(
            f"{kind.operator}: two streams are joined in windows, got {windows!r}; give JoinWindows.of_time_difference(...)"
        )
    if right.recorder is not left.recorder:
        raise TopologyError(f"{kind.operator}: the other stream belongs to another StreamsBuilder; build both with one")
    for given in (joined.this_store, joined.other_store):
        _check_given_store(given, windows)
    serde = value_serde_of(joiner)
    function, takes_key = joiner_of(joiner, kind.operator)
    name = joined.name
    left = _ready(left, None if name is None else f"{name}-left", joined.key, joined.value)
    right = _ready(right, None if name is None else f"{name}-right", joined.key, joined.other_value)
    left.recorder.copartition(left.sources | right.sources)
    names = _StreamJoinNames.taken(left, joined, kind)
    this_store = _window_store(names.this_store, joined.this_store, joined, windows, left, joined.value)
    other_store = _window_store(names.other_store, joined.other_store, joined, windows, right, joined.other_value)
    if this_store.name == other_store.name:
        raise TopologyError(f"{kind.operator}: both sides have the store {this_store.name!r}; give them different names")
    key = joined.key or (left.key_serde if left.key_serde == right.key_serde else None)
    _add_windowed(left, names.this_windowed, this_store)
    _add_windowed(right, names.other_windowed, other_store)
    effect = _joined_effect(names, this_store, other_store, windows, kind, function, takes_key)
    effect = replace(
        effect, key_serde=key, value_serde=serde,
        outer_store=_outer_store(names, joined, windows, this_store, other_store) if kind.left else None,
    )
    node = left.recorder.add(LogicalNode(name=names.merge, effect=effect), left.node, right.node)
    return replace(
        left, node=node, name=names.merge, key_serde=key, value_serde=serde, sources=left.sources | right.sources,
        join_repartition=[],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamJoinNames:
    """The names of a join of streams; all indexes are used up whether names are given or not."""

    this_windowed: str
    other_windowed: str
    this: str
    other: str
    merge: str
    this_store: str
    other_store: str
    outer_store: str

    @staticmethod
    def taken(stream: KStream, joined: StreamJoined, kind: JoinKind) -> _StreamJoinNames:
        recorder, name = stream.recorder, joined.name
        this_suffix = "-outer-this-join" if kind.right else "-this-join"
        other_suffix = "-outer-other-join" if kind.left else "-other-join"
        this_windowed = recorder.node_name("KSTREAM-WINDOWED-", name, suffix="-this-windowed")
        other_windowed = recorder.node_name("KSTREAM-WINDOWED-", name, suffix="-other-windowed")
        this_prefix = "KSTREAM-OUTERTHIS-" if kind.right else "KSTREAM-JOINTHIS-"
        this = numbered(this_prefix, recorder.take_index())
        other = numbered("KSTREAM-OUTEROTHER-" if kind.left else "KSTREAM-JOINOTHER-", recorder.take_index())
        merge = recorder.node_name("KSTREAM-MERGE-", name, suffix="-merge")
        outer_suffix = "-outer-shared-join" if kind.right else "-left-shared-join"
        base = joined.this_store.name if joined.this_store is not None else joined.store_name
        store = joined.store_name
        return _StreamJoinNames(
            this_windowed=this_windowed,
            other_windowed=other_windowed,
            this=this if name is None else name + this_suffix,
            other=other if name is None else name + other_suffix,
            merge=merge,
            this_store=(this if store is None else store + this_suffix) + "-store",
            other_store=(other if store is None else store + other_suffix) + "-store",
            outer_store=(
                recorder.generated(f"KSTREAM-OUTERSHARED-{this.removeprefix(this_prefix)}") if base is None
                else base + outer_suffix
            ) + "-store",
        )


def _ready(stream: KStream, name: str | None, key: Serde | None, value: Serde | None) -> KStream:
    """The stream, through a repartition topic if its keys were changed; named after the join, else after the stream.

    A stream that is joined several times without a name goes through one topic only.
    """
    if not stream.repartition_required:
        return stream
    prefix = stream.name if name is None else name
    key, value = key or stream.key_serde, value or stream.value_serde
    through = repartition_node(stream.recorder, prefix, key=key, value=value, mergeable=True)
    if not stream.join_repartition or prefix != stream.name:
        stream.join_repartition[:] = [stream.recorder.add(through, stream.node)]
    return replace(
        stream, node=stream.join_repartition[0], name=through.name, key_serde=key, value_serde=value,
        sources=frozenset({through.name}), repartition_required=False, join_repartition=[],
    )


def _window_store(
    name: str, given: Store | None, joined: StreamJoined, windows: JoinWindows, stream: KStream, value: Serde | None
) -> Store:
    key, value = joined.key or stream.key_serde, value or stream.value_serde
    if given is None:
        if joined.store_name is None:
            stream.recorder.generated(name)
        return Store(
            name=name, kind=StoreKind.WINDOW, key_serde=key, value_serde=value, logged=joined.logged,
            persistent=joined.persistent is not False, caching=False, changelog_config=dict(joined.changelog_config),
            retention_ms=windows.retention, window_size_ms=windows.size, retain_duplicates=True,
            left_open=_PERSISTENT if joined.persistent is None else frozenset(),
        )
    return replace(given, key_serde=given.key_serde or key, value_serde=given.value_serde or value)


def _check_given_store(given: Store | None, windows: JoinWindows) -> None:
    """A store of the program's own must keep what the windows need, and several records of one key and time."""
    if given is None:
        return
    given = checked_store(given, "StreamJoined")
    wanted = (StoreKind.WINDOW, windows.retention, windows.size, True)
    if (given.kind, given.retention_ms, given.window_size_ms, given.retain_duplicates) != wanted:
        size = f"retention={given.retention_ms}, window_size={given.window_size_ms}, retain_duplicates={given.retain_duplicates}"
        found = size if given.kind is StoreKind.WINDOW else f"a store of the kind {given.kind.value}"
        raise TopologyError(
            f"the store {given.name!r} of a join: expected Stores.window_store(..., retention={windows.retention} (before, after"
            f" and grace), window_size={windows.size}, retain_duplicates=True), got {found}"
        )


def _outer_store(
    names: _StreamJoinNames, joined: StreamJoined, windows: JoinWindows, this_store: Store, other_store: Store
) -> Store:
    """The store of records without a match yet. ``value_serde`` is the left values', ``other_value_serde`` the right ones'."""
    return Store(
        name=names.outer_store, kind=StoreKind.OUTER_JOIN, key_serde=this_store.key_serde,
        value_serde=this_store.value_serde, other_value_serde=other_store.value_serde, logged=joined.logged,
        persistent=this_store.persistent, caching=False, changelog_config=dict(joined.changelog_config),
        retention_ms=windows.retention, left_open=this_store.left_open,
    )


def _add_windowed(stream: KStream, name: str, store: Store) -> None:
    effect = Process(
        operation=op.JoinWindowed(store.name), store=store, key_serde=store.key_serde, value_serde=store.value_serde
    )
    stream.recorder.add(LogicalNode(name=name, effect=effect), stream.node)


def _joined_effect(
    names: _StreamJoinNames, this_store: Store, other_store: Store, windows: JoinWindows, kind: JoinKind,
    joiner: JoinFunction, takes_key: bool,
) -> StreamStreamJoinNode:
    outer = names.outer_store if kind.left else None

    def side(*, is_left: bool, own: Store, other: Store, goes_on: bool) -> op.StreamStreamJoin:
        return op.StreamStreamJoin(
            is_left=is_left, own_store=own.name, other_store=other.name, windows=windows, joiner=joiner, takes_key=takes_key,
            outer=goes_on, outer_store=outer,
        )

    return StreamStreamJoinNode(
        this_name=names.this, other_name=names.other, this_windowed=names.this_windowed,
        other_windowed=names.other_windowed,
        this_operation=side(is_left=True, own=this_store, other=other_store, goes_on=kind.left),
        other_operation=side(is_left=False, own=other_store, other=this_store, goes_on=kind.right),
        self_join=op.StreamSelfJoin(this_store.name, windows, joiner, takes_key),
    )


# --- tables ----------------------------------------------------------------------------------------------------------


def join_table(stream: KStream, table: KTable, joiner: JoinFunction, joined: Joined, kind: JoinKind) -> KStream:
    """The stream of ``joiner(value, row)``, with the table's row of the record's key."""
    if table.recorder is not stream.recorder:
        raise TopologyError(f"{kind.operator}: the table belongs to another StreamsBuilder; build both with one")
    serde = value_serde_of(joiner)
    function, takes_key = joiner_of(joiner, kind.operator)
    stream = _ready(stream, joined.name, joined.key, joined.value)
    recorder = stream.recorder
    sources = stream.sources | table.sources
    recorder.copartition(sources)
    name = recorder.node_name("KSTREAM-LEFTJOIN-" if kind.left else "KSTREAM-JOIN-", joined.name)
    key = joined.key or stream.key_serde
    stores = looked_up(recorder, table.node)
    grace, buffer = None, None
    if joined.grace is not None:
        grace = milliseconds(joined.grace, f"{kind.operator}: grace")
        _check_history(table, grace, stores, kind)
        buffer = Store(
            name=f"{name}-Buffer", kind=StoreKind.GRACE_BUFFER, key_serde=key, value_serde=joined.value or stream.value_serde,
            caching=False, retention_ms=grace,
        )
    operation = op.StreamTableJoin(
        table=table.name, joiner=function, takes_key=takes_key, left=kind.left, grace_ms=grace,
        buffer=None if buffer is None else buffer.name,
    )
    effect = Process(operation=operation, store=buffer, uses=stores, key_serde=key, value_serde=serde)
    node = recorder.add(LogicalNode(name=name, effect=effect), stream.node)
    return replace(
        stream, node=node, name=name, key_serde=key, value_serde=serde, sources=sources, join_repartition=[]
    )


def _check_history(table: KTable, grace_ms: int, stores: tuple[str, ...], kind: JoinKind) -> None:
    """A join with grace looks into the past: its table must be a versioned one that remembers long enough."""
    kept = {store.name: store for store in table.recorder.stores()}
    versioned = answers_as_of(table.recorder.graph, table.node)
    for store in (kept[name] for name in stores):
        if not versioned or store.kind is not StoreKind.VERSIONED or store.retention_ms is None:
            raise TopologyError(
                f"{kind.operator}: with a grace the table must be versioned, but {store.name!r} of {table.name!r} is"
                " not: give the table store=Materialized(name=..., history_retention=...)"
            )
        if store.retention_ms < grace_ms:
            raise TopologyError(
                f"{kind.operator}: the grace of {grace_ms} ms is longer than the history retention of {store.name!r},"
                f" {store.retention_ms} ms: make one of them fit the other"
            )


def join_global_table(
    stream: KStream, table: GlobalKTable, selector: UserFunction | None, joiner: JoinFunction, name: str | None,
    kind: JoinKind,
) -> KStream:
    """The stream of ``joiner(value, row)``, with the row of the key ``selector(key, value)``; the joiner may take both keys."""
    if table.recorder is not stream.recorder:
        raise TopologyError(f"{kind.operator}: the global table belongs to another StreamsBuilder; build both with one")
    if selector is None:
        raise TopologyError(f"{kind.operator}: give selector=, a function (key, value) -> key of the global table")
    function_of(selector, ("key", "value"), f"{kind.operator}: selector")
    serde = value_serde_of(joiner)
    takes_mapped_key, takes_key = takes_both_keys(joiner, kind.operator), False
    if not takes_mapped_key:
        function, takes_key = joiner_of(joiner, kind.operator)
    elif isinstance(joiner, OfColumns):
        raise TopologyError(
            f"{kind.operator}: of_columns(...) gets (left, right) or (key, left, right); for the selected key give a function of"
            " Python values, or compute it in the function again"
        )
    else:
        function = python_function(joiner, ("key", "selected", "left", "right"), kind.operator)
    operation = op.GlobalTableJoin(
        store=table.store, selector=python_function(selector, ("key", "value"), f"{kind.operator}: selector"),
        joiner=function, takes_key=takes_key, left=kind.left, takes_mapped_key=takes_mapped_key,
    )
    made = stream.recorder.node_name("KSTREAM-LEFTJOIN-", name)
    effect = Process(operation=operation, key_serde=stream.key_serde, value_serde=serde)
    node = stream.recorder.add(LogicalNode(name=made, effect=effect), stream.node)
    return replace(stream, node=node, name=made, value_serde=serde, join_repartition=[])
