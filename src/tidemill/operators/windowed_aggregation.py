"""How an aggregate in a window begins, goes on and, of sessions, is joined with another: count, reduce, aggregate.

A reduction begins with None and takes the first value as it is, as Kafka Streams' does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidemill.topology import operations as op


class Steps(NamedTuple):
    """``begin()``, ``add(key, value, aggregate)``, ``merge(key, first, second)``."""

    begin: Callable[[], Any]
    add: Callable[[Any, Any, Any], Any]
    merge: Callable[[Any, Any, Any], Any]


def steps_of(aggregation: op.Aggregation) -> Steps:
    """The functions of an aggregation."""
    match aggregation:
        case op.Counting():
            return Steps(_zero, _count, _sum)
        case op.Reducing(reducer):
            return _reduction(_plain(reducer))
        case op.Aggregating(initializer, aggregator, merger):
            return Steps(_plain(initializer), _plain(aggregator), _no_merger if merger is None else _plain(merger))


def _plain(function: op.UserFunction) -> op.UserFunction:
    return function.function if isinstance(function, op.PerRecord) else function


def _zero() -> int:
    return 0


def _count(_key: Any, _value: Any, counted: int) -> int:
    return counted + 1


def _sum(_key: Any, first: int, second: int) -> int:
    return first + second


def _nothing() -> None:
    return None


def _reduction(reducer: op.UserFunction) -> Steps:
    def add(_key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    def merge(_key: Any, first: Any, second: Any) -> Any:
        return second if first is None else reducer(first, second)

    return Steps(_nothing, add, merge)


def _no_merger(_key: Any, _first: Any, _second: Any) -> Any:
    raise TypeError("sessions are joined by a merger: give aggregate() of a session-windowed stream a merger(key, first, second)")
