"""Aggregations of streams by key, record by record: count, reduce, aggregate (KStreamReduce, KStreamAggregate).

Null keys and null values are dropped and counted. The result's timestamp is the later of the stored one and the record's,
the record's own where nothing was stored; a null result deletes the row and goes on as a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill.operators.context import Context
from tidemill.operators.record import Change, Record
from tidemill.topology import operations as op


class AggregateByKey:
    """``first(key, value)`` makes an aggregate where there is none, ``following(key, value, aggregate)`` the next one."""

    def __init__(
        self, store: str, context: Context, first: Callable[[Any, Any], Any], following: Callable[[Any, Any, Any], Any]
    ) -> None:
        self._forward, self._drop, self._sends_old = context.forward, context.drop, context.sends_old
        self._put = context.store(store).put
        self.get = context.store(store).get
        self._first, self._following = first, following

    def process(self, record: Record) -> None:
        key, value, timestamp, headers = record
        if key is None or value is None:
            self._drop()
            return
        found = self.get(key)
        if found is None:
            old, new = None, self._first(key, value)
        else:
            old, stored = found
            new = self._following(key, value, old)
            if stored > timestamp:
                timestamp = stored
        self._put(key, new, timestamp)
        self._forward(Record(key, Change(new, old if self._sends_old else None), timestamp, headers))


def count(operation: op.Count, context: Context) -> AggregateByKey:
    """KStreamAggregate that counts."""
    return AggregateByKey(operation.store, context, lambda _key, _value: 1, lambda _key, _value, counted: counted + 1)


def reduce(operation: op.Reduce, context: Context) -> AggregateByKey:
    """KStreamReduce."""
    reducer = operation.reducer
    return AggregateByKey(
        operation.store, context, lambda _key, value: value, lambda _key, value, aggregate: reducer(aggregate, value)
    )


def aggregate(operation: op.Aggregate, context: Context) -> AggregateByKey:
    """KStreamAggregate."""
    initializer, aggregator = operation.initializer, operation.aggregator
    return AggregateByKey(
        operation.store, context, lambda key, value: aggregator(key, value, initializer()), aggregator
    )
