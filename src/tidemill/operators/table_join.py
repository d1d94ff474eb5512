"""Joins of two tables by their keys: a change of either side becomes a change of the result.

Decides, with Kafka Streams' rules, for which changes there is a result. ``keeps_this`` and ``keeps_other`` say whether a row of
one side alone makes a result. An inner join forwards a change if and only if the other side has a row; a left or outer join
forwards every change that may have had a result before or has one now. A result has the later timestamp of both rows, or the
change's if there is no other row. Changes of versioned tables that are not the latest are dropped. Null keys are dropped.

The joined table, if it has no store, answers lookups by joining the rows of its two tables.
"""

from __future__ import annotations

from tidemill.operators.context import AsOfGetter, Context
from tidemill.operators.materialized_table import MaterializedTable
from tidemill.operators.record import Change, Record
from tidemill.operators.stream_join import with_key
from tidemill.topology import join_operations as op
from tidemill.topology.values import TableRow, Value, is_immutable


class TableTableJoin:
    """KTABLE-JOINTHIS and KTABLE-JOINOTHER: KTableKTable Inner, Left, Right and Outer join."""

    get_as_of: AsOfGetter | None = None

    def __init__(self, operation: op.TableTableJoin, context: Context) -> None:
        self._context, self._forward = context, context.forward
        self._sends_old, self._is_versioned = context.sends_old, context.is_versioned
        self._keeps_this, self._keeps_other = operation.keeps_this, operation.keeps_other
        self._other = context.table(operation.other)
        joiner = with_key(operation.joiner, operation.takes_key)
        self._join = joiner if operation.is_left else lambda key, this, other: joiner(key, other, this)

    def process(self, record: Record) -> None:
        key, (new, old, is_latest), timestamp, headers = record
        if key is None or (self._is_versioned and not is_latest):
            self._context.drop()
            return
        found = self._other(key)
        if found is None:
            if not self._keeps_this or (new is None and old is None):
                return
            other = None
        else:
            other, other_time = found
            if other_time > timestamp:
                timestamp = other_time
        alone = self._keeps_other and other is not None
        join = self._join
        joined = join(key, new, other) if new is not None or alone else None
        before = join(key, old, self._unshared(key, other)) if self._sends_old and (old is not None or alone) else None
        self._forward(Record(key, Change(joined, before, is_latest), timestamp, headers))

    def _unshared(self, key: object, other: Value) -> Value:
        """The other side's value for the joiner's second call: the first one may have changed it in place."""
        again = None if is_immutable(other) else self._other(key)
        return other if again is None else again[0]

    def get(self, key: object) -> TableRow | None:
        """The result of the rows as they are now."""
        this = self._context.table(self._context.parents[0])(key)
        if this is None and not self._keeps_other:
            return None
        other = self._other(key)
        if other is None and (this is None or not self._keeps_this):
            return None
        value, time = (None, -1) if this is None else this
        other_value, other_time = (None, -1) if other is None else other
        joined = self._join(key, value, other_value)
        return None if joined is None else (joined, max(time, other_time))


class TableJoinMerge:
    """KTABLE-MERGE: the results of both sides, kept in a store or not.

    Where one record changes both tables, as in a join of a table with what is made of it, what a side takes for the old result
    never was one. Below a record cache the old value is the stored one. Without a cache it is the side's, as in Kafka Streams,
    and a grouped table below subtracts what was never added.
    """

    def __init__(self, operation: op.TableJoinMerge, context: Context) -> None:
        self._context, self._forward, self._sends_old = context, context.forward, context.sends_old
        self._table = None if operation.store is None else MaterializedTable(operation.store, context)
        self._is_cached = operation.store is not None and context.is_cached(operation.store)
        self.get_as_of = None if self._table is None else self._table.get_as_of

    def process(self, record: Record) -> None:
        key, (new, old, is_latest), timestamp, headers = record
        table = self._table
        if table is None:
            self._forward(Record(key, Change(new, old if self._sends_old else None, is_latest), timestamp, headers))
            return
        table.change(key, new, table.before(key) if self._is_cached else old, timestamp, headers)

    def get(self, key: object) -> TableRow | None:
        """The row, from the store or joined again by the first table's side."""
        if self._table is not None:
            row: TableRow | None = self._table.get(key)
            return row
        return self._context.table(self._context.parents[0])(key)
