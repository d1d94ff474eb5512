"""The record cache of a table's store: of the changes of a row in a batch it forwards one, the last, when the batch ends
(CachingKeyValueStore, ThreadCache, NamedCache).

Decides the order, that of the rows' last changes, and the old value, that of the row before the batch. A row that has come and
gone again is not forwarded, where that is known. Which tables have one is ``operation_table.record_caches``'s; rows and
changelog are the store's. Records that must not meet a row whose change has not been forwarded yet wait here for that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from tidemill.operators.context import Context, RecordMetadata, WaitedRecord
from tidemill.operators.record import Record, change_of, record_of
from tidemill.topology.values import Key, Value, is_immutable


class RecordCache:
    """Of one table node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._held: dict[Hashable, tuple[WaitedRecord, Value, bool]] = {}
        """By row: its last change and where that one is from, the value before the batch, whether there was no row then."""

    def put(self, row: Hashable, record: Record, is_new: bool) -> None:
        """Holds a change back (``Changed``)."""
        earlier = self._held.pop(row, None)  # so that it comes last
        old, was_new = (record[1].old, is_new) if earlier is None else earlier[1:]
        self._held[row] = WaitedRecord(record, self._context.origin, self._context.waited), old, was_new

    def flush(self) -> Iterator[RecordMetadata]:
        """Forwards what it holds; yields behind each change the source record that has made it."""
        held, self._held = self._held, {}
        for waited, old, was_new in held.values():
            key, (new, _old, is_latest), timestamp, headers = waited.record
            if new is not None or not was_new:
                change = change_of((self._as_stored(key, new), old, is_latest))
                self._context.forward_as(waited, record_of((key, change, timestamp, headers)))
                yield waited.origin

    def _as_stored(self, key: Key, new: Value) -> Value:
        """The new value as it was when it was put: the program may have changed the object since, as for another key."""
        row = None if is_immutable(new) else self._context.table(self._context.node)(key)
        return new if row is None else row[0]  # none: a window that has expired meanwhile


class WaitingRecords:
    """Of one node that ``waits_for_changes``."""

    def __init__(self, context: Context) -> None:
        """``context``: forwards to the node itself."""
        self._context = context
        self._waiting: list[WaitedRecord] = []

    def put(self, record: Record) -> None:
        self._waiting.append(WaitedRecord(record, self._context.origin, self._context.waited))

    def flush(self) -> Iterator[RecordMetadata]:
        """Hands them over in their order; yields behind each the source record that it comes of."""
        waiting, self._waiting = self._waiting, []
        for waited in waiting:
            self._context.forward_as(waited, waited.record)
            yield waited.origin
