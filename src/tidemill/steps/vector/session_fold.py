"""Aggregates sessions for a whole batch, key by key: the shortcut of KStreamSessionWindowAggregate.

Decides what a batch makes of the sessions of each key that it touches, with the per-record operator's rules
(``operators.session_windows``). A key's records meet only that key's sessions, so keys can be taken one after the other; but
stream time, and with it what the store still shows, moves with all records of the task. The forwarded records differ: for each
key the sessions that are gone (tombstones) and those that are new or changed, once each, in the order of their ends. A session
that came and went within the batch is not forwarded. Rows, clocks and changelog are those of ``operators.session_store``, so one
can take over from the other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.errors import SerdeError, StopError
from tidemill.ids import TaskId
from tidemill.operators.segments import LONG_MAX, Segments, pack_time
from tidemill.operators.stored_serdes import reading
from tidemill.operators.windowed_aggregation import Steps, steps_of
from tidemill.steps.rows.headers import unpacked
from tidemill.steps.rows.order import topic_of
from tidemill.steps.rows.records import Records, side_bytes
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.arrays import Longs
from tidemill.steps.vector.keyed_rows import KeyedRows, rows_of_store
from tidemill.steps.vector.record_calls import function_failed
from tidemill.steps.vector.retained_rows import IMMUTABLE, Shown, ShownRows
from tidemill.topology.operations import Aggregating, Counting, SessionAggregate
from tidemill.topology.values import Serde

_ENDS = Struct(">qq")
_SUFFIX = _ENDS.size

_Session = tuple[int, int, "int | None", object]
"""(end, start, which record of the table made it what it is, aggregate). Record None: as before the batch, and what was
remembered of it is in the aggregate's place."""
_Result = tuple[int, bool, int, bytes, "bytes | None", int]
"""A forwarded session, in this order: (end, lives, start, key, data, index of its record). Data None: a tombstone."""


@dataclass(slots=True)
class _Fold:
    """One task's batch, and how far time was at each of its records. Sessions are plain tuples: each record makes several."""

    steps: Steps
    gap: int
    segments: Segments
    rows: TaskRows
    oldest: int
    """Sessions that end before are hidden from all records of the batch."""
    shown: ShownRows
    """Remembered sessions: their aggregates, or the bytes of those that a function may change."""
    close_times: list[int]
    """A session that ends before is too old for the record."""
    shown_from: list[int]
    """A session that ends before is hidden from the record."""
    highest: int
    """The highest timestamp, which always makes a session or lengthens one."""
    decode_key: Callable[[bytes], object] | None
    """None: no function asks for keys."""
    decode: Callable[[Any], object] | None
    """Decodes a remembered aggregate; None: aggregates are remembered themselves."""
    encode: Callable[[object], bytes | None]
    values: list[object] | None
    late: int = 0
    added: int = 0
    results: list[_Result] = field(default_factory=list)

    def fold_key(self, raw: bytes, times: list[int], records: list[int], at: list[int]) -> None:
        """Adds the records of one key to its sessions: their times, numbers in the task, and numbers in the table."""
        key = None if self.decode_key is None else self.decode_key(raw)
        found = self.shown.by_key.get(raw)
        if found is None:
            found = self.shown.of(raw, self.segments)
        low = max(min(times) - self.gap, self.oldest, 0)
        if len(times) == 1 and (not found or found[-1][0] < low):
            self._add_only(key, raw, found, times[0], records[0], at[0])
            return
        encode, results = self.encode, self.results
        first = len(found)
        while first and found[first - 1][0] >= low:
            first -= 1
        before = found[first:]
        gone: dict[tuple[int, int], int] = {}
        sessions: list[_Session] = [(end, start, None, kept) for end, start, kept in before]
        for time, number, row in zip(times, records, at, strict=True):
            self._add(key, sessions, gone, time, number, row)
        del found[first:]
        for end, start, made_by, aggregate in sessions:
            if gone:
                gone.pop((end, start), None)
            if made_by is None:
                found.append((end, start, aggregate))
            else:
                data = encode(aggregate)
                results.append((end, True, start, raw, data, made_by))
                found.append((end, start, aggregate if self.decode is None else data))
        self.added += len(sessions) - len(before)
        if gone:
            existed = {(end, start) for end, start, _ in before}
            over = [(bounds, row) for bounds, row in gone.items() if bounds in existed]
            results += [(end, False, start, raw, None, row) for (end, start), row in over]

    def _add_only(self, key: object, raw: bytes, found: list[Shown], time: int, number: int, row: int) -> None:
        """A key's only record in the batch, with no session near: what ``_add`` comes to then."""
        if time < self.close_times[number]:
            self.late += 1
            return
        begin, add, _ = self.steps
        aggregate = add(key, None if self.values is None else self.values[row], begin())
        if aggregate is not None:
            data = self.encode(aggregate)
            self.results.append((time, True, time, raw, data, row))
            found.append((time, time, aggregate if self.decode is None else data))
            self.added += 1

    def _add(
        self, key: object, sessions: list[_Session], gone: dict[tuple[int, int], int], time: int, number: int, row: int
    ) -> None:
        begin, add, merge = self.steps
        gap, shown, decode = self.gap, self.shown_from[number], self.decode
        low = time - gap if time - gap > shown else shown
        latest_start = time + gap
        first = last = len(sessions)
        if sessions and sessions[-1][0] >= low:
            first = last = bisect_left(sessions, low, key=_end)
            # Those that are shown never overlap: of two, the one that ends later begins later, too.
            while last < len(sessions) and sessions[last][1] <= latest_start:
                last += 1
        start = end = time
        aggregate = begin()
        joined = sessions[first:last]
        for other_end, other_start, made_by, other in joined:
            aggregate = merge(key, aggregate, decode(other) if made_by is None and decode is not None else other)
            if other_start < start:
                start = other_start
            if other_end > end:
                end = other_end
        if end < self.close_times[number]:
            self.late += 1
            return
        aggregate = add(key, None if self.values is None else self.values[row], aggregate)
        for session in joined:
            gone[session[0], session[1]] = row
        del sessions[first:last]
        if aggregate is None:
            gone[end, start] = row
            return
        made = (end, start, row, aggregate)
        if not sessions or sessions[-1][:2] < (end, start):
            sessions.append(made)
        else:
            insort(sessions, made, key=_order)


def _end(session: _Session) -> int:
    return session[0]


def _order(session: _Session) -> tuple[int, int]:
    return session[0], session[1]


def fold_sessions(node: NodeSpec, operation: SessionAggregate, table: pa.Table, state: StepState) -> Records:
    """The records that ``node`` forwards for ``table``, its rows in the order of their ``seq``."""
    keyed = KeyedRows.of(table, node.key_serde)
    timestamps = keyed.timestamps
    values = None if isinstance(operation.aggregation, Counting) else _values(table, node.value_serde)
    out = Records.empty(headers=keyed.has_headers)
    for task, mine in keyed.of_tasks(node.subtopology, state):
        with rows_of_store(task, operation.store, state) as rows:
            fold = _fold_of(node, operation, task, rows, state, timestamps[mine], values)
            for code, times, records, at in _by_key(keyed.codes, timestamps, mine):
                try:
                    fold.fold_key(keyed.keys[code], times, records, at)
                except BaseException as problem:
                    where = " for a key whose first record in this batch is there"
                    offset, sequence = (table.column(name)[at[0]].as_py() for name in ("off", "seq"))
                    topic = topic_of(node.topics, sequence, offset)
                    raise function_failed(node, task, topic, offset, problem, where=where) from problem
            state.dropped += fold.late
            fold.results.sort()
            ids = _ids(fold.results)
            _write(fold, ids, timestamps)
            fold.segments.flush()
            fold.shown.added(fold.added, fold.segments)
        _forward(out, task.partition, fold.results, ids, table)
    return out


def _values(table: pa.Table, serde: Serde) -> list[object]:
    return [serde.deserialize(data) for data in side_bytes(table, "value", serde)]


def _fold_of(
    node: NodeSpec, operation: SessionAggregate, task: TaskId, rows: TaskRows, state: StepState, timestamps: Longs,
    values: list[object] | None,
) -> _Fold:  # fmt: skip
    """The task's fold, with its clocks at each record; the store's clock is left where the batch ends."""
    kept = state.stores[operation.store].kept
    assert kept is not None
    assert kept.value_serde is not None
    gap, grace = operation.windows.gap, operation.windows.grace
    segments = Segments(rows, kept.keeps_ms, persistent=kept.persistent, time_ordered=False, reach=kept.reaches_back_ms)
    decode, keeps_values = reading(kept.value_serde, kept.name), type(kept.value_serde) in IMMUTABLE
    shown = state.memory.get((task, kept.name))
    if shown is None:
        shown = state.memory[task, kept.name] = ShownRows(_ENDS, decode if keeps_values else bytes)
        try:
            shown.load(segments)
        except SerdeError as problem:
            raise StopError(f"task {task}: {problem}") from problem
    clock = segments.clock(node.name)
    highest = np.maximum.accumulate(timestamps) if len(timestamps) else timestamps
    stream_time = np.maximum(highest, clock.stream_time)
    observed = np.maximum(np.concatenate(([-1], highest[:-1])), segments.observed) if len(timestamps) else timestamps
    if len(timestamps):
        clock.stream_time = int(stream_time[-1])
    return _Fold(
        steps=steps_of(operation.aggregation), gap=gap, segments=segments, rows=rows, oldest=segments.oldest_shown, shown=shown,
        close_times=(stream_time - min(grace + gap, LONG_MAX)).tolist(),
        shown_from=(observed - min(segments.retention - 1, LONG_MAX)).tolist(),
        highest=int(highest[-1]) if len(timestamps) else -1,
        decode_key=node.key_serde.deserialize if isinstance(operation.aggregation, Aggregating) else None,
        decode=None if keeps_values else decode, encode=kept.value_serde.serialize, values=values,
    )  # fmt: skip


def _by_key(codes: Longs, timestamps: Longs, mine: Longs) -> Iterator[tuple[int, list[int], list[int], list[int]]]:
    """For each key: (which, the times of its records, their numbers in the task, their numbers in the table), in their order."""
    order = np.argsort(codes[mine], kind="stable")
    rows = mine[order]
    ordered = codes[rows]
    times, records, at = timestamps[rows].tolist(), order.tolist(), rows.tolist()
    begins = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist()] if len(rows) else []
    for begin, end in zip(begins, [*begins[1:], len(at)], strict=True) if begins else ():
        yield int(ordered[begin]), times[begin:end], records[begin:end], at[begin:end]


def _ids(results: list[_Result]) -> list[bytes]:
    """Keys of changelog and forwarded records: key, end and start of each session."""
    bounds = np.empty((len(results), 2), ">i8")
    bounds[:, 0], bounds[:, 1] = [result[0] for result in results], [result[2] for result in results]
    packed = bounds.tobytes()
    return [result[3] + packed[at : at + _SUFFIX] for result, at in zip(results, range(0, len(packed), _SUFFIX), strict=True)]


def _write(fold: _Fold, ids: list[bytes], timestamps: Longs) -> None:
    """Writes and logs what has changed. What has expired by the end of the batch leaves no row."""
    segments, results = fold.segments, fold.results
    segments.advance(fold.highest)
    data = [result[4] for result in results]
    times = timestamps[np.array([result[5] for result in results], np.int64)].tolist()
    fold.rows.log_many(zip(ids, data, times, repeat(()), strict=False))
    numbers = [result[0] // segments.interval for result in results]
    prefixes = {number: pack_time(number) for number in set(numbers)}
    oldest = segments.min_live
    fold.rows.put_many(
        (prefixes[number] + own_id, row)
        for number, own_id, row in zip(numbers, ids, data, strict=True)
        if number >= oldest
    )


def _forward(out: Records, partition: int, results: list[_Result], ids: list[bytes], table: pa.Table) -> None:
    causes = table.select(["off", "seq", "headers"]).take(pa.array([result[5] for result in results], pa.int64()))
    out.parts += [partition] * len(results)
    out.keys += ids
    out.values += [result[4] for result in results]
    out.timestamps += [result[0] for result in results]
    out.offsets += causes.column("off").to_pylist()
    out.sequences += causes.column("seq").to_pylist()
    if out.headers is not None:
        out.headers += [unpacked(row) for row in causes.column("headers").to_pylist()]
