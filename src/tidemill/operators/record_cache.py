"""The record cache of a table's store: of the changes of a row in a batch it forwards one, the last, when the batch ends
(CachingKeyValueStore, ThreadCache, NamedCache).

Decides the order (that of the rows' last changes) and the old value (the row's before the batch). A row that was created and
deleted in one batch is not forwarded. ``operation_table.record_caches`` decides which
tables have a cache; rows and changelog are written by the store. Records that must not meet a row whose
change has not been forwarded yet wait here until it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from tidemill.operators.context import Context, RecordMetadata, WaitedRecord
from tidemill.operators.record import Record, change_of, record_of
from tidemill.topology.values import Key, Value, is_immutable


class RecordCache:
    """The cache of one table node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._held: dict[Hashable, tuple[WaitedRecord, Value, bool]] = {}
        """By row: its last change with that one's origin, the value before the batch, and whether there was no row then."""

    def put(self, row: Hashable, record: Record, is_new: bool) -> None:
        """Holds a change back (``Changed``)."""
        earlier = self._held.pop(row, None)  # so that it comes last
        old, was_new = (record[1].old, is_new) if earlier is None else earlier[1:]
        self._held[row] = WaitedRecord(record, self._context.origin, self._context.waited), old, was_new

    def flush(self) -> Iterator[RecordMetadata]:
        """Forwards the changes that it holds; after each, yields the source record that made it."""
        held, self._held = self._held, {}
        for waited, old, was_new in held.values():
            key, (new, _old, is_latest), timestamp, headers = waited.record
            if new is not None or not was_new:
                change = change_of((self._as_stored(key, new), old, is_latest))
                self._context.forward_as(waited, record_of((key, change, timestamp, headers)))
                yield waited.origin

    def _as_stored(self, key: Key, new: Value) -> Value:
        """The new value as it was put, read from the store: the program may have changed the object since."""
        row = None if is_immutable(new) else self._context.table(self._context.node)(key)
        return new if row is None else row[0]  # None: the window has expired since


class WaitingRecords:
    """The records that wait before one node (``operation_table.waits_for_changes``)."""

    def __init__(self, context: Context) -> None:
        """``context``: forwards to the node itself."""
        self._context = context
        self._waiting: list[WaitedRecord] = []

    def put(self, record: Record) -> None:
        self._waiting.append(WaitedRecord(record, self._context.origin, self._context.waited))

    def flush(self) -> Iterator[RecordMetadata]:
        """Hands them to the node in their order; after each, yields the source record that it comes from."""
        waiting, self._waiting = self._waiting, []
        for waited in waiting:
            self._context.forward_as(waited, waited.record)
            yield waited.origin
