"""The record cache of a table's store: of the changes of a row in a batch it forwards one, the last, when the batch ends
(CachingKeyValueStore, ThreadCache, NamedCache).

Decides the order, that of the rows' last changes, and the old value, that of the row before the batch. A row that has come and
gone again is not forwarded. Which stores have one is ``operation_table.needs_last_changes``'; rows and changelog are the store's.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from tidemill.operators.context import Context, RecordMetadata, WaitedRecord
from tidemill.operators.record import Record, change_of, record_of


class _Held(NamedTuple):
    """``is_new``: there was no such row before the batch."""

    record: Record
    origin: RecordMetadata
    is_new: bool


class RecordCache:
    """Of one table node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._held: dict[Hashable, _Held] = {}

    def put(self, row: Hashable, record: Record, is_new: bool) -> None:
        """Holds a change back (``Changed``)."""
        earlier = self._held.pop(row, None)  # so that it comes last
        if earlier is not None:
            key, (new, _old, is_latest), timestamp, headers = record
            record = record_of((key, change_of((new, earlier.record[1].old, is_latest)), timestamp, headers))
            is_new = earlier.is_new
        self._held[row] = _Held(record, self._context.origin, is_new)

    def flush(self) -> None:
        """Forwards what it holds."""
        held, self._held = self._held, {}
        for record, origin, is_new in held.values():
            if not is_new or record[1].new is not None:
                self._context.forward_as(WaitedRecord(record, origin, None), record)
