"""Changelog records of window and session stores as rows, a batch at once: what ``restore`` of the stores makes of each.

Decides what of a batch has expired by its end: it leaves no row, as in Kafka Streams, whose stores move their time to the newest
record of a batch before they write any (``AbstractRocksDBSegmentedBytesStore.restoreAllInternal``). Rows and clocks are those of
``operators.window_store`` and ``operators.session_store``; stores that have an index by time are restored by these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.operators.segments import Segments
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.vector.arrays import Longs, big_endian, longs
from tidemill.topology.nodes import Store, StoreKind

_ENDS = {
    StoreKind.WINDOW: np.dtype([("time", ">i8"), ("number", ">i4")]),
    StoreKind.TIMESTAMPED_WINDOW: np.dtype([("time", ">i8"), ("number", ">i4")]),
    StoreKind.SESSION: np.dtype([("time", ">i8"), ("start", ">i8")]),
}
"""What the keys end with: the time that decides about a row's segment, and a window's sequence or a session's start."""


def are_in_segments(store: Store) -> bool:
    """True if ``rows_in_segments`` restores such a store."""
    return store.kind in _ENDS and not store.time_ordered


def rows_in_segments(records: pa.Table, store: Store, rows: TaskRows) -> dict[bytes, bytes | None]:
    """The rows to write, in the order of their keys; clocks and the deletion of what was there and has expired go to ``rows``.
    ``records``: in the order of their offsets, with keys that the store has written (``changelog_records``)."""
    if not records.num_rows:
        return {}
    segments = Segments(rows, store.keeps_ms, persistent=store.persistent, time_ordered=False, reach=store.reaches_back_ms)
    times, others = _ends_of(records.column("key"), _ENDS[store.kind])
    deletes_nothing = records.column("value").is_null().to_numpy() & store.retain_duplicates
    moves = times[~deletes_nothing] if store.persistent else times
    if len(moves):
        segments.advance(int(moves.max()))
    stamps = longs(records, "ts")
    if store.kind is StoreKind.SESSION:
        stamps = np.maximum(stamps, times)  # compaction leaves the last record of a session, not the latest
    else:
        segments.sequence = max(segments.sequence, int(others.max()))
    segments.restored(int(stamps.max()))
    numbers = times // segments.interval
    is_live = times > segments.observed - segments.retention if segments.is_exact else numbers >= segments.min_live
    is_kept = is_live & ~deletes_nothing
    records, numbers = records.select(["key", "value", "ts"]).filter(pa.array(is_kept)), numbers[is_kept]
    values = records.column("value")
    if store.kind is StoreKind.TIMESTAMPED_WINDOW:
        values = pc.binary_join_element_wise(big_endian(longs(records, "ts")), values, b"")
    keys = pc.binary_join_element_wise(big_endian(numbers), records.column("key"), b"")
    return sorted_rows(keys, values)


def sorted_rows(keys: pa.ChunkedArray, values: pa.ChunkedArray) -> dict[bytes, bytes | None]:
    """Of each key the last value, in the order of the keys: so LMDB takes them in half the time."""
    table = pa.table({"key": keys, "value": values}).sort_by("key")  # stable: of one key the last row stays the last
    return dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))


def _ends_of(keys: pa.ChunkedArray, form: np.dtype[Any]) -> tuple[Longs, Longs]:
    """(the time, the sequence or start) that each key ends with."""
    suffixes = pc.binary_slice(keys, -form.itemsize, None).combine_chunks().cast(pa.binary(form.itemsize))
    ends = np.frombuffer(suffixes.buffers()[1], form, count=len(suffixes), offset=suffixes.offset * form.itemsize)
    times, others = (ends[name].astype(np.int64) for name in form.names or ())
    return times, others
