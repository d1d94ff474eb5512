"""Counts records in tumbling, hopping and unlimited windows for a whole batch: the vectorised shortcut of KStreamWindowAggregate.

Decides which windows of which keys a batch touches and by how much, with the per-record operator's rules
(``operators.time_windows``): null keys are dropped, stream time moves from record to record, and each window that a record
comes too late for is a drop. The difference is the forwarded results: one for each key and window of a batch, its last, in the
order of the windows' starts. Rows, clocks and changelog are those of ``operators.window_store``, so that either may follow
the other. Invariant: a window that still takes records is one that its store still shows, as a store keeps windows for their
size and grace at least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from struct import Struct

import numpy as np
import pyarrow as pa

from tidemill.operators.segments import LONG_MAX, Clock, Segments, pack_time
from tidemill.steps.rows.headers import unpacked
from tidemill.steps.rows.records import Records
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.arrays import Longs, plus
from tidemill.steps.vector.keyed_rows import KeyedRows, rows_of_store
from tidemill.topology.operations import WindowAggregate
from tidemill.topology.windows import TimeWindows

_PAIR = Struct(">qq")
_SUFFIX = Struct(">qi")


@dataclass(frozen=True, slots=True)
class _Sums:
    """Counts that a batch adds: per touched (key, window), in the order of start and key."""

    codes: Longs
    """Indexes of the keys."""
    starts: Longs
    counts: Longs
    latest: Longs
    """The highest timestamp."""
    last: Longs
    """Indexes of the last records."""
    late: int


def count_windows(node: NodeSpec, operation: WindowAggregate, table: pa.Table, state: StepState) -> Records:
    """The records that ``node`` forwards for ``table``, its rows in the order of their ``seq``."""
    assert isinstance(operation.windows, TimeWindows)
    windows = operation.windows
    keyed = KeyedRows.of(table, node.key_serde)
    out = Records.empty(headers=keyed.has_headers)
    for task, mine in keyed.of_tasks(node.subtopology, state):
        with rows_of_store(task, operation.store, state) as rows:
            segments = _segments(rows, operation, state)
            clock = segments.clock(node.name)
            if len(mine):
                sums = _sums(windows, clock, keyed.codes[mine], keyed.timestamps[mine], mine, len(keyed.keys))
                state.dropped += sums.late
                if len(sums.codes):
                    results = _updated(sums, keyed.keys, segments, partial(state.get_many, task, operation.store))
                    _forward(out, task.partition, results, table.take(pa.array(sums.last)))
            segments.flush()
    return out


def _sums(windows: TimeWindows, clock: Clock, codes: Longs, timestamps: Longs, at: Longs, keys: int) -> _Sums:
    """Adds up what the records, in their order, add to each window, and moves the clock."""
    stream_time = np.maximum(np.maximum.accumulate(timestamps), clock.stream_time)
    clock.stream_time = int(stream_time[-1])
    late, size = 0, LONG_MAX if windows.size is None else windows.size
    touched: list[tuple[Longs, Longs]] = []
    for which, starts in _windows_of(windows, timestamps):
        is_open = plus(starts, size) > stream_time[which] - windows.grace
        late += len(which) - int(np.count_nonzero(is_open))
        touched.append((which[is_open], starts[is_open]))
    which = np.concatenate([found for found, _ in touched])
    starts = np.concatenate([found for _, found in touched])
    if len(touched) > 1:
        order = np.argsort(which, kind="stable")
        which, starts = which[order], starts[order]
    if not len(which):
        return _Sums(which, which, which, which, which, late)
    distinct, number = np.unique(starts, return_inverse=True)
    groups, group, counts = _grouped(number * keys + codes[which], len(distinct) * keys)
    latest = np.full(len(groups), -1, np.int64)
    np.maximum.at(latest, group, timestamps[which])
    last = np.empty(len(groups), np.int64)
    last[group] = at[which]
    return _Sums(groups % keys, distinct[groups // keys], counts, latest, last, late)


def _windows_of(windows: TimeWindows, timestamps: Longs) -> Iterator[tuple[Longs, Longs]]:
    """(which records, the start of a window of each), a window of each record at a time, in the order of the starts."""
    everything = np.arange(len(timestamps))
    if windows.size is None:
        inside = np.flatnonzero(timestamps >= windows.start)
        yield inside, np.full(len(inside), windows.start, np.int64)
        return
    first = np.maximum(timestamps - windows.size + windows.advance, 0) // windows.advance * windows.advance
    for offset in range(0, windows.size, windows.advance):
        inside = everything if offset == 0 else np.flatnonzero(offset <= timestamps - first)
        yield inside, first[inside] + offset


def _grouped(codes: Longs, end: int) -> tuple[Longs, Longs, Longs]:
    """(distinct codes, the number among them of each, how often each occurs); ``codes`` lie in ``0 .. end - 1``."""
    if end > 4 * len(codes) + 1024:
        return np.unique(codes, return_inverse=True, return_counts=True)
    counts = np.bincount(codes, minlength=end)
    groups = np.flatnonzero(counts)
    number = np.empty(end, np.int64)
    number[groups] = np.arange(len(groups))
    return groups, number[codes], counts[groups]


def _segments(rows: TaskRows, operation: WindowAggregate, state: StepState) -> Segments:
    store = state.stores[operation.store].kept
    assert store is not None
    return Segments(rows, store.keeps_ms, persistent=store.persistent, time_ordered=False)


@dataclass(frozen=True, slots=True)
class _Results:
    """The updated windows: forwarded keys, values, timestamps."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]


def _updated(sums: _Sums, keys: list[bytes], segments: Segments, read: Callable[[list[bytes]], list[bytes | None]]) -> _Results:
    """Adds the sums to the rows, and logs these. What has expired by the end of the batch leaves no row."""
    interval, put, log = segments.interval, segments.rows.put, segments.rows.log
    row_keys, log_keys = [], []
    results = _Results([], [], [])
    for code, start in zip(sums.codes.tolist(), sums.starts.tolist(), strict=True):
        log_key = keys[code] + _SUFFIX.pack(start, 0)
        log_keys.append(log_key)
        row_keys.append(pack_time(start // interval) + log_key)
        results.keys.append(log_key[:-4])
    found = read(row_keys)
    segments.advance(int(sums.starts[-1]))
    floor = segments.floor
    for row_key, log_key, old, count, latest in zip(
        row_keys, log_keys, found, sums.counts.tolist(), sums.latest.tolist(), strict=True
    ):
        total, timestamp = count, latest
        if old is not None:
            before, so_far = _PAIR.unpack(old)
            total, timestamp = count + so_far, max(before, latest)
        row = _PAIR.pack(timestamp, total)
        if log_key[-12:-4] >= floor:
            put(row_key, row)
        log(log_key, row[8:], timestamp)
        results.values.append(row[8:])
        results.timestamps.append(timestamp)
    return results


def _forward(out: Records, partition: int, results: _Results, causes: pa.Table) -> None:
    out.parts.extend([partition] * len(results.keys))
    out.keys.extend(results.keys)
    out.values.extend(results.values)
    out.timestamps.extend(results.timestamps)
    out.offsets.extend(causes.column("off").to_pylist())
    out.sequences.extend(causes.column("seq").to_pylist())
    if out.headers is not None:
        out.headers.extend(unpacked(row) for row in causes.column("headers").to_pylist())
