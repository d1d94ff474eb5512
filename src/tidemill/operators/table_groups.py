"""Tables grouped by other keys: the selection of these keys, and aggregates that subtract old values and add new ones.

A change within a group is forwarded as one record with both values, else the old group's comes first. No pair, or one with a null
key or value, leaves that half out. An aggregate subtracts only from what is there; a group that has become empty stays at
what its subtractor gives. The result's timestamp is the later of the stored one and the record's wherever something was
subtracted or added to what was there, else the record's.
"""

from __future__ import annotations

from tidemill.operators.context import Context
from tidemill.operators.materialized_table import MaterializedTable
from tidemill.operators.record import Change, Record, is_same_value
from tidemill.operators.returned import pair_of
from tidemill.operators.stateless import Step, plain
from tidemill.topology import operations as op
from tidemill.topology.values import Key, Value, is_immutable


def table_select(operation: op.TableSelect, context: Context) -> Step:
    """KTABLE-SELECT (KTableRepartitionMap). A change of a versioned table that is not its newest ends here, uncounted."""
    forward, function = context.forward, plain(operation.function)
    is_versioned = context.is_versioned

    def grouped(key: Key, value: Value) -> tuple[Key, Value]:
        pair = None if value is None else function(key, value)
        return (None, None) if pair is None else pair_of(pair)

    def process(record: Record) -> None:
        key, (new, old, is_latest), timestamp, headers = record
        if is_versioned and not is_latest:
            return
        new_key, new_value = grouped(key, new)
        old_key, old_value = grouped(key, old)
        has_new, has_old = new_key is not None and new_value is not None, old_key is not None and old_value is not None
        if has_new and has_old and is_same_value(new_key, old_key):
            forward(Record(new_key, Change(new_value, old_value, is_latest), timestamp, headers))
            return
        if has_old:
            forward(Record(old_key, Change(None, old_value, is_latest), timestamp, headers))
        if has_new:
            forward(Record(new_key, Change(new_value, None, is_latest), timestamp, headers))

    return Step(process)


class _GroupedTable(MaterializedTable):
    """The rows of an aggregated table."""

    def unshared(self, key: object, before: object) -> object:
        """The aggregate for functions, which may change it in place: the old one is still to be sent as it was."""
        again = self.get(key) if self._sends_old and not is_immutable(before) else None
        return before if again is None else again[0]


class TableAggregate:
    """KTABLE-AGGREGATE."""

    def __init__(self, operation: op.TableAggregate, context: Context) -> None:
        self._rows = _GroupedTable(operation.store, context)
        self.get, self.get_as_of = self._rows.get, self._rows.get_as_of
        self._initializer = plain(operation.initializer)
        self._adder, self._subtractor = plain(operation.adder), plain(operation.subtractor)

    def process(self, record: Record) -> None:
        key, (new, old, _is_latest), came, headers = record
        timestamp, found = came, self.get(key)
        before, stored = (None, timestamp) if found is None else found
        aggregate = self._rows.unshared(key, before)
        if old is not None and before is not None:
            aggregate = self._subtractor(key, old, aggregate)
            timestamp = max(timestamp, stored)
        if new is not None:
            aggregate = self._adder(key, new, self._initializer() if aggregate is None else aggregate)
            timestamp = max(timestamp, stored)
        self._rows.change(key, aggregate, before, timestamp, headers, came)


class TableReduce:
    """KTABLE-REDUCE: the first value of a group is its aggregate."""

    def __init__(self, operation: op.TableReduce, context: Context) -> None:
        self._rows = _GroupedTable(operation.store, context)
        self.get, self.get_as_of = self._rows.get, self._rows.get_as_of
        self._adder, self._subtractor = plain(operation.adder), plain(operation.subtractor)

    def process(self, record: Record) -> None:
        key, (new, old, _is_latest), came, headers = record
        timestamp, found = came, self.get(key)
        before, stored = (None, timestamp) if found is None else found
        aggregate = self._rows.unshared(key, before)
        if old is not None and before is not None:
            aggregate = self._subtractor(aggregate, old)
            timestamp = max(timestamp, stored)
        if new is not None:
            if aggregate is None:
                aggregate = new
            else:
                aggregate = self._adder(aggregate, new)
                timestamp = max(timestamp, stored)
        self._rows.change(key, aggregate, before, timestamp, headers, came)
