"""Joins of two streams, a task's batch at once: the shortcut of KStreamKStreamJoin and the stores before it.

Decides what a batch of both sides joins and keeps, with the rules of ``operators.stream_join`` and ``operators.window_store`` and
in their order: each record meets what the other side's store shows when the record comes. What does not depend on matches
(stream times, sequences, what expires, keys of rows) is computed for all records at once; the search for matches is one loop
over records. Rows, clocks and changelog are the operators' to the byte, so that either may follow the other.

Which parts of a topology these are is decided by ``spark.plan.shortcuts``; records that wait for a match are ``join_waiting``'s.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np

from tidemill.operators.record import record_of
from tidemill.operators.segments import LONG_MAX, Segments, pack_time
from tidemill.operators.stored_serdes import reading
from tidemill.operators.stream_join import Joiner, with_key
from tidemill.steps.rows.task_rows import Headers, TaskRows
from tidemill.steps.step_spec import WindowJoin
from tidemill.steps.vector.arrays import Flags, Longs, plus
from tidemill.steps.vector.join_waiting import JoinerError, JoinResults, Waiting
from tidemill.steps.vector.retained_rows import IMMUTABLE, Shown, ShownRows, shown_order
from tidemill.topology.nodes import Store

_SUFFIX = Struct(">qi")
_SUFFIX_TYPE = np.dtype([("time", ">i8"), ("number", ">i4")])
_MANY = 8
"""Number of rows of a key from which on those of the window are found by bisection."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Records of both sides in a task's order. ``keys`` and ``rows`` (values) are as the stores write them, ``values`` decoded.

    Rows of values that the joiner may change are written here, after the joiner has seen them, as the operators do.
    """

    is_right: Flags
    timestamps: Longs
    keys: Sequence[bytes | None]
    rows: list[bytes | None]
    decoded_keys: Sequence[object]
    values: Sequence[object]
    headers: Sequence[Headers] | None


class KeptSide:
    """One side's store in a task."""

    def __init__(self, store: Store, rows: TaskRows) -> None:
        assert store.value_serde is not None
        self.rows = rows
        self.segments = Segments(rows, store.keeps_ms, persistent=store.persistent, time_ordered=False)
        decode = reading(store.value_serde, store.name)
        # An immutable value is kept as it is read; of others the bytes, to be read for each match.
        self.keeps_values = type(store.value_serde) in IMMUTABLE
        self.decode: Callable[[Any], object] = decode
        self.encode = store.value_serde.serialize
        self.shown = ShownRows(_SUFFIX, decode if self.keeps_values else bytes)
        self.shown.load(self.segments)


class JoinTask:
    """The join of one task, kept from batch to batch."""

    def __init__(self, join: WindowJoin, rows: Mapping[str, TaskRows], emit_interval_ms: int = 0) -> None:
        self._sides = (left_side, right_side) = tuple(KeptSide(side.store, rows[side.store.name]) for side in join.sides)
        self._waiting: Waiting | None = None
        if join.waiting is not None:
            self._waiting = Waiting(join, rows[join.waiting.name], (left_side.segments, right_side.segments), emit_interval_ms)
        left = join.sides[0].operation
        windows = left.windows
        self._nodes = tuple(side.node for side in join.sides)
        self._windowed = tuple(side.windowed for side in join.sides)
        self._reach = ((windows.before, windows.after), (windows.after, windows.before))
        self._joiner: Joiner = with_key(left.joiner, left.takes_key)
        self._write, self._target = join.value_serde.serialize, join.targets[0]

    def close(self) -> None:
        """Does nothing: a join has no resources."""

    def run(self, given: Arrivals, now_ms: int = 0) -> JoinResults:
        """Joins a batch, and writes it to the stores. ``now_ms``: the wall clock.

        Raises:
            JoinerError: the joiner failed.
        """
        made = JoinResults()
        if not len(given.timestamps):
            return made
        has_key, has_value = _are_there(given.keys), _are_there(given.values)
        joins = has_key & has_value
        puts = [
            _put(kept, given.timestamps, has_key & (given.is_right == which), has_value)
            for which, kept in enumerate(self._sides)
        ]
        made.dropped = sum(put.refused for put in puts)
        if self._waiting is None:
            made.dropped += int(np.count_nonzero(~joins))
            self._match(given, joins, self._seen(given, puts), made)
        else:
            self._match_or_wait(self._waiting.begin(made, now_ms), given, self._seen(given, puts))
            self._waiting.flush()
        for kept, put in zip(self._sides, puts, strict=True):
            _write(kept, put, given)
        return made

    def _seen(self, given: Arrivals, puts: Sequence[_Put]) -> _Seen:
        times = given.timestamps
        earlier = np.where(given.is_right, self._reach[1][0], self._reach[0][0])
        later = np.where(given.is_right, self._reach[1][1], self._reach[0][1])
        shown_from = np.where(given.is_right, puts[0].shown_from, puts[1].shown_from)
        lows = np.maximum(np.maximum(plus(times, -earlier), shown_from), 0).tolist()
        for at in np.flatnonzero((earlier < 0) & (times > LONG_MAX + earlier)).tolist():
            lows[at] = LONG_MAX + 1  # its window begins after the end of time: it has no records
        return _Seen(
            which=given.is_right.tolist(),
            times=times.tolist(),
            lows=lows,
            highs=np.maximum(plus(times, later), 0).tolist(),
            live=(puts[0].live | puts[1].live).tolist(),
            numbers=(puts[0].numbers + puts[1].numbers).tolist(),
        )

    def _match(self, given: Arrivals, joins: Flags, seen: _Seen, made: JoinResults) -> None:
        """Finds for each record what the other side shows, and shows the record to those that come after it."""
        left, right = self._sides
        lows, highs, live, numbers, which, stamp_of = seen.lows, seen.highs, seen.live, seen.numbers, seen.which, seen.times
        of = left.shown.by_key, right.shown.by_key
        complete = left.shown.is_complete, right.shown.is_complete
        keys: Sequence[Any] = given.keys
        values, rows, decoded = given.values, given.rows, given.decoded_keys
        joiner, causes, results, stamps = self._joiner, made.causes, made.values, made.timestamps
        keeps, reads = (left.keeps_values, right.keeps_values), (left.decode, right.decode)
        sides, nodes, write, target = self._sides, self._nodes, self._write, self._target
        for at in np.flatnonzero(joins).tolist():
            is_right, key, time = which[at], keys[at], stamp_of[at]
            other = not is_right
            found = of[other].get(key)
            if found is None and not complete[other]:
                found = sides[other].shown.of(key, sides[other].segments)
            if found:
                low, high = lows[at], highs[at]
                for other_time, _, held in _within(found, low, high):
                    if low <= other_time <= high:
                        node = nodes[is_right]
                        try:
                            theirs, mine = held if keeps[other] else reads[other](held), values[at]
                            result = joiner(decoded[at], theirs, mine) if is_right else joiner(decoded[at], mine, theirs)
                            node = target
                            results.append(write(result))
                        except BaseException as problem:
                            raise JoinerError(node, at) from problem
                        causes.append(at)
                        stamps.append(time if time > other_time else other_time)
            if not keeps[is_right]:
                self._write_value(given, at, is_right)
            if live[at]:
                self._show(is_right, key, (time, numbers[at], values[at] if keeps[is_right] else rows[at]))

    def _match_or_wait(self, waiting: Waiting, given: Arrivals, seen: _Seen) -> None:
        """Like ``_match``, for joins that forward records without a match once their windows are closed."""
        left, right = self._sides
        lows, highs, live, numbers = seen.lows, seen.highs, seen.live, seen.numbers
        of = left.shown.by_key, right.shown.by_key
        complete = left.shown.is_complete, right.shown.is_complete
        keys, values, decoded, headers = given.keys, given.values, given.decoded_keys, given.headers
        keeps, reads = (left.keeps_values, right.keeps_values), (left.decode, right.decode)
        for at, (is_right, time) in enumerate(zip(seen.which, seen.times, strict=True)):
            key, value, other = keys[at], values[at], not is_right
            record = record_of((decoded[at], value, time, () if headers is None else headers[at]))
            try:
                if not waiting.takes(record, at, is_right, has_key=key is not None):
                    continue
                assert key is not None
                found = of[other].get(key)
                if found is None and not complete[other]:
                    found = self._sides[other].shown.of(key, self._sides[other].segments)
                low, high, has_match = lows[at], highs[at], False
                for other_time, _, held in _within(found, low, high) if found else ():
                    if low <= other_time <= high:
                        waiting.matched(record, is_right, key, other_time, held if keeps[other] else reads[other](held))
                        has_match = True
                if not has_match:
                    waiting.found_nothing(record, is_right, high)
            except JoinerError:
                raise
            except BaseException as problem:
                raise JoinerError(self._nodes[is_right], at) from problem
            if not keeps[is_right]:
                self._write_value(given, at, is_right)
            if live[at]:
                self._show(is_right, key, (time, numbers[at], value if keeps[is_right] else given.rows[at]))

    def _show(self, is_right: bool, key: bytes, row: Shown) -> None:
        """Shows a record to those of the other side that come after it."""
        side = self._sides[is_right]
        own = side.shown.by_key.get(key)
        if own is None:
            if side.shown.is_complete:
                side.shown.by_key[key] = [row]
                return
            own = side.shown.of(key, side.segments)
        if not own or own[-1] < row:
            own.append(row)
        else:
            insort(own, row, key=shown_order)

    def _write_value(self, given: Arrivals, at: int, is_right: bool) -> None:
        try:
            given.rows[at] = self._sides[is_right].encode(given.values[at])
        except BaseException as problem:
            raise JoinerError(self._windowed[is_right], at) from problem


def _are_there(data: Sequence[object]) -> Flags:
    if None not in data:
        return np.ones(len(data), np.bool_)
    return np.fromiter((one is not None for one in data), np.bool_, len(data))


def _within(found: list[Shown], low: int, high: int) -> list[Shown]:
    """Few rows as they are, of many those of the window."""
    if len(found) <= _MANY:
        return found
    return found[bisect_left(found, (low,)) : bisect_left(found, (high + 1,))]


@dataclass(frozen=True, slots=True)
class _Seen:
    """For each record: side, time, range of times that it joins, whether its store takes it, and its number there."""

    which: list[bool]
    times: list[int]
    lows: list[int]
    highs: list[int]
    live: list[bool]
    numbers: list[int]


@dataclass(frozen=True, slots=True)
class _Put:
    """Rows that a batch puts into one side's store; columns over all arrivals, zero or false where a record is the other side's.

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


def _put(kept: KeptSide, times: Longs, puts: Flags, has_value: Flags) -> _Put:
    segments, retention = kept.segments, min(kept.segments.retention, LONG_MAX)
    moves = puts if segments.is_exact else puts & has_value
    observed = np.maximum(np.maximum.accumulate(np.where(moves, times, -1)), segments.observed)
    if segments.is_exact:
        in_time = times > observed - retention
    else:
        oldest = np.maximum(observed - retention, 0) // segments.interval
        in_time = times // segments.interval >= np.maximum(oldest, segments.min_live)
    count = np.cumsum(puts)
    numbers = np.where(puts, (segments.sequence + count) & 0x7FFFFFFF, 0)
    lag = min(segments.observed - segments.oldest_shown, LONG_MAX)
    return _Put(
        puts=puts, live=puts & has_value & in_time, shown_from=plus(observed, -lag), numbers=numbers, observed=int(observed[-1]),
        sequence=(segments.sequence + int(count[-1])) & 0x7FFFFFFF, refused=int(np.count_nonzero(moves & ~in_time)),
    )  # fmt: skip


def _write(kept: KeptSide, put: _Put, given: Arrivals) -> None:
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
