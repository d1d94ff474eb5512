"""Changelog records as the rows of a store, for an active task that is being restored and for a standby that follows.

Decides by who keeps the store: a vectorised step's row is the value behind its timestamp; the store classes of operators
know themselves what a record of their changelog means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemill.dsl.serdes import Serdes
from tidemill.ids import TaskId
from tidemill.operators.stores import store_of
from tidemill.spark.headers import unpacked
from tidemill.spark.state_step import StoreReader, StoreView, Written
from tidemill.spark.step_spec import StoreSpec
from tidemill.spark.task_rows import TaskRows, opened

Rows = dict[bytes, "bytes | None"]


def restored_writes(
    table: pa.Table, store: StoreSpec, readers: Mapping[TaskId, StoreReader]
) -> dict[TaskId, tuple[int, Rows]]:
    """By task: how many records its changelog had, and the rows to write, None to delete. ``table``: records of all its
    tasks' changelogs in any order."""
    table = table.sort_by([("part", "ascending"), ("off", "ascending")])
    parts, keys, values, times = (table.column(name).to_pylist() for name in ("part", "key", "value", "ts"))
    headers = table.column("headers")
    packed = [None] * len(parts) if headers.null_count == len(parts) else headers.to_pylist()
    found: dict[TaskId, tuple[int, Rows]] = {}
    begin = 0
    while begin < len(parts):
        end = begin
        while end < len(parts) and parts[end] == parts[begin]:
            end += 1
        task = TaskId(store.subtopology, parts[begin])
        records = zip(keys[begin:end], values[begin:end], times[begin:end], packed[begin:end], strict=True)
        if store.kept is None:
            rows = _plain(records, store)
        else:
            with opened(readers.get(task)) as view:
                rows = _kept(records, store, view)
        found[task] = end - begin, rows
        begin = end
    return found


def _plain(records: Any, store: StoreSpec) -> Rows:
    rows: Rows = {}
    for key, value, timestamp, _ in records:
        if key is not None:
            rows[key] = timestamp.to_bytes(8, "big", signed=True) + value if store.timestamped and value is not None else value
    return rows


def _kept(records: Any, store: StoreSpec, view: StoreView) -> Rows:
    written = Written()
    rows = TaskRows(store.name, logged=False)
    rows.begin(view, written)
    assert store.kept is not None
    kept = store_of(store.kept, rows, Serdes.bytes(), Serdes.bytes())
    for key, value, timestamp, headers in records:
        if key is not None:
            kept.restore(key, value, timestamp, tuple(unpacked(headers) or ()))
    return written.rows
