"""Aggregates sessions for a whole batch, key by key: the shortcut of KStreamSessionWindowAggregate.

Decides what a batch makes of the sessions of each key that it touches, with the per-record operator's rules
(``operators.session_windows``): a key's records meet only that key's sessions, so that keys can be taken one after the other,
while stream time and what the store still shows move with all records of the task. What differs is what goes on: of each key
the sessions that are gone (tombstones) and those that are new or changed, once, in the order of their ends; a session that
came and went within the batch is never seen. Rows, clocks and changelog are those of ``operators.session_store``, so that
either may follow the other.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidemill.errors import RecordError, SerdeError
from tidemill.ids import TaskId
from tidemill.operators.segments import Segments, pack_time
from tidemill.operators.windowed_aggregation import Steps, steps_of
from tidemill.spark.records import Records, side_bytes
from tidemill.spark.state_step import StepState
from tidemill.spark.step_spec import NodeSpec
from tidemill.spark.task_rows import TaskRows, opened
from tidemill.spark.window_count import Longs, coded_keys, longs
from tidemill.topology.operations import Counting, SessionAggregate

_ENDS = Struct(">qq")
_SUFFIX = _ENDS.size


def folds_sessions(operation: object) -> bool:
    """Whether ``fold_sessions`` can stand in for the operation."""
    return isinstance(operation, SessionAggregate) and not operation.emit_final


class _Session(NamedTuple):
    """``at``: which record of the table made it what it is; None: it is as it was before the batch."""

    end: int
    start: int
    at: int | None
    aggregate: Any


class _Result(NamedTuple):
    """A session as it goes on; ``data`` None: it is gone."""

    end: int
    lives: bool
    start: int
    key: bytes
    data: bytes | None
    at: int
    is_kept: bool = True
    """False: a store in memory refuses it as too old, but it goes on and is logged, as with the operator."""


@dataclass(slots=True)
class _Fold:
    """One task's batch: how far time was when each record came."""

    node: NodeSpec
    steps: Steps
    gap: int
    segments: Segments
    close_times: list[int]
    """A session that ends before is too old for the record."""
    shown_from: list[int]
    """A session that ends before is hidden from the record."""
    highest: int
    """The highest timestamp, which always makes a session or lengthens one."""
    decode: Any
    encode: Any
    values: list[Any] | None
    late: int = 0
    results: list[_Result] = field(default_factory=list)

    def key(self, raw: bytes, times: list[int], records: list[int], at: list[int]) -> None:
        """Takes the records of one key: their times, numbers in the task, and numbers in the table."""
        key = self.node.key_serde.deserialize(raw)
        before = self._held(raw, min(times) - self.gap)
        gone: dict[tuple[int, int], int] = {}
        sessions = list(before)
        for time, number, row in zip(times, records, at, strict=True):
            self._add(key, raw, sessions, gone, time, number, row)
        existed = {(session.end, session.start) for session in before}
        for session in sessions:
            gone.pop((session.end, session.start), None)
            if session.at is not None:
                data = self.encode(session.aggregate)
                self.results.append(_Result(session.end, True, session.start, raw, data, session.at))
        for (end, start), row in gone.items():
            if (end, start) in existed:
                self.results.append(_Result(end, False, start, raw, None, row))

    def _add(
        self, key: Any, raw: bytes, sessions: list[_Session], gone: dict[tuple[int, int], int], time: int, number: int, row: int
    ) -> None:
        begin, add, merge = self.steps
        gap, shown = self.gap, self.shown_from[number]
        low = time - gap if time - gap > shown else shown
        first = last = len(sessions)
        while first and sessions[first - 1].end >= low:
            first -= 1
        while last > first and sessions[last - 1].start > time + gap:
            last -= 1
        start = end = time
        aggregate = begin()
        joined = [session for session in sessions[first:last] if session.start <= time + gap]
        for session in joined:
            aggregate = merge(key, aggregate, session.aggregate)
            start, end = min(start, session.start), max(end, session.end)
        if end < self.close_times[number]:
            self.late += 1
            return
        aggregate = add(key, None if self.values is None else self.values[row], aggregate)
        if self.segments.is_exact and end < shown:
            self.late += 1
            if aggregate is not None:
                self.results.append(_Result(end, True, start, raw, self.encode(aggregate), row, is_kept=False))
            return
        for session in joined:
            gone[session.end, session.start] = row
            sessions.remove(session)
        if aggregate is None:
            gone[end, start] = row
        else:
            insort(sessions, _Session(end, start, row, aggregate), key=_order)

    def _held(self, raw: bytes, since: int) -> list[_Session]:
        """What the store holds of a key that ends at ``since`` or later."""
        segments, decode = self.segments, self.decode
        low, length = max(since, segments.oldest_shown, 0), 8 + len(raw) + _SUFFIX
        found = []
        for segment in range(low // segments.interval, segments.observed // segments.interval + 1):
            prefix = pack_time(segment) + raw
            for row_key, row in segments.rows.scan(prefix + pack_time(low), prefix + b"\x80"):
                if len(row_key) == length:
                    end, start = _ENDS.unpack_from(row_key, length - _SUFFIX)
                    found.append(_Session(end, start, None, decode(row)))
        return found


def _order(session: _Session) -> tuple[int, int]:
    return session.end, session.start


def fold_sessions(node: NodeSpec, operation: SessionAggregate, table: pa.Table, state: StepState) -> Records:
    """The records that ``node`` forwards for ``table``, its rows in the order of their ``seq``."""
    codes, keys = coded_keys(table, node.key_serde)
    parts, timestamps = longs(table, "part"), longs(table, "ts")
    values = None if isinstance(operation.aggregation, Counting) else _values(table, node.value_serde)
    out = Records([], [], [], [], [], [], None)
    for part in np.unique(parts).tolist():
        task = TaskId(node.subtopology, part)
        mine = np.flatnonzero((parts == part) & (codes >= 0))
        state.dropped += int(np.count_nonzero(parts == part)) - len(mine)
        rows = TaskRows(operation.store, logged=state.stores[operation.store].changelog is not None)
        with opened(state.readers.get(task)) as view:
            rows.begin(view, state.written_to(task, operation.store))
            fold = _begun(node, operation, rows, state, timestamps[mine], values)
            for code, times, records, at in _by_key(codes, timestamps, mine):
                try:
                    fold.key(keys[code], times, records, at)
                except Exception as problem:
                    raise _failed(node, task, table, at[0], problem) from problem
            state.dropped += fold.late
            _write(fold, timestamps)
            fold.segments.flush()
        _forward(out, part, sorted(fold.results), table)
    return out


def _values(table: pa.Table, serde: Any) -> list[Any]:
    return [serde.deserialize(data) for data in side_bytes(table, "value", serde)]


def _begun(
    node: NodeSpec, operation: SessionAggregate, rows: TaskRows, state: StepState, timestamps: Longs, values: list[Any] | None
) -> _Fold:
    """The task's clocks at each of its records, and where the batch leaves them."""
    kept = state.stores[operation.store].kept
    assert kept is not None
    assert kept.value_serde is not None
    gap, grace = operation.windows.gap, operation.windows.grace
    retention = operation.windows.retention if kept.retention_ms is None else kept.retention_ms
    segments = Segments(rows, retention, persistent=kept.persistent, time_ordered=False)
    clock = segments.clock(node.name)
    highest = np.maximum.accumulate(timestamps) if len(timestamps) else timestamps
    stream_time = np.maximum(highest, clock.stream_time)
    observed = np.maximum(np.concatenate(([-1], highest[:-1])), segments.observed) if len(timestamps) else timestamps
    if len(timestamps):
        clock.stream_time = int(stream_time[-1])
    return _Fold(
        node=node, steps=steps_of(operation.aggregation), gap=gap, segments=segments,
        close_times=(stream_time - grace - gap).tolist(), shown_from=(observed - retention + 1).tolist(),
        highest=int(highest[-1]) if len(timestamps) else -1, decode=kept.value_serde.deserialize,
        encode=kept.value_serde.serialize, values=values,
    )


def _by_key(codes: Longs, timestamps: Longs, mine: Longs) -> Iterator[tuple[int, list[int], list[int], list[int]]]:
    """For each key: (which, the times of its records, their numbers in the task, their numbers in the table), in their order."""
    order = np.argsort(codes[mine], kind="stable")
    rows = mine[order]
    ordered = codes[rows]
    times, records, at = timestamps[rows].tolist(), order.tolist(), rows.tolist()
    begins = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist()] if len(rows) else []
    for begin, end in zip(begins, [*begins[1:], len(at)], strict=True) if begins else ():
        yield int(ordered[begin]), times[begin:end], records[begin:end], at[begin:end]


def _failed(node: NodeSpec, task: TaskId, table: pa.Table, at: int, problem: Exception) -> RecordError:
    what = str(problem) if isinstance(problem, SerdeError) else f"{type(problem).__name__}: {problem}"
    offset = table.column("off")[at].as_py()
    return RecordError(
        f"the function of {node.name} failed for a key whose first record in this batch stands there: {what}",
        task=str(task), topic="|".join(node.topics) or node.name, partition=task.partition,
        offset=-1 if offset is None else offset,
    )


def _write(fold: _Fold, timestamps: Longs) -> None:
    """Writes and logs what has changed. What has expired by the end of the batch leaves no row."""
    segments = fold.segments
    segments.advance(fold.highest)
    floor, interval, put, log = segments.floor, segments.interval, segments.rows.put, segments.rows.log
    for end, _lives, start, key, data, at, is_kept in fold.results:
        suffix = _ENDS.pack(end, start)
        if is_kept and suffix >= floor:
            put(pack_time(end // interval) + key + suffix, data)
        log(key + suffix, data, int(timestamps[at]))


def _forward(out: Records, partition: int, results: list[_Result], table: pa.Table) -> None:
    causes = table.take(pa.array([result.at for result in results], pa.int64()))
    out.parts.extend([partition] * len(results))
    out.keys.extend(result.key + _ENDS.pack(result.end, result.start) for result in results)
    out.values.extend(result.data for result in results)
    out.timestamps.extend(result.end for result in results)
    out.offsets.extend(causes.column("off").to_pylist())
    out.sequences.extend(causes.column("seq").to_pylist())
