"""The vectorised nodes with a key-value store: counts, reductions, aggregations and tables.

Decides their results (Kafka Streams' null rules, result timestamps). A count adds up a batch; the others go record by record in
offset order, where order matters. Windows and sessions are ``window_count``'s and ``session_fold``'s.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill.errors import StopError, StoredBytesError
from tidemill.ids import TaskId
from tidemill.operators.stored_serdes import StoredSerde
from tidemill.steps.rows.codecs_wire import EntriesSerde, PairSerde
from tidemill.steps.rows.records import Records
from tidemill.steps.step_spec import NodeSpec, StoreSpec
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.record_calls import refuse
from tidemill.task.raw_records import Headers
from tidemill.topology.operations import Aggregate, Count, Reduce, TableFilter, TableMapValues, TableSource
from tidemill.topology.spark_operations import ChangedValues, HeldAggregates, MergedAggregates

_LONG = struct.Struct(">q")
_pack, _unpack = _LONG.pack, _LONG.unpack_from


def _by_task(node: NodeSpec, parts: Sequence[int]) -> dict[TaskId, list[int]]:
    groups: dict[int, list[int]] = {}
    for at, part in enumerate(parts):
        groups.setdefault(part, []).append(at)
    return {TaskId(node.subtopology, part): groups[part] for part in sorted(groups)}


def count(node: NodeSpec, operation: Count, records: Records, state: StepState) -> Records:
    """Adds how many records each key got; null keys (and what had a null value) are dropped and counted."""
    out = Records.empty(headers=records.headers is not None, olds=node.sends_old)
    for task, indexes in _by_task(node, records.parts).items():
        sums, latest, last = _added_up(records, indexes, state)
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
                if out.olds is not None:
                    out.olds.append(None if old is None else old[8:])
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


def _added_up(
    records: Records, indexes: Sequence[int], state: StepState
) -> tuple[dict[bytes, int], dict[bytes, int], dict[bytes, int]]:
    """By key: how many records it got, their latest timestamp, and where the last of them is."""
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
    return sums, latest, last


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
    """Record by record in offset order; forwards each key's last aggregate, as a record cache does, and so no tombstone of a row
    that was not there before the batch; writes no deletion of a row that is not there."""
    out = Records.empty(olds=node.sends_old)
    for task, indexes in _by_task(node, records.parts).items():
        usable = [at for at in indexes if records.keys[at] is not None and records.values[at] is not None]
        state.dropped += len(indexes) - len(usable)
        distinct = sorted({key for at in usable if (key := records.keys[at]) is not None})
        held = dict(zip(distinct, state.get_many(task, store, distinct), strict=True))
        before = dict(held)
        last: dict[bytes, int] = {}
        written: dict[bytes, int] = {}
        times: dict[bytes, int] = {}
        for at in usable:
            key, value = records.keys[at], records.values[at]
            assert key is not None
            assert value is not None
            old = held[key]
            try:
                after = fold(key, value, None if old is None else old[8:])
            except BaseException as problem:
                refuse(node, task, records, at, problem, state)
                continue
            timestamp = records.timestamps[at]
            if old is not None and after is not None:
                timestamp = max(timestamp, _unpack(old)[0])
            held[key] = None if after is None else _pack(timestamp) + after
            times[key] = timestamp
            last.pop(key, None)
            last[key] = at
            if after is not None or old is not None:
                written[key] = at
        logged = [records.timestamps[at] if held[key] is None else times[key] for key, at in written.items()]
        rows, headers = [held[key] for key in written], [records.header(at) for at in written.values()]
        state.put_many(task, store, list(written), rows, logged, headers)
        for key in last:
            new, old = _value_of(held[key]), _value_of(before[key])
            if new is not None or old is not None:
                _forward(out, task, key, new, times[key], records, last[key], old)
    return out


def with_held(node: NodeSpec, operation: HeldAggregates, records: Records, state: StepState) -> Records:
    """For each key what the store holds and the batch's values, as one value for the JVM, which merges them, in the place of the
    last record; null keys and values are dropped."""
    entries = node.out_value_serde
    assert isinstance(entries, EntriesSerde)
    out = Records.empty()
    for task, indexes in _by_task(node, records.parts).items():
        came: dict[bytes, list[int]] = {}
        for at in indexes:
            key = records.keys[at]
            if key is None or records.values[at] is None:
                state.dropped += 1
            else:
                came.setdefault(key, []).append(at)
        distinct = sorted(came)
        for key, row in zip(distinct, state.get_many(task, operation.store, distinct), strict=True):
            held = [] if row is None else [(_unpack(row)[0], row[8:])]
            values = entries.of_bytes(held + [(records.timestamps[at], records.values[at]) for at in came[key]])
            last = came[key][-1]
            _forward(out, task, key, values, records.timestamps[last], records, last)
    return out


def keep_latest(
    node: NodeSpec, operation: MergedAggregates | TableSource | TableFilter | TableMapValues, records: Records, state: StepState
) -> Records:
    """Forwards every update, or the last of each key as the record caches of operators do (``operators.record_cache``), except
    tombstones of a filter for keys that did not pass before, and over a cache those for rows that are not there; stores the last
    one; drops null keys."""
    store = operation.store
    assert store is not None
    out = Records.empty(olds=node.sends_old)
    is_cached = state.stores[store].caching
    for task, indexes in _by_task(node, records.parts).items():
        rows: dict[bytes, bytes | None] = {}
        times: dict[bytes, int] = {}
        headers: dict[bytes, Headers | None] = {}
        asked = [records.keys[at] for at in indexes if node.sends_old or (is_cached and records.values[at] is None)]
        held = _held(task, store, asked, state) if asked else {}
        changes: dict[bytes, tuple[int, bytes | None]] = {}
        """Of each key its last change, and the value before the first, where that is known."""
        for at in indexes:
            key, value = records.keys[at], records.values[at]
            if key is None:
                state.dropped += 1
                continue
            old = held.get(key)
            if node.drops_null_changes and value is None and old is None:
                continue
            timestamp = records.timestamps[at]
            deletes_nothing = is_cached and value is None and old is None
            if not deletes_nothing:
                held[key] = value
                rows[key] = None if value is None else _pack(timestamp) + value
                times[key], headers[key] = timestamp, records.header(at)
            if node.forwards_last:
                changes[key] = at, changes.pop(key)[1] if key in changes else old
            elif not deletes_nothing:
                _forward(out, task, key, value, timestamp, records, at, old)
        for key, (at, old) in changes.items():
            if old is not None or records.values[at] is not None:
                _forward(out, task, key, records.values[at], records.timestamps[at], records, at, old)
        state.put_many(task, store, list(rows), list(rows.values()), list(times.values()), list(headers.values()))
    return out


def changed_values(node: NodeSpec, _operation: ChangedValues, records: Records, _state: StepState) -> Records:
    """Forwards each change as a pair of new and old value, for the JVM; nothing if both are null."""
    pair, olds = node.out_value_serde, records.olds
    assert isinstance(pair, PairSerde)
    assert olds is not None
    both = list(zip(records.values, olds, strict=True))
    made = replace(records, values=[pair.of_bytes(sides) for sides in both], olds=None)
    return made.without([at for at, sides in enumerate(both) if sides == (None, None)]) if (None, None) in both else made


def _held(task: TaskId, store: str, keys: Sequence[bytes | None], state: StepState) -> dict[bytes, bytes | None]:
    distinct = sorted({key for key in keys if key is not None})
    return {key: _value_of(row) for key, row in zip(distinct, state.get_many(task, store, distinct), strict=True)}


def _value_of(row: bytes | None) -> bytes | None:
    """The value of a row, without its timestamp."""
    return None if row is None else row[8:]


def _forward(
    out: Records, task: TaskId, key: bytes, value: bytes | None, timestamp: int, records: Records, at: int,
    old: bytes | None = None,
) -> None:  # fmt: skip
    out.parts.append(task.partition)
    out.keys.append(key)
    out.values.append(value)
    out.timestamps.append(timestamp)
    out.offsets.append(records.offsets[at])
    out.sequences.append(records.sequences[at])
    headers: Headers | None = records.header(at)
    assert out.headers is not None
    out.headers.append(headers)
    if out.olds is not None:
        out.olds.append(old)
