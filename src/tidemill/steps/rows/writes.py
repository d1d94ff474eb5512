"""Results of an earlier Python step as rows for the last one: store writes, changelog records, output records, counts.

Decides the form of these rows. The nodes decide their contents; the last step logs, sends, applies and reports them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct

import pyarrow as pa

from tidemill.ids import TaskId
from tidemill.steps.outputs import Destination, Outputs, ToDeadLetters, ToNode, ToSink, ToTopic
from tidemill.steps.rows.headers import packed, unpacked
from tidemill.steps.rows.order import first_child, in_sequence
from tidemill.steps.rows.records import ANY_PARTITION, Records
from tidemill.steps.rows.schema import DROPPED_COUNT, FUNCTION_CALLS, OUTPUT, SCHEMA, SKIPPED_COUNT, log_tag, write_tag
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import StepState
from tidemill.task.batch import FunctionCalls
from tidemill.task.message_pack import pack, unpack
from tidemill.task.raw_records import Headers


def writes_as_rows(state: StepState, stores: Mapping[str, StoreSpec], step: int) -> Iterator[pa.RecordBatch]:
    """What step ``step`` has written and counted. ``child`` keeps changelog records in their order, and apart from one another
    where a layer sums rows that are alike."""
    number = first_child(step)
    for (task, name), written in state.written.items():
        if written.rows:
            yield _rows(
                {
                    "node": [write_tag(stores[name].tag)] * len(written.rows),
                    "part": [task.partition] * len(written.rows),
                    "ts": [written.timestamps.get(key, 0) for key in written.rows],
                    "key": list(written.rows),
                    "value": list(written.rows.values()),
                    "headers": [packed(written.headers.get(key)) for key in written.rows],
                }
            )
        if written.log:
            yield _rows(
                {
                    "node": [log_tag(stores[name].tag)] * len(written.log),
                    "part": [task.partition] * len(written.log),
                    "child": range(number, number + len(written.log)),
                    "key": [key for key, _, _, _ in written.log],
                    "value": [value for _, value, _, _ in written.log],
                    "ts": [timestamp for _, _, timestamp, _ in written.log],
                    "headers": [packed(headers) for _, _, _, headers in written.log],
                }
            )
            number += len(written.log)
    if state.dropped:
        yield _rows({"node": [DROPPED_COUNT], "child": [number], "n": [state.dropped]})
    if state.passed_over.count:
        first = state.passed_over.first.encode(errors="backslashreplace")
        yield _rows({"node": [SKIPPED_COUNT], "child": [number], "n": [state.passed_over.count], "value": [first]})
    if state.functions:
        yield _rows({"node": [FUNCTION_CALLS], "child": [number], "value": [pack(state.functions)]})


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
        _take_log(tables.pop(log_tag(store.tag), None), name, store, state)
        table = tables.pop(write_tag(store.tag), None)
        if table is None:
            continue
        parts = table.column("part").to_pylist()
        keys, rows, times, headers = (table.column(c).to_pylist() for c in ("key", "value", "ts", "headers"))
        for part in sorted(set(parts)):
            at = [i for i, p in enumerate(parts) if p == part]
            task = TaskId(store.subtopology, part)
            own = [unpacked(headers[i]) for i in at] if store.logs_headers else ()
            state.put_many(task, name, [keys[i] for i in at], [rows[i] for i in at], [times[i] for i in at], own)


def _take_log(table: pa.Table | None, name: str, store: StoreSpec, state: StepState) -> None:
    if table is None:
        return
    table = table.sort_by("child")
    columns = (table.column(column).to_pylist() for column in ("part", "key", "value", "ts", "headers"))
    for part, key, value, timestamp, headers in zip(*columns, strict=True):
        log = state.written_to(TaskId(store.subtopology, part), name).log
        log.append((key, value, timestamp, tuple(unpacked(headers) or ())))


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
