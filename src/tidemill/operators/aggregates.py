"""Aggregations of streams by key, record by record: count, reduce, aggregate (KStreamReduce, KStreamAggregate), and the table
that several make together (COGROUPKSTREAM-MERGE).

Null keys and null values are dropped and counted. The result's timestamp is the later of the stored one and the record's, the
record's own where nothing was stored; a null result deletes the row and is forwarded as a tombstone. Where nothing was stored,
the old value of the change is null below a record cache; without one it is what the initializer gives, as in Kafka Streams, and
a grouped table below subtracts a row that was never added. Over a versioned store the table also answers with its row as of a
time.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.operators.context import AsOfGetter, Context, Getter
from tidemill.operators.record import Record, change_of, record_of
from tidemill.operators.stateless import plain
from tidemill.topology import operations as op
from tidemill.topology.values import Key, Value, is_immutable


class AggregateByKey:
    """``following(key, value, aggregate)`` makes the next aggregate, from ``initializer()`` where there is none."""

    def __init__(
        self, store: str, context: Context, initializer: Callable[[], Value], following: Callable[[Key, Value, Value], Value]
    ) -> None:
        self._drop, self._sends_old = context.drop, context.sends_old
        self._changed, self._is_cached = context.changed(store), context.is_cached(store)
        table = context.store(store)
        self.get, self._encode, self._get, self._put = table.get, table.encode_key, table.get_at, table.put_at
        self.get_as_of: AsOfGetter | None = table.get_as_of
        self._begin = beginning(initializer, context, store)
        self._following = following

    def process(self, record: Record) -> None:
        key, value, came, headers = record
        if key is None or value is None:
            self._drop()
            return
        raw = self._encode(key)
        found, timestamp = self._get(raw), came
        if found is None:
            before, old = self._begin()
        else:
            old, stored = found
            before = self._unshared(raw, old)
            if stored > timestamp:
                timestamp = stored
        new = self._following(key, value, before)
        deletes_nothing = new is None and found is None and self._is_cached
        is_latest = True if deletes_nothing else self._put(raw, new, timestamp, headers, came)
        if is_latest is None:
            self._drop()
            return
        change = change_of((new, old if self._sends_old else None, is_latest))
        self._changed(raw, record_of((key, change, timestamp, headers)), found is None)

    def _unshared(self, raw: bytes, old: Value) -> Value:
        """The stored aggregate for the function, which may change it in place: the old one is still to be sent as it was."""
        again = self._get(raw) if self._sends_old and not is_immutable(old) else None
        return old if again is None else again[0]


def beginning(initializer: Callable[[], Value], context: Context, store: str) -> Callable[[], tuple[Value, Value]]:
    """A function that gives (the aggregate to begin with, the old value of the first change): two objects where the aggregator
    may change the first one in place."""
    if not context.sends_old or context.is_cached(store):
        return lambda: (initializer(), None)

    def begin() -> tuple[Value, Value]:
        before = initializer()
        return before, before if is_immutable(before) else initializer()

    return begin


def count(operation: op.Count, context: Context) -> AggregateByKey:
    """KStreamAggregate that counts."""
    return AggregateByKey(operation.store, context, lambda: 0, lambda _key, _value, counted: counted + 1)


def reduce(operation: op.Reduce, context: Context) -> AggregateByKey:
    """KStreamReduce."""
    assert callable(operation.reducer)
    reducer = plain(operation.reducer)
    return AggregateByKey(
        operation.store, context, lambda: None,
        lambda _key, value, aggregate: value if aggregate is None else reducer(aggregate, value),
    )


def aggregate(operation: op.Aggregate, context: Context) -> AggregateByKey:
    """KStreamAggregate."""
    return AggregateByKey(operation.store, context, plain(operation.initializer), plain(operation.aggregator))


class CogroupMerge:
    """Forwards every change; its rows are those of the store that the aggregations share."""

    def __init__(self, _operation: op.CogroupMerge, context: Context) -> None:
        self.process = context.forward
        self.get: Getter = context.table(context.parents[0])
        self.get_as_of: AsOfGetter | None = context.table_as_of(context.parents[0])
