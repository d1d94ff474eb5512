"""Joins a batch of stream records with a table's rows: the shortcut of KStreamKTableJoin, one read of the store for a batch.

Decides which row each record sees: the table as it was before the batch, with those of the batch's changes that came before
the record. Both are given in the order of their sequences, so that the result is the per-record operator's
(``operators.stream_table_join``), record for record. Leaves keeping the table to the table's own node, which must have run
before: what it forwarded are the changes, and the rows before the batch are read past what it has written. Rows are found by
the bytes of the store's keys, which those of the stream need not be: the JVM has other bytes in place of some serdes'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidemill.dsl.serdes_windowed import SessionWindowedSerde, TimeWindowedSerde
from tidemill.ids import TaskId
from tidemill.operators.stateless import plain
from tidemill.steps.rows.codecs_wire import PairSerde, as_it_is, window_of_struct
from tidemill.steps.rows.records import Records
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.record_calls import failed_on
from tidemill.steps.vector.retained_rows import IMMUTABLE
from tidemill.topology.functions import OfColumns
from tidemill.topology.join_operations import StreamTableJoin
from tidemill.topology.spark_operations import makes_pairs
from tidemill.topology.windows import Windowed

_TIMESTAMP_SIZE = 8
_UNREAD = object()


def join_with_table(node: NodeSpec, operation: StreamTableJoin, records: Records, state: StepState) -> Records:
    """The records that ``node`` forwards for ``records``, in their order within each task.

    ``state.forwarded`` has what the table's node has forwarded in this batch.
    """
    store, changes = node.lookup_store, state.forwarded.get(operation.table)
    assert store is not None
    kept_with = state.stores[store].value_serde
    assert kept_with is not None
    decode = as_it_is if makes_pairs(operation) else kept_with.deserialize
    keeps_values = makes_pairs(operation) or type(kept_with) in IMMUTABLE
    join = _TableLookup(node, operation, records)
    stored_keys = _stored_keys(node, records)
    changes_of = {} if changes is None else _by_part(changes)
    for part, indexes in sorted(_by_part(records).items()):
        task = TaskId(node.subtopology, part)
        keys = sorted({key for at in indexes if (key := stored_keys[at]) is not None and records.values[at] is not None})
        rows = dict(zip(keys, state.readers[task].get_many(store, keys), strict=True)) if keys else {}
        held: dict[bytes, bytes | None] = {key: row[_TIMESTAMP_SIZE:] for key, row in rows.items() if row is not None}
        before = _Table(held, decode, keeps_values=keeps_values)
        join.run(task, indexes, stored_keys, before, _Changes(changes, changes_of.get(part, []), before))
    state.dropped += join.dropped
    return join.joined()


def _stored_keys(node: NodeSpec, records: Records) -> Sequence[bytes | None]:
    """The keys as the table's store has them."""
    read, kept = node.key_serde.deserialize, node.lookup_key_serde
    if kept is None:
        return records.keys
    of: dict[bytes | None, bytes | None] = {None: None}
    for at, key in enumerate(records.keys):
        if key not in of:
            try:
                value = read(key)
                if isinstance(kept, (TimeWindowedSerde, SessionWindowedSerde)) and not isinstance(value, Windowed):
                    value = window_of_struct(kept, value)  # of the JVM
                of[key] = kept.serialize(value)
            except BaseException as problem:
                raise failed_on(node, TaskId(node.subtopology, records.parts[at]), records, at, problem) from problem
    return [of[key] for key in records.keys]


class _Table:
    """The rows that records may see, as they are at one moment; immutable values are read when they are first seen, others, which
    a joiner may change, for each record."""

    __slots__ = ("_decode", "_keeps_values", "rows", "seen")

    def __init__(
        self, rows: dict[bytes, bytes | None], decode: Callable[[bytes | None], object], *, keeps_values: bool
    ) -> None:
        self.rows, self._decode, self._keeps_values = rows, decode, keeps_values
        self.seen: dict[bytes | None, object] = {}
        """Values that were read and may be used again: looked at before ``read`` is called."""

    def put(self, key: bytes, row: bytes | None) -> None:
        self.rows[key] = row
        self.seen.pop(key, None)

    def read(self, key: bytes) -> object:
        value = self._decode(self.rows.get(key))
        if self._keeps_values:
            self.seen[key] = value
        return value


def _by_part(records: Records) -> dict[int, list[int]]:
    """The records of each partition, in the order of their sequences."""
    found: dict[int, list[int]] = {}
    for at, part in enumerate(records.parts):
        found.setdefault(part, []).append(at)
    sequences: Sequence[Any] = records.sequences
    for indexes in found.values():
        indexes.sort(key=sequences.__getitem__)
    return found


class _TableLookup:
    """The join of a batch's stream records: its functions, and what they have made so far."""

    def __init__(self, node: NodeSpec, operation: StreamTableJoin, records: Records) -> None:
        self.dropped = 0
        self._node, self._records, self._left, self._takes_key = node, records, operation.left, operation.takes_key
        assert not isinstance(operation.joiner, OfColumns), "such a join makes pairs"
        self._join = plain(operation.joiner)
        self._read_key = node.key_serde.deserialize
        self._read: Callable[[bytes | None], object] = node.value_serde.deserialize
        self._write: Callable[[Any], bytes | None] = node.out_value_serde.serialize
        if makes_pairs(operation):  # which the JVM opens: no value is read here
            assert isinstance(node.out_value_serde, PairSerde)
            self._read, self._write = as_it_is, node.out_value_serde.of_bytes
        self._found: list[int] = []
        self._values: list[bytes | None] = []

    def run(
        self, task: TaskId, indexes: Sequence[int], stored_keys: Sequence[bytes | None], table: _Table, changes: _Changes
    ) -> None:
        """The records of a task, which are those at ``indexes``; ``changes`` of ``table`` are made as far as each has come."""
        records, left, takes_key = self._records, self._left, self._takes_key
        join, read_key, read, write = self._join, self._read_key, self._read, self._write
        sequences: list[Any] = records.sequences
        keys, values, seen = records.keys, records.values, table.seen
        for at in indexes:
            if changes.next_sequence < sequences[at]:
                changes.advance(sequences[at])
            key, value = keys[at], values[at]
            if value is None or (key is None and not left):
                self.dropped += 1
                continue
            try:
                stored = stored_keys[at]
                row = seen.get(stored, _UNREAD)
                if row is _UNREAD:
                    row = None if stored is None else table.read(stored)
                if row is None and not left:
                    continue
                result = join(read_key(key), read(value), row) if takes_key else join(read(value), row)
                self._values.append(write(result))
            except BaseException as problem:
                raise failed_on(self._node, task, records, at, problem) from problem
            self._found.append(at)

    def joined(self) -> Records:
        """The records of all tasks that were run: those of the stream, with the values that the join has made."""
        records, found = self._records, self._found
        return Records(
            parts=[records.parts[at] for at in found],
            keys=[records.keys[at] for at in found],
            values=self._values,
            timestamps=[records.timestamps[at] for at in found],
            offsets=[records.offsets[at] for at in found],
            sequences=[records.sequences[at] for at in found],
            headers=None if records.headers is None else [records.headers[at] for at in found],
        )


class _Changes:
    """The batch's changes of one task's table, applied as far as the stream has come."""

    __slots__ = ("_changes", "_indexes", "_next", "_table", "next_sequence")

    def __init__(self, changes: Records | None, indexes: list[int], table: _Table) -> None:
        self._changes, self._indexes, self._table, self._next = changes, indexes, table, 0
        self.next_sequence: float = self._sequence()

    def advance(self, before: int) -> None:
        """Applies the changes that came before the sequence ``before``."""
        changes = self._changes
        while self.next_sequence < before:
            assert changes is not None
            at = self._indexes[self._next]
            key = changes.keys[at]
            if key is not None:
                self._table.put(key, changes.values[at])
            self._next += 1
            self.next_sequence = self._sequence()

    def _sequence(self) -> float:
        if self._changes is None or self._next == len(self._indexes):
            return float("inf")
        sequence = self._changes.sequences[self._indexes[self._next]]
        return float("-inf") if sequence is None else sequence
