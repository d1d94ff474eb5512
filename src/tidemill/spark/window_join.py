"""Inner joins of two streams, a task's batch at once: the shortcut of KStreamKStreamJoin and the stores before it.

Decides what a batch of both sides joins and keeps, with the rules of ``operators.stream_join`` and ``operators.window_store`` and
in their order: each record meets what the other side's store shows when the record comes. What does not depend on matches
(stream times, sequences, what expires, keys of rows) is computed for all records at once; the search for matches is one loop
over records. Rows, clocks and changelog are the operators' to the byte, so that either may follow the other.

Leaves to the operators all parts of a topology that are more than sources, one such join, and sinks or columns below it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.dsl.serdes import BooleanSerde, BytesSerde, StringSerde, WholeNumberSerde
from tidemill.operators.segments import DAY_MS, Segments, pack_time
from tidemill.operators.stream_join import Joiner, with_key
from tidemill.spark.shown_rows import IMMUTABLE, Shown, ShownRows
from tidemill.spark.step_spec import GraphEntry, GraphSpec
from tidemill.spark.task_rows import Headers, TaskRows
from tidemill.topology.nodes import ProcessorNode, Serde, SinkNode, SourceNode, Store, StoreKind
from tidemill.topology.operations import JoinWindowed, PassThrough, StreamStreamJoin

_SUFFIX = Struct(">qi")
_SUFFIX_TYPE = np.dtype([("time", ">i8"), ("number", ">i4")])
_MANY = 8
"""From so many rows of a key on, those of the window are looked for by bisection."""
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_ONE_FORM = (StringSerde, BytesSerde, WholeNumberSerde, BooleanSerde)


def writes_as_read(read: Any, written: Any) -> bool:
    """Whether ``written`` gives back the very bytes that ``read`` could read (of text: where they are UTF-8)."""
    return isinstance(read, _ONE_FORM) and read == written


@dataclass(frozen=True, slots=True)
class JoinSide:
    """The source whose records enter this side, the nodes that keep and join them, their store."""

    source: str
    windowed: str
    node: str
    operation: StreamStreamJoin
    store: Store


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """A part of the topology that ``JoinTask`` can run: left, then right. ``targets``: where its results go, sinks or columns,
    which all read ``value_serde``."""

    sides: tuple[JoinSide, JoinSide]
    targets: tuple[str, ...]
    value_serde: Serde


def window_join_of(spec: GraphSpec) -> WindowJoin | None:
    """The join that is all of ``spec``; None if it is something else, or has more to it."""
    topology = spec.topology
    nodes = topology.nodes
    sides: dict[bool, JoinSide] = {}
    below: set[tuple[str, ...]] = set()
    for entry in spec.entries.values():
        path, name = [nodes[entry.node]], entry.node
        while len(path) < 3:
            children = topology.children(name)
            if len(children) != 1:
                return None
            name = children[0]
            path.append(nodes[name])
        source, windowed, join = path
        if not isinstance(source, SourceNode) or not isinstance(windowed, ProcessorNode) or not isinstance(join, ProcessorNode):
            return None
        kept, operation = windowed.operation, join.operation
        if not isinstance(kept, JoinWindowed) or not isinstance(operation, StreamStreamJoin):
            return None
        store = topology.stores[kept.store]
        if operation.outer or operation.outer_store is not None or not _keeps_what_comes(store, entry):
            return None
        sides[operation.is_left] = JoinSide(entry.node, windowed.name, name, operation, store)
        below.add(topology.children(name))
    if len(spec.entries) != 2 or len(sides) != 2 or len(below) != 1:
        return None
    targets = _targets(spec, below.pop())
    if not targets or len(nodes) != 2 * 3 + 1 + len(targets):
        return None
    serdes = [_value_serde(spec, target) for target in targets]
    if any(serde != serdes[0] for serde in serdes):
        return None
    return WindowJoin((sides[True], sides[False]), targets, serdes[0])


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
    """What the node that merges both sides forwards to, if these are sinks of one topic or nodes of columns."""
    topology = spec.topology
    if len(below) != 1:
        return None
    merge = topology.nodes[below[0]]
    if not isinstance(merge, ProcessorNode) or not isinstance(merge.operation, PassThrough) or below[0] not in spec.inside:
        return None
    targets = topology.children(below[0])
    for name in targets:
        node = topology.nodes[name]
        if name in spec.placed_sinks or (isinstance(node, SinkNode) and node.topic_extractor is not None):
            return None
        if not isinstance(node, SinkNode) and name not in spec.exits:
            return None
    return targets


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Records of both sides in a task's order. ``keys`` and ``rows`` (values) are as the stores write them, ``values`` decoded.

    Rows of values that the joiner may change are written here, after the joiner has seen them, as the operators do.
    """

    is_right: Flags
    timestamps: Longs
    keys: Sequence[bytes | None]
    rows: list[bytes | None]
    decoded_keys: Sequence[Any]
    values: Sequence[Any]
    headers: Sequence[Headers] | None


@dataclass(slots=True)
class Joined:
    """What was joined: which record of the arrivals caused it, the result as it is sent, its timestamp."""

    causes: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    dropped: int = 0


class JoinerError(Exception):
    """The joiner failed, or its result or a value that it has changed can't be written; the cause says how, ``node`` where."""

    def __init__(self, node: str, at: int) -> None:
        super().__init__(node, at)
        self.node, self.at = node, at


class _Kept:
    """One side's store in a task."""

    def __init__(self, store: Store, rows: TaskRows) -> None:
        assert store.value_serde is not None
        self.rows = rows
        self.segments = Segments(
            rows, DAY_MS if store.retention_ms is None else store.retention_ms, persistent=store.persistent, time_ordered=False
        )
        decode = store.value_serde.deserialize
        # A value that nobody can change is kept as it is read; of others the bytes, to be read for each match.
        self.keeps_values = isinstance(store.value_serde, IMMUTABLE)
        self.decode, self.encode = decode, store.value_serde.serialize
        self.shown = ShownRows(_SUFFIX, decode if self.keeps_values else bytes)
        self.shown.load(self.segments)


class JoinTask:
    """The join of one task, kept from batch to batch."""

    def __init__(self, join: WindowJoin, rows: Mapping[str, TaskRows]) -> None:
        self._sides = tuple(_Kept(side.store, rows[side.store.name]) for side in join.sides)
        left = join.sides[0].operation
        windows = left.windows
        self._nodes = tuple(side.node for side in join.sides)
        self._windowed = tuple(side.windowed for side in join.sides)
        self._reach = ((windows.before, windows.after), (windows.after, windows.before))
        self._joiner: Joiner = with_key(left.joiner, left.takes_key)
        self._write, self._target = join.value_serde.serialize, join.targets[0]

    def close(self) -> None:
        """Nothing is held that has to be let go."""

    def run(self, given: Arrivals) -> Joined:
        """Joins a batch, and writes it to the stores.

        Raises:
            JoinerError: the joiner failed.
        """
        made = Joined()
        if not len(given.timestamps):
            return made
        has_key, has_value = _are_there(given.keys), _are_there(given.values)
        joins = has_key & has_value
        puts = [
            _put(kept, given.timestamps, has_key & (given.is_right == which), has_value)
            for which, kept in enumerate(self._sides)
        ]
        made.dropped = int(np.count_nonzero(~joins)) + sum(put.refused for put in puts)
        self._match(given, joins, puts, made)
        for kept, put in zip(self._sides, puts, strict=True):
            _write(kept, put, given)
        return made

    def _match(self, given: Arrivals, joins: Flags, puts: Sequence[_Put], made: Joined) -> None:
        """Finds for each record what the other side shows, and shows the record to those that come after it."""
        left, right = self._sides
        times = given.timestamps
        earlier = np.where(given.is_right, self._reach[1][0], self._reach[0][0])
        later = np.where(given.is_right, self._reach[1][1], self._reach[0][1])
        shown_from = np.where(given.is_right, puts[0].shown_from, puts[1].shown_from)
        lows = np.maximum(np.maximum(times - earlier, shown_from), 0).tolist()
        highs = np.maximum(times + later, 0).tolist()
        live = (puts[0].live | puts[1].live).tolist()
        numbers = (puts[0].numbers + puts[1].numbers).tolist()
        of = left.shown.by_key, right.shown.by_key
        complete = left.shown.is_complete, right.shown.is_complete
        keys: Sequence[Any] = given.keys
        values, rows, decoded = given.values, given.rows, given.decoded_keys
        joiner, causes, results, stamps = self._joiner, made.causes, made.values, made.timestamps
        keeps, reads = (left.keeps_values, right.keeps_values), (left.decode, right.decode)
        sides, nodes, write, target = self._sides, self._nodes, self._write, self._target
        which, stamp_of = given.is_right.tolist(), times.tolist()
        for at in np.flatnonzero(joins).tolist():
            is_right, key, time = which[at], keys[at], stamp_of[at]
            other = not is_right
            found = of[other].get(key)
            if found is None and not complete[other]:
                found = sides[other].shown.of(key, sides[other].segments)
            if found:
                low, high = lows[at], highs[at]
                if len(found) > _MANY:
                    found = found[bisect_left(found, (low,)) : bisect_left(found, (high + 1,))]
                for other_time, _, held in found:
                    if low <= other_time <= high:
                        node = nodes[is_right]
                        try:
                            theirs, mine = held if keeps[other] else reads[other](held), values[at]
                            result = joiner(decoded[at], theirs, mine) if is_right else joiner(decoded[at], mine, theirs)
                            node = target
                            results.append(write(result))
                        except Exception as problem:
                            raise JoinerError(node, at) from problem
                        causes.append(at)
                        stamps.append(time if time > other_time else other_time)
            if not keeps[is_right]:
                self._write_value(given, at, is_right)
            if live[at]:
                own = of[is_right].get(key)
                row = time, numbers[at], values[at] if keeps[is_right] else rows[at]
                if own is None:
                    if complete[is_right]:
                        of[is_right][key] = [row]
                        continue
                    own = sides[is_right].shown.of(key, sides[is_right].segments)
                if not own or own[-1] < row:
                    own.append(row)
                else:
                    insort(own, row, key=_order)

    def _write_value(self, given: Arrivals, at: int, is_right: bool) -> None:
        try:
            given.rows[at] = self._sides[is_right].encode(given.values[at])
        except Exception as problem:
            raise JoinerError(self._windowed[is_right], at) from problem


def _are_there(data: Sequence[Any]) -> Flags:
    if None not in data:
        return np.ones(len(data), np.bool_)
    return np.fromiter((one is not None for one in data), np.bool_, len(data))


def _order(shown: Shown) -> tuple[int, int]:
    return shown[0], shown[1]


@dataclass(frozen=True, slots=True)
class _Put:
    """What a batch puts into one side's store; columns over all arrivals, zero or false where a record is the other side's.

    ``puts``: has a key, so that the store is asked; ``live``: the store takes it; ``shown_from``: what the store shows when the
    record comes; ``numbers`` tell rows of one time apart. ``observed``: how far the store's time is in the end.
    """

    puts: Flags
    live: Flags
    shown_from: Longs
    numbers: Longs
    observed: int
    sequence: int
    refused: int


def _put(kept: _Kept, times: Longs, puts: Flags, has_value: Flags) -> _Put:
    segments = kept.segments
    moves = puts if segments.is_exact else puts & has_value
    observed = np.maximum(np.maximum.accumulate(np.where(moves, times, -1)), segments.observed)
    if segments.is_exact:
        in_time = times > observed - segments.retention
    else:
        oldest = np.maximum(observed - segments.retention, 0) // segments.interval
        in_time = times // segments.interval >= np.maximum(oldest, segments.min_live)
    count = np.cumsum(puts)
    numbers = np.where(puts, (segments.sequence + count) & 0x7FFFFFFF, 0)
    lag = segments.observed - segments.oldest_shown
    return _Put(
        puts=puts, live=puts & has_value & in_time, shown_from=observed - lag, numbers=numbers, observed=int(observed[-1]),
        sequence=(segments.sequence + int(count[-1])) & 0x7FFFFFFF, refused=int(np.count_nonzero(moves & ~in_time)),
    )  # fmt: skip


def _write(kept: _Kept, put: _Put, given: Arrivals) -> None:
    """The store's rows and changelog records; what has expired by the end of the batch leaves no row."""
    segments, keys, rows = kept.segments, given.keys, given.rows
    segments.sequence = put.sequence
    segments.advance(put.observed)
    which = np.flatnonzero(put.puts)
    times = given.timestamps[which]
    suffixes = np.empty(len(which), _SUFFIX_TYPE)
    suffixes["time"], suffixes["number"] = times, put.numbers[which]
    packed, size = suffixes.tobytes(), _SUFFIX.size
    numbers = which.tolist()
    log_keys = [
        keys[at] + packed[begin : begin + size]
        for at, begin in zip(numbers, range(0, len(packed), size), strict=True)
    ]
    data = [rows[at] for at in numbers]
    headers: Sequence[Headers] = [()] * len(which) if given.headers is None else [given.headers[at] for at in numbers]
    kept.rows.log_many(zip(log_keys, data, times.tolist(), headers, strict=True))
    segment = times // segments.interval
    stays = put.live[which] & (segment >= segments.min_live)
    prefix_of = {number: pack_time(number) for number in np.unique(segment).tolist()}
    prefixes = [prefix_of[number] for number in segment.tolist()]
    kept.rows.put_many(
        (prefix + log_key, row)
        for prefix, log_key, row, is_kept in zip(prefixes, log_keys, data, stays.tolist(), strict=True)
        if is_kept
    )
    segments.flush()
    kept.shown.added(int(np.count_nonzero(stays)), segments)
