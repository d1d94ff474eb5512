"""The vectorised nodes of a Python step: read the store, compute, remember the writes, forward.

Decides the semantics of each stateful operator (Kafka Streams' null rules, result timestamps); the stores are read through
``StoreReader`` and not written here: writes are collected and applied after the Kafka commit. Vectorised where the
operator allows (count), record by record in offset order where order matters.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from tidemill.errors import RecordError, SerdeError, StopError, StoredBytesError
from tidemill.ids import TaskId
from tidemill.operators.exception_handlers import FAILING, ErrorContext, ExceptionHandlers
from tidemill.operators.record import Record
from tidemill.operators.stored_serdes import StoredSerde
from tidemill.steps.commit.dead_letters import PassedOver
from tidemill.steps.rows.records import Records, in_order
from tidemill.steps.step_spec import NodeSpec, StoreSpec
from tidemill.steps.vector.retained_rows import ShownRows
from tidemill.task.batch import FunctionCalls
from tidemill.task.raw_records import Headers
from tidemill.topology.operations import (
    Aggregate,
    Count,
    Foreach,
    Peek,
    Print,
    Reduce,
    TableFilter,
    TableMapValues,
    TableSource,
)
from tidemill.topology.spark_operations import HeldAggregates, MergedAggregates

_LONG = struct.Struct(">q")
_HELD = Records([0], [None], [None], [0], [None], [-1])
"""Origin of a record that a store holds: from before the batch."""
_pack, _unpack = _LONG.pack, _LONG.unpack_from


class StoreView(Protocol):
    """One task's stores as they were when the view was opened, for many small reads."""

    def get(self, store: str, key: bytes) -> bytes | None: ...

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``low <= key < high`` in the order of their keys' bytes."""


class StoreReader(Protocol):
    """One task's stores as they were when the batch began."""

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def snapshot(self) -> AbstractContextManager[StoreView]: ...


@dataclass(slots=True)
class Written:
    """Writes of a batch to one store of one task: the last value of each key (None deletes), as stored.

    The changelog gets each row with its timestamp; of a store that operators keep, ``log`` instead, record by record: key,
    value, timestamp (None: when it is sent), headers.
    """

    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    timestamps: dict[bytes, int] = field(default_factory=dict)
    log: list[tuple[bytes, bytes | None, int | None, Headers]] = field(default_factory=list)


@dataclass(slots=True)
class StepState:
    """The stores of a batch: what they hold and what the batch has written so far (its overlay)."""

    readers: Mapping[TaskId, StoreReader]
    stores: Mapping[str, StoreSpec]
    written: dict[tuple[TaskId, str], Written] = field(default_factory=dict)
    dropped: int = 0
    memory: dict[tuple[TaskId, str], ShownRows] = field(default_factory=dict)
    """Rows of a task's store that nodes remember, as long as each batch follows the one before."""
    handlers: ExceptionHandlers = FAILING
    passed_over: PassedOver = field(default_factory=PassedOver)
    forwarded: dict[str, Records] = field(default_factory=dict)
    """Records of this batch that tables have forwarded, by node, where other nodes of the step look their rows up."""
    functions: dict[str, FunctionCalls] = field(default_factory=dict)
    """Calls of functions of batches and async functions, by node."""

    def written_to(self, task: TaskId, store: str) -> Written:
        """The batch's writes to a store of a task so far, to be added to."""
        return self.written.setdefault((task, store), Written())

    def get_many(self, task: TaskId, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values as stored, this batch's own writes included."""
        overlay = self.written.get((task, store))
        if overlay is None:
            return self.readers[task].get_many(store, keys)
        rows = overlay.rows
        missing = [key for key in keys if key not in rows]
        found = dict(zip(missing, self.readers[task].get_many(store, missing), strict=True)) if missing else {}
        return [rows[key] if key in rows else found[key] for key in keys]

    def put_many(
        self, task: TaskId, store: str, keys: Sequence[bytes], rows: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        written = self.written_to(task, store)
        written.rows.update(zip(keys, rows, strict=True))
        written.timestamps.update(zip(keys, timestamps, strict=True))


def _by_task(node: NodeSpec, parts: Sequence[int]) -> dict[TaskId, list[int]]:
    groups: dict[int, list[int]] = {}
    for at, part in enumerate(parts):
        groups.setdefault(part, []).append(at)
    return {TaskId(node.subtopology, part): groups[part] for part in sorted(groups)}


def count(node: NodeSpec, operation: Count, records: Records, state: StepState) -> Records:
    """Adds how many records each key got; null keys (and what had a null value) are dropped and counted."""
    out = Records([], [], [], [], [], [], None if records.headers is None else [])
    for task, indexes in _by_task(node, records.parts).items():
        sums: dict[bytes, int] = {}
        latest: dict[bytes, int] = {}
        last: dict[bytes, int] = {}
        counts = records.counts
        for at in indexes:
            key = records.keys[at]
            n = 1 if counts is None else counts[at]
            if key is None:
                state.dropped += n
                continue
            timestamp = records.timestamps[at]
            if key in sums:
                sums[key] += n
                if timestamp > latest[key]:
                    latest[key] = timestamp
            else:
                sums[key] = n
                latest[key] = timestamp
            last[key] = at
        keys = sorted(sums)
        rows: list[bytes | None] = []
        values: list[bytes | None] = []
        timestamps: list[int] = []
        try:
            for key, old in zip(keys, state.get_many(task, operation.store, keys), strict=True):
                timestamp, total = latest[key], sums[key]
                if old is not None:
                    timestamp = max(timestamp, _unpack(old)[0])
                    total += _unpack(old, 8)[0]
                value = _pack(total)
                rows.append(_pack(timestamp) + value)
                values.append(value)
                timestamps.append(timestamp)
        except struct.error as problem:
            found = StoredBytesError(operation.store, f"no count behind a timestamp: {problem}")
            raise StopError(f"task {task}: {found}") from problem
        state.put_many(task, operation.store, keys, rows, timestamps)
        out.parts.extend([task.partition] * len(keys))
        out.keys.extend(keys)
        out.values.extend(values)
        out.timestamps.extend(timestamps)
        out.offsets.extend(records.offsets[last[key]] for key in keys)
        out.sequences.extend(records.sequences[last[key]] for key in keys)
        if out.headers is not None:
            out.headers.extend(records.header(last[key]) for key in keys)
    return out


_Fold = Callable[[bytes, bytes, "bytes | None"], "bytes | None"]
"""(key, value, aggregate so far) -> aggregate, all as bytes."""


def _stored_with(store: StoreSpec) -> StoredSerde:
    assert store.value_serde is not None
    return StoredSerde(store.value_serde, store.name)


def reduce(node: NodeSpec, operation: Reduce, records: Records, state: StepState) -> Records:
    """Reduces each key's values, from its aggregate on."""
    store = state.stores[operation.store]
    value_serde, stored, reducer = node.value_serde, _stored_with(store), operation.reducer
    assert callable(reducer)

    def fold(_key: bytes, value: bytes, aggregate: bytes | None) -> bytes | None:
        new = value_serde.deserialize(value)
        if aggregate is not None:
            new = reducer(stored.deserialize(aggregate), new)
        result: bytes | None = stored.serialize(new)
        return result

    return _fold(node, operation.store, records, state, fold)


def aggregate(node: NodeSpec, operation: Aggregate, records: Records, state: StepState) -> Records:
    """Aggregates each key's values, from its aggregate or the initializer's on."""
    store = state.stores[operation.store]
    key_serde, value_serde, stored = node.key_serde, node.value_serde, _stored_with(store)

    def fold(key: bytes, value: bytes, aggregate: bytes | None) -> bytes | None:
        before = operation.initializer() if aggregate is None else stored.deserialize(aggregate)
        after = operation.aggregator(key_serde.deserialize(key), value_serde.deserialize(value), before)
        result: bytes | None = stored.serialize(after)
        return result

    return _fold(node, operation.store, records, state, fold)


def _fold(node: NodeSpec, store: str, records: Records, state: StepState, fold: _Fold) -> Records:
    """Record by record in offset order; forwards each key's last aggregate, as a record cache does."""
    out = Records([], [], [], [], [], [], [])
    for task, indexes in _by_task(node, records.parts).items():
        usable = [at for at in indexes if records.keys[at] is not None and records.values[at] is not None]
        state.dropped += len(indexes) - len(usable)
        distinct = sorted({key for at in usable if (key := records.keys[at]) is not None})
        held = dict(zip(distinct, state.get_many(task, store, distinct), strict=True))
        last: dict[bytes, int] = {}
        times: dict[bytes, int] = {}
        for at in usable:
            key, value = records.keys[at], records.values[at]
            assert key is not None
            assert value is not None
            old = held[key]
            try:
                after = fold(key, value, None if old is None else old[8:])
            except Exception as problem:
                refuse(node, task, records, at, problem, state)
                continue
            timestamp = records.timestamps[at]
            if old is not None:
                timestamp = max(timestamp, _unpack(old)[0])
            held[key] = None if after is None else _pack(timestamp) + after
            times[key] = timestamp
            last.pop(key, None)
            last[key] = at
        keys = list(last)
        state.put_many(task, store, keys, [held[key] for key in keys], [times[key] for key in keys])
        for key in keys:
            stored = held[key]
            _forward(out, task, key, None if stored is None else stored[8:], times[key], records, last[key])
    return out


def with_held(node: NodeSpec, operation: HeldAggregates, records: Records, state: StepState) -> Records:
    """The records, and for each of their keys what the store holds, as a record before all others; null keys and values are
    dropped."""
    store = operation.store
    found = Records([], [], [], [], [], [], [])
    usable: list[int] = []
    for task, indexes in _by_task(node, records.parts).items():
        mine = [at for at in indexes if records.keys[at] is not None and records.values[at] is not None]
        state.dropped += len(indexes) - len(mine)
        usable += mine
        distinct = sorted({key for at in mine if (key := records.keys[at]) is not None})
        for key, row in zip(distinct, state.get_many(task, store, distinct), strict=True):
            if row is not None:
                _forward(found, task, key, row[8:], _unpack(row)[0], _HELD, 0)
    dropped = set(range(len(records))).difference(usable)
    return in_order([found, records.without(dropped) if dropped else records]) if len(found) else records.without(dropped)


def keep_latest(
    node: NodeSpec, operation: MergedAggregates | TableSource | TableFilter | TableMapValues, records: Records, state: StepState
) -> Records:
    """Every update is forwarded; the store keeps the last one; null keys are dropped."""
    store = operation.store
    assert store is not None
    out = Records([], [], [], [], [], [], [])
    for task, indexes in _by_task(node, records.parts).items():
        rows: dict[bytes, bytes | None] = {}
        times: dict[bytes, int] = {}
        for at in indexes:
            key, value = records.keys[at], records.values[at]
            if key is None:
                state.dropped += 1
                continue
            timestamp = records.timestamps[at]
            rows[key] = None if value is None else _pack(timestamp) + value
            times[key] = timestamp
            _forward(out, task, key, value, timestamp, records, at)
        state.put_many(task, store, list(rows), list(rows.values()), list(times.values()))
    return out


def peek(node: NodeSpec, operation: Peek | Foreach, records: Records, state: StepState) -> Records:
    """Calls the function with each record; what it fails on is passed over, if the handler says so."""
    refused: list[int] = []
    for at in range(len(records)):
        key, value = _sides(node, records, at)
        try:
            operation.function(key, value)
        except Exception as problem:
            refuse(node, TaskId(node.subtopology, records.parts[at]), records, at, problem, state)
            refused.append(at)
    return records.without(refused) if refused else records


def print_all(node: NodeSpec, operation: Print, records: Records, _state: StepState) -> Records:
    """Prints each record."""
    for at in range(len(records)):
        key, value = _sides(node, records, at)
        print(f"[{operation.label}]: {key}, {value}", flush=True)
    return records


def _sides(node: NodeSpec, records: Records, at: int) -> tuple[object, object]:
    return node.key_serde.deserialize(records.keys[at]), node.value_serde.deserialize(records.values[at])


def _forward(
    out: Records, task: TaskId, key: bytes, value: bytes | None, timestamp: int, records: Records, at: int
) -> None:
    out.parts.append(task.partition)
    out.keys.append(key)
    out.values.append(value)
    out.timestamps.append(timestamp)
    out.offsets.append(records.offsets[at])
    out.sequences.append(records.sequences[at])
    headers: Headers | None = records.header(at)
    assert out.headers is not None
    out.headers.append(headers)


def refuse(node: NodeSpec, task: TaskId, records: Records, at: int, problem: Exception, state: StepState) -> None:
    """Passes over a record that the node's function fails on, if the handler says so; else raises."""
    topic, offset = "|".join(node.topics) or node.name, records.offsets[at]
    context = ErrorContext(
        task=task, node=node.name, topic=topic, partition=task.partition, offset=-1 if offset is None else offset,
        timestamp=records.timestamps[at], headers=tuple(records.header(at) or ()),
    )  # fmt: skip
    key, value = records.keys[at], records.values[at]
    try:
        refused = state.handlers.judge(context, _decoded(node, key, value, context), problem, in_sink=False)
    except Exception as failure:
        problem, refused = failure, None
    if refused is None:
        what = str(problem) if isinstance(problem, SerdeError) else f"{type(problem).__name__}: {problem}"
        raise RecordError(
            f"the function of {node.name} failed: {what}",
            task=str(task), topic=topic, partition=task.partition, offset=context.offset or 0,
        ) from problem  # fmt: skip
    state.dropped += 1
    state.passed_over.add(refused, key, value)


def _decoded(node: NodeSpec, key: bytes | None, value: bytes | None, context: ErrorContext) -> Record:
    """For a handler; what can't be read, which may be what is wrong, stays bytes."""
    sides: list[object] = []
    for data, serde in ((key, node.key_serde), (value, node.value_serde)):
        try:
            sides.append(serde.deserialize(data))
        except SerdeError:
            sides.append(data)
    return Record(sides[0], sides[1], context.timestamp, context.headers)
