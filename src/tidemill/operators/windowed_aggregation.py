"""Steps of windowed aggregations (count, reduce, aggregate): initial value, next value and, for sessions, merge; and whether
an aggregation has its store to itself.

A reduction begins with None and takes the first value as it is, as Kafka Streams' does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidemill.errors import SerdeError
from tidemill.operators.stateless import plain
from tidemill.topology import operations as op
from tidemill.topology.functions import UserFunction
from tidemill.topology.nodes import ProcessorNode, Topology
from tidemill.topology.values import Key, Value
from tidemill.topology.windows import Windowed


class Steps(NamedTuple):
    """``begin()``, ``add(key, value, aggregate)``, ``merge(key, first, second)``."""

    begin: Callable[[], Value]
    add: Callable[[Key, Value, Value], Value]
    merge: Callable[[Key, Value, Value], Value]


def steps_of(aggregation: op.Aggregation) -> Steps:
    """The functions of an aggregation."""
    match aggregation:
        case op.Counting():
            return Steps(_zero, _count, _sum)
        case op.Reducing(reducer):
            return _reduction(plain(reducer))
        case op.Aggregating(initializer, aggregator, merger):
            return Steps(plain(initializer), plain(aggregator), _no_merger if merger is None else plain(merger))


def has_for_itself(topology: Topology, store: str) -> bool:
    """True if one aggregation alone writes to ``store``; those of a cogroup share theirs."""
    operations = (node.operation for node in topology.nodes.values() if isinstance(node, ProcessorNode))
    return sum(isinstance(one, (op.WindowAggregate, op.SessionAggregate)) and one.store == store for one in operations) == 1


def _zero() -> int:
    return 0


def _count(_key: object, _value: object, counted: int) -> int:
    return counted + 1


def _sum(_key: object, first: int, second: int) -> int:
    return first + second


def _nothing() -> None:
    return None


def _reduction(reducer: UserFunction) -> Steps:
    def add(_key: object, value: object, aggregate: object) -> object:
        return value if aggregate is None else reducer(aggregate, value)

    def merge(_key: object, first: object, second: object) -> object:
        return second if first is None else reducer(first, second)

    return Steps(_nothing, add, merge)


def _no_merger(_key: object, _first: object, _second: object) -> object:
    raise TypeError("sessions are joined by a merger: give aggregate() of a session-windowed stream a merger(key, first, second)")


def require_windowed(key: object) -> None:
    """Refuses a key without a window, of what is joined with a windowed table.

    Raises:
        SerdeError: it is no Windowed.
    """
    if not isinstance(key, Windowed):
        raise SerdeError(
            f"the key is of type {type(key).__name__}, expected Windowed: it is looked up in the table of a windowed aggregation."
            " Join what has the same windows, or give that table plain keys: to_stream, select_key with key.key, to_table"
        )
