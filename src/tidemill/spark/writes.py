"""Store writes, changelog records and output that travel from an earlier Python step to the last one, which logs, sends and
applies them.

Decides the rows; what is written is the state step's and the operators'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemill.ids import TaskId
from tidemill.spark.headers import packed, unpacked
from tidemill.spark.records import Records
from tidemill.spark.rows import CHANGELOG, DROPPED_COUNT, LOG, OUTPUT, SCHEMA, WRITE
from tidemill.spark.state_step import StepState
from tidemill.spark.step_spec import StoreSpec


def writes_as_rows(state: StepState, stores: Mapping[str, StoreSpec]) -> Iterator[pa.RecordBatch]:
    for (task, name), written in state.written.items():
        if written.rows:
            yield _rows(
                {
                    "node": [WRITE - (CHANGELOG - stores[name].tag)] * len(written.rows),
                    "part": [task.partition] * len(written.rows),
                    "ts": [written.timestamps.get(key, 0) for key in written.rows],
                    "key": list(written.rows),
                    "value": list(written.rows.values()),
                }
            )
        if written.log:
            yield _rows(
                {
                    "node": [LOG - (CHANGELOG - stores[name].tag)] * len(written.log),
                    "part": [task.partition] * len(written.log),
                    "key": [key for key, _, _, _ in written.log],
                    "value": [value for _, value, _, _ in written.log],
                    "ts": [timestamp for _, _, timestamp, _ in written.log],
                    "headers": [packed(headers) for _, _, _, headers in written.log],
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
        _take_log(tables.pop(LOG - (CHANGELOG - store.tag), None), name, store, state)
        table = tables.pop(WRITE - (CHANGELOG - store.tag), None)
        if table is None:
            continue
        parts = table.column("part").to_pylist()
        keys, rows, times = (table.column(c).to_pylist() for c in ("key", "value", "ts"))
        for part in sorted(set(parts)):
            at = [i for i, p in enumerate(parts) if p == part]
            task = TaskId(store.subtopology, part)
            state.put_many(task, name, [keys[i] for i in at], [rows[i] for i in at], [times[i] for i in at])


def _take_log(table: pa.Table | None, name: str, store: StoreSpec, state: StepState) -> None:
    if table is None:
        return
    columns = (table.column(column).to_pylist() for column in ("part", "key", "value", "ts", "headers"))
    for part, key, value, timestamp, headers in zip(*columns, strict=True):
        log = state.written_to(TaskId(store.subtopology, part), name).log
        log.append((key, value, timestamp, tuple(unpacked(headers) or ())))


def outputs_as_rows(pending: Mapping[str, list[Records]]) -> Iterator[pa.RecordBatch]:
    """What the step sends, by topic."""
    number = 0
    for topic, several in pending.items():
        for records in several:
            count = len(records)
            to = topic, None if records.sink is None else records.sink.encode()
            yield _rows(
                {
                    "node": [OUTPUT] * count,
                    "part": records.parts,
                    "off": records.offsets,
                    "seq": records.sequences,
                    "n": list(range(number, number + count)),
                    "ts": records.timestamps,
                    "key": records.keys,
                    "value": records.values,
                    "headers": [packed([to, *(records.header(at) or ())]) for at in range(count)],
                }
            )
            number += count


def take_outputs(tables: dict[int, pa.Table]) -> dict[tuple[str, str | None], Records]:
    """Such rows as records again, by topic and, where it has a partitioner, sink."""
    table = tables.pop(OUTPUT, None)
    found: dict[tuple[str, str | None], Records] = {}
    if table is None:
        return found
    table = table.sort_by([("seq", "ascending"), ("n", "ascending")])
    columns = (table.column(column).to_pylist() for column in ("part", "key", "value", "ts", "off", "seq", "headers"))
    for part, key, value, timestamp, offset, sequence, data in zip(*columns, strict=True):
        (topic, raw), *headers = unpacked(data) or []
        sink = None if raw is None else raw.decode()
        records = found.setdefault((topic, sink), Records([], [], [], [], [], [], [], sink=sink))
        records.parts.append(part)
        records.keys.append(key)
        records.values.append(value)
        records.timestamps.append(timestamp)
        records.offsets.append(offset)
        records.sequences.append(sequence)
        assert records.headers is not None
        records.headers.append(headers or None)
    return found


def _rows(columns: Mapping[str, list[Any]]) -> pa.RecordBatch:
    count = len(columns["node"])
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type) for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
