"""Store writes that travel from an earlier Python step to the last one, which logs and applies them.

Decides the rows; what is written is the state step's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemill.ids import TaskId
from tidemill.spark.rows import CHANGELOG, DROPPED_COUNT, SCHEMA, WRITE
from tidemill.spark.state_step import StepState
from tidemill.spark.step_spec import StoreSpec


def writes_as_rows(state: StepState, stores: Mapping[str, StoreSpec]) -> Iterator[pa.RecordBatch]:
    for (task, name), written in state.written.items():
        if written.rows:
            yield _rows(
                {
                    "node": [WRITE - (CHANGELOG - stores[name].tag)] * len(written.rows),
                    "part": [task.partition] * len(written.rows),
                    "ts": [written.timestamps[key] for key in written.rows],
                    "key": list(written.rows),
                    "value": list(written.rows.values()),
                }
            )
    if state.dropped:
        yield _rows({"node": [DROPPED_COUNT], "n": [state.dropped]})


def take_writes(tables: dict[int, pa.Table], state: StepState) -> None:
    """Puts such rows back into ``state``, as if this step had written them."""
    dropped = tables.pop(DROPPED_COUNT, None)
    if dropped is not None:
        state.dropped += sum(1 if n is None else n for n in dropped.column("n").to_pylist())
    for name, store in state.stores.items():
        table = tables.pop(WRITE - (CHANGELOG - store.tag), None)
        if table is None:
            continue
        parts = table.column("part").to_pylist()
        keys, rows, times = (table.column(c).to_pylist() for c in ("key", "value", "ts"))
        for part in sorted(set(parts)):
            at = [i for i, p in enumerate(parts) if p == part]
            task = TaskId(store.subtopology, part)
            state.put_many(task, name, [keys[i] for i in at], [rows[i] for i in at], [times[i] for i in at])


def _rows(columns: Mapping[str, list[Any]]) -> pa.RecordBatch:
    count = len(columns["node"])
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type) for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
