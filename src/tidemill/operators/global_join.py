"""A stream's records with the rows of a global table, found by a key that is computed from each record.

Decides as ``stream_table_join``: null values are dropped; where the computed key is null, an inner join drops the record and a
left join lets it go on without a row. Key and timestamp of the result are the stream record's. The row is the one that the
instance has at that moment: global tables are not read in step with streams.
"""

from __future__ import annotations

from typing import Any

from tidemill.operators.context import Context
from tidemill.operators.record import Record
from tidemill.operators.stateless import plain
from tidemill.operators.stream_join import with_key
from tidemill.topology import operations as op


class GlobalTableJoin:
    """KStreamGlobalKTableJoin."""

    def __init__(self, operation: op.GlobalTableJoin, context: Context) -> None:
        self._context, self._forward = context, context.forward
        self._left = operation.left
        self._select = plain(operation.selector)
        self._join = with_key(operation.joiner, operation.takes_key)
        self._table: Any = context.store(operation.store)

    def process(self, record: Record) -> None:
        key, value, timestamp, headers = record
        if value is None:
            self._context.drop()
            return
        wanted = self._select(key, value)
        if wanted is None and not self._left:
            self._context.drop()
            return
        row = None if wanted is None else self._table.get(wanted)
        if row is not None:
            self._forward(Record(key, self._join(key, value, row[0]), timestamp, headers))
        elif self._left:
            self._forward(Record(key, self._join(key, value, None), timestamp, headers))
