"""The record cache of a table's store: of the changes of a row in a batch it forwards one, the last, when the batch ends
(CachingKeyValueStore, ThreadCache, NamedCache).

Decides the order, that of the rows' last changes, and the old value, that of the row before the batch. A row that has come and
gone again is not forwarded. Which tables have one is ``operation_table.record_caches``'s; rows and changelog are the store's.
"""

from __future__ import annotations

from collections.abc import Hashable

from tidemill.operators.context import Context, RecordMetadata, WaitedRecord
from tidemill.operators.record import Record, change_of, record_of
from tidemill.topology.values import Value


class RecordCache:
    """Of one table node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._held: dict[Hashable, tuple[Record, RecordMetadata, Value, bool]] = {}
        """By row: its last change, that one's source record, the value before the batch, whether there was no row then."""

    def put(self, row: Hashable, record: Record, is_new: bool) -> None:
        """Holds a change back (``Changed``)."""
        earlier = self._held.pop(row, None)  # so that it comes last
        old, was_new = (record[1].old, is_new) if earlier is None else earlier[2:]
        self._held[row] = record, self._context.origin, old, was_new

    def flush(self) -> None:
        """Forwards what it holds."""
        held, self._held = self._held, {}
        for record, origin, old, was_new in held.values():
            key, (new, _old, is_latest), timestamp, headers = record
            if new is not None or not was_new:
                made = record_of((key, change_of((new, old, is_latest)), timestamp, headers))
                self._context.forward_as(WaitedRecord(made, origin, None), made)
