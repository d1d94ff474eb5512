"""A stream's records with the rows of a table, as the table is when each record comes; and with the rows of a global table.

Decides what is dropped and forwarded: null values are dropped; a record without a key to look up is dropped by an inner
join and joined with null by a left join. The result has the stream record's timestamp. A versioned table is looked up as
of the record's timestamp; with a grace period the record waits first in ``grace_buffer``, until the stream is that far ahead.
Leaves how rows are found to the table's node.

With a global table the row is found by a key that is computed from each record. Where it is null, an inner join drops the
record and a left join joins it with null. Key and timestamp of the result are the stream record's; the row is the one
that the instance has at that moment: global tables are not read in step with streams.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.operators.context import Context
from tidemill.operators.grace_buffer import GraceBuffer
from tidemill.operators.record import Record
from tidemill.operators.stateless import plain
from tidemill.operators.stream_join import with_key
from tidemill.topology import join_operations as op
from tidemill.topology.values import Key, TableRow, Value


class StreamTableJoin:
    """KStreamKTableJoin."""

    def __init__(self, operation: op.StreamTableJoin, context: Context) -> None:
        self._context, self._forward = context, context.forward
        self._left = operation.left
        self._join = with_key(operation.joiner, operation.takes_key)
        self._look_up = context.table(operation.table)
        self._look_up_as_of: Callable[[object, int], TableRow | None] | None = context.table_as_of(operation.table)
        self._grace_ms = operation.grace_ms
        self._buffer: GraceBuffer | None = None if operation.buffer is None else context.store(operation.buffer)

    def process(self, record: Record) -> None:
        key, value, timestamp, headers = record
        if value is None or (key is None and not self._left):
            self._context.drop()
            return
        if self._buffer is not None and key is not None:
            self._wait(self._buffer, record)
            return
        as_of = self._look_up_as_of
        row: TableRow | None = None
        if key is not None:
            row = self._look_up(key) if as_of is None else as_of(key, timestamp)
        if row is not None:
            self._forward(Record(key, self._join(key, value, row[0]), timestamp, headers))
        elif self._left:
            self._forward(Record(key, self._join(key, value, None), timestamp, headers))

    def _wait(self, buffer: GraceBuffer, record: Record) -> None:
        grace_ms = self._grace_ms or 0
        if not buffer.put(record, self._context.origin, grace_ms):
            joined = self._joined_as_of(record)
            if joined is not None:
                self._forward(joined)
            return
        if grace_ms and self._context.defers:
            return
        # A joiner that fails on one of them must not keep the others: Kafka Streams asks about the record that has just come, and
        # looks at the one to blame again with each that comes later.
        for waited in buffer.take_due(grace_ms):
            try:
                joined = self._joined_as_of(waited.record)
            except BaseException as problem:  # also sys.exit(): the record that has just come is not the one to blame
                self._context.refuse(waited, problem)
                continue
            if joined is not None:
                self._context.forward_as(waited, joined)

    def _joined_as_of(self, record: Record) -> Record | None:
        assert self._look_up_as_of is not None
        key, value, timestamp, headers = record
        row = self._look_up_as_of(key, timestamp)
        if row is None and not self._left:
            return None
        return Record(key, self._join(key, value, None if row is None else row[0]), timestamp, headers)


class GlobalTableJoin:
    """KStreamGlobalKTableJoin."""

    def __init__(self, operation: op.GlobalTableJoin, context: Context) -> None:
        self._context, self._forward = context, context.forward
        self._left = operation.left
        self._select = plain(operation.selector)
        self._join = _with_both_keys(operation)
        self._table = context.store(operation.store)

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
            self._forward(Record(key, self._join(key, wanted, value, row[0]), timestamp, headers))
        elif self._left:
            self._forward(Record(key, self._join(key, wanted, value, None), timestamp, headers))


def _with_both_keys(operation: op.GlobalTableJoin) -> Callable[[Key, Key, Value, Value], Value]:
    """The joiner, called with the stream's key, the selected one and both values."""
    if operation.takes_mapped_key:
        return plain(operation.joiner)  # type: ignore[arg-type]  # no function of Columns takes both keys
    join = with_key(operation.joiner, operation.takes_key)
    return lambda key, _wanted, left, right: join(key, left, right)
