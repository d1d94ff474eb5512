"""Operators of tables that keep their keys: sources, filters, mappings, and the way back to a stream.

Decides the forwarded changes. They have old values if a node below needs them (``Context.sends_old``): from the
store if there is one, else computed from the change.

Each table answers ``get(key)`` with its row, from its store or, without one, from the table above; over a versioned store
``get_as_of(key, timestamp)`` gives the row as of then.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.operators.context import AsOfGetter, Context
from tidemill.operators.materialized_table import MaterializedTable
from tidemill.operators.record import Change, Record, change_of, record_of
from tidemill.operators.stateless import Step, plain
from tidemill.topology import operations as op
from tidemill.topology.spark_operations import ChangedValues
from tidemill.topology.values import TableRow


class TableSource:
    """KTABLE-SOURCE, KSTREAM-TOTABLE: the latest value of each key; null keys are dropped and counted."""

    def __init__(self, operation: op.TableSource, context: Context) -> None:
        self._context, self._forward = context, context.forward
        self._table = None if operation.store is None else MaterializedTable(operation.store, context)
        self._drops_null_changes = operation.drops_null_changes
        self.get_as_of: AsOfGetter | None = None if self._table is None else self._table.get_as_of
        if self._table is not None:
            self.get = self._table.get

    def process(self, record: Record) -> None:
        key, value, timestamp, headers = record
        if key is None:
            self._context.drop()
            return
        table = self._table
        if table is None:
            self._forward(record_of((key, change_of((value, None, True)), timestamp, headers)))
            return
        before = table.before(key)
        if value is None and before is None and self._drops_null_changes:
            return
        table.change(key, value, before, timestamp, headers)


class DerivedTable:
    """A table whose rows are ``compute(key, value)`` of another's, kept in a store or not."""

    def __init__(
        self, store: str | None, context: Context, compute: Callable[[object, object], object], *, drops_null_changes: bool
    ) -> None:
        self._context, self._forward, self._compute = context, context.forward, compute
        self._sends_old = context.sends_old
        self._drops_null_changes = drops_null_changes and context.sends_old
        self._table = None if store is None else MaterializedTable(store, context)
        if self._table is not None:
            self.get: Callable[[object], TableRow | None] = self._table.get
            self.get_as_of: AsOfGetter | None = self._table.get_as_of
        else:
            above = context.table_as_of(context.parents[0])
            self.get = self._computed
            self.get_as_of = None if above is None else self._computed_as_of

    def process(self, record: Record) -> None:
        key, change, timestamp, headers = record
        value, before, is_latest = change
        new, old = self._compute(key, value), self._old(key, before)
        if new is None and old is None and self._drops_null_changes:
            return
        if self._table is not None:
            self._table.change(key, new, old, timestamp, headers)
        else:
            self._forward(record_of((key, change_of((new, old, is_latest)), timestamp, headers)))

    def _old(self, key: object, before: object) -> object:
        if self._table is not None:
            return self._table.before(key)
        return self._compute(key, before) if self._sends_old else None

    def _computed(self, key: object) -> TableRow | None:
        return self._row(key, self._context.table(self._context.parents[0])(key))

    def _computed_as_of(self, key: object, timestamp: int) -> TableRow | None:
        above = self._context.table_as_of(self._context.parents[0])
        assert above is not None
        return self._row(key, above(key, timestamp))

    def _row(self, key: object, row: TableRow | None) -> TableRow | None:
        value = None if row is None else self._compute(key, row[0])
        return None if value is None or row is None else (value, row[1])


def table_filter(operation: op.TableFilter, context: Context) -> DerivedTable:
    """KTABLE-FILTER: what does not pass is a tombstone.

    With old values, nothing is forwarded if both values are null, unless the table above is versioned.
    """
    predicate, negate = plain(operation.predicate), operation.negate

    def compute(key: object, value: object) -> object:
        return value if value is not None and bool(predicate(key, value)) is not negate else None

    return DerivedTable(operation.store, context, compute, drops_null_changes=not context.is_versioned)


def table_map_values(operation: op.TableMapValues, context: Context) -> DerivedTable:
    """KTABLE-MAPVALUES: null stays null."""
    function = plain(operation.function)

    def compute(key: object, value: object) -> object:
        if value is None:
            return None
        return function(key, value) if operation.takes_key else function(value)

    return DerivedTable(operation.store, context, compute, drops_null_changes=False)


def changed_values(_operation: ChangedValues, context: Context) -> Step:
    """Forwards each change as a pair of new and old value; nothing if both are null."""
    forward = context.forward

    def process(record: Record) -> None:
        key, (new, old, _is_latest), timestamp, headers = record
        if new is not None or old is not None:
            forward(record_of((key, (new, old), timestamp, headers)))

    return Step(process)


class TableToStream:
    """KTABLE-TOSTREAM: the new value of each change; of a table that the JVM has made, whose rows come as values, these."""

    def __init__(self, _operation: op.TableToStream, context: Context) -> None:
        self._forward = context.forward

    def process(self, record: Record) -> None:
        key, value, timestamp, headers = record
        self._forward(record_of((key, value.new if type(value) is Change else value, timestamp, headers)))
