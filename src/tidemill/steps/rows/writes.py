"""Results of an earlier Python step as rows for the last one: store writes, changelog records, output records, counts.

Decides the form of these rows. The nodes decide their contents; the last step logs, sends, applies and reports them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any

import pyarrow as pa

from tidemill.ids import TaskId
from tidemill.steps.outputs import Destination, Outputs, ToDeadLetters, ToNode, ToSink, ToTopic
from tidemill.steps.rows import packed_rows
from tidemill.steps.rows.headers import packed, unpacked
from tidemill.steps.rows.order import first_child, in_sequence
from tidemill.steps.rows.packed_rows import PACKED_SCHEMA
from tidemill.steps.rows.records import ANY_PARTITION, Records
from tidemill.steps.rows.schema import (
    DROPPED_COUNT,
    FUNCTION_CALLS,
    OUTPUT,
    SCHEMA,
    SKIPPED_COUNT,
    control_rows,
    log_tag,
    write_tag,
)
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import StepState
from tidemill.task.batch import FunctionCalls
from tidemill.task.message_pack import pack, unpack
from tidemill.task.raw_records import Headers


def writes_as_rows(state: StepState, stores: Mapping[str, StoreSpec], step: int) -> Iterator[pa.RecordBatch]:
    """What step ``step`` has written and counted. ``child`` keeps changelog records in their order, and rows apart from one
    another where a layer sums those that are alike."""
    rows: list[tuple[int, bytes]] = []
    for (task, name), written in state.written.items():
        tag = stores[name].tag
        if written.rows:
            times = [written.timestamps.get(key, 0) for key in written.rows]
            headers = [packed(written.headers.get(key)) for key in written.rows]
            records = _of_task(task, list(written.rows), list(written.rows.values()), times, headers)
            rows += [(write_tag(tag), each) for each in packed_rows.packed(records)]
        if written.log:
            keys, values, stamps, own = zip(*written.log, strict=True)
            records = _of_task(task, keys, values, stamps, [packed(headers) for headers in own])
            rows += [(log_tag(tag), each) for each in packed_rows.packed(records)]
    number = first_child(step)
    if rows:
        tags, values = zip(*rows, strict=True)
        yield control_rows(node=tags, value=values, child=range(number, number + len(rows)))
        number += len(rows)
    if state.dropped:
        yield _rows({"node": [DROPPED_COUNT], "child": [number], "n": [state.dropped]})
    if state.passed_over.count:
        first = state.passed_over.first.encode(errors="backslashreplace")
        yield _rows({"node": [SKIPPED_COUNT], "child": [number], "n": [state.passed_over.count], "value": [first]})
    if state.functions:
        yield _rows({"node": [FUNCTION_CALLS], "child": [number], "value": [pack(state.functions)]})


def _of_task(
    task: TaskId, keys: Sequence[bytes], values: Sequence[bytes | None], times: Sequence[int | None],
    headers: Sequence[bytes | None],
) -> pa.RecordBatch:  # fmt: skip
    part, offset = pa.scalar(task.partition, pa.int32()), pa.scalar(None, pa.int64())
    arrays = [pa.repeat(part, len(keys)), pa.repeat(offset, len(keys))]
    arrays += [pa.array(times, pa.int64()), *(pa.array(each, pa.binary()) for each in (headers, keys, values))]
    return pa.RecordBatch.from_arrays(arrays, schema=PACKED_SCHEMA)


def take_writes(tables: dict[int, pa.Table], state: StepState) -> None:
    """Puts such rows back into ``state``, as if this step had written them, and takes them out of ``tables``."""
    dropped = tables.pop(DROPPED_COUNT, None)
    if dropped is not None:
        state.dropped += sum(1 if n is None else n for n in dropped.column("n").to_pylist())
    skipped = tables.pop(SKIPPED_COUNT, None)
    for row in () if skipped is None else skipped.select(["n", "value"]).to_pylist():
        state.passed_over.count += row["n"]
        state.passed_over.first = state.passed_over.first or row["value"].decode()
    calls = tables.pop(FUNCTION_CALLS, None)
    for packed_calls in () if calls is None else calls.column("value").to_pylist():
        state.functions |= unpack(packed_calls, dict[str, FunctionCalls])
    for name, store in state.stores.items():
        for task, (keys, values, stamps, headers) in _by_task(tables.pop(log_tag(store.tag), None), store):
            own = [tuple(unpacked(each) or ()) for each in headers]
            state.written_to(task, name).log += zip(keys, values, stamps, own, strict=True)
        for task, (keys, rows, times, headers) in _by_task(tables.pop(write_tag(store.tag), None), store):
            own_headers = [unpacked(each) for each in headers] if store.logs_headers else ()
            state.put_many(task, name, keys, rows, times, own_headers)


def _by_task(table: pa.Table | None, store: StoreSpec) -> Iterator[tuple[TaskId, tuple[list[Any], ...]]]:
    """Keys, values, timestamps and headers that the rows of a tag hold, in their order; a task may come again."""
    for value in () if table is None else table.sort_by("child").column("value").to_pylist():
        records = packed_rows.unpacked([value])
        task = TaskId(store.subtopology, records.column("part")[0].as_py())
        yield task, tuple(records.column(name).to_pylist() for name in ("key", "value", "ts", "headers"))


def outputs_as_rows(outputs: Outputs, step: int) -> Iterator[pa.RecordBatch]:
    """Records that the step sends; the first headers name their destination."""
    number = first_child(step)
    for to, records in outputs:
        count = len(records)
        yield _rows(
            {
                "node": [OUTPUT] * count,
                "part": records.parts,
                "off": records.offsets,
                "seq": records.sequences,
                "child": range(number, number + count),
                "ts": records.timestamps,
                "key": records.keys,
                "value": records.values,
                "headers": [packed([*_address(to, records, at), *(records.header(at) or ())]) for at in range(count)],
            }
        )
        number += count


_INT = Struct(">i")


def _address(to: Destination, records: Records, at: int) -> Headers:
    match to:
        case ToTopic(name):
            return [("topic", name.encode())]
        case ToDeadLetters(topic):
            return [("letters", topic.encode()), ("partition", _chosen(records, at))]
        case ToSink(name, topic):
            chosen = ("partition", _chosen(records, at))
            return [("sink", name.encode()), ("topic", None if topic is None else topic.encode()), chosen]
        case ToNode(name):
            raise AssertionError(f"rows that have left {name} belong to a later layer, not to the producer")


def _chosen(records: Records, at: int) -> bytes | None:
    return None if records.partitions is None else _INT.pack(records.partitions[at])


def _unpacked_partition(packed_partition: bytes | None) -> int | None:
    return None if packed_partition is None else int(_INT.unpack(packed_partition)[0])


def _addressed(headers: Headers) -> tuple[Destination, int | None, Headers]:
    """A record's destination, the partition that its sink has chosen, and its own headers."""
    (kind, name), *rest = headers
    assert name is not None
    if kind == "topic":
        return ToTopic(name.decode()), None, rest
    if kind == "letters":
        (_, partition), *own = rest
        return ToDeadLetters(name.decode()), _unpacked_partition(partition), own
    (_, topic), (_, partition), *own = rest
    chosen = _unpacked_partition(partition)
    return ToSink(name.decode(), None if topic is None else topic.decode()), chosen, own


def take_outputs(tables: dict[int, pa.Table]) -> Outputs:
    """Such rows as records again, taken out of ``tables``."""
    table = tables.pop(OUTPUT, None)
    outputs = Outputs()
    found: dict[Destination, Records] = {}
    if table is None:
        return outputs
    table = in_sequence(table)
    columns = (table.column(column).to_pylist() for column in ("part", "key", "value", "ts", "off", "seq", "headers"))
    for part, key, value, timestamp, offset, sequence, data in zip(*columns, strict=True):
        to, partition, headers = _addressed(unpacked(data) or [])
        records = found.get(to)
        if records is None:
            records = found[to] = Records.empty(partitions=partition is not None)
        records.parts.append(part)
        records.keys.append(key)
        records.values.append(value)
        records.timestamps.append(timestamp)
        records.offsets.append(offset)
        records.sequences.append(sequence)
        assert records.headers is not None
        records.headers.append(headers or None)
        if records.partitions is not None:
            records.partitions.append(ANY_PARTITION if partition is None else partition)
    for to, records in found.items():
        outputs.add(to, records)
    return outputs


def _rows(columns: Mapping[str, Sequence[object]]) -> pa.RecordBatch:
    count = len(columns["node"])
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type) for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
