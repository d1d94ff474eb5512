"""The functions of a topology that get Columns: the operator of each, its arguments and the result that is expected.

Decides nothing about mistakes. A function that is wrapped in ``per_record`` gets Python values and is none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from tidemill.topology.functions import OfColumns, PerRecord
from tidemill.topology.join_operations import GlobalTableJoin, StreamSelfJoin, StreamStreamJoin, StreamTableJoin
from tidemill.topology.nodes import ProcessorNode, SinkNode, Topology
from tidemill.topology.operations import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Operation,
    Reduce,
    SelectKey,
    TableFilter,
    TableMapValues,
)
from tidemill.topology.spark_operations import DataFrameJoin

_JOINS = (StreamStreamJoin, StreamSelfJoin, StreamTableJoin, GlobalTableJoin)


class Expected(Enum):
    """The result that an operator expects of its function."""

    VALUE = "a Column"
    BOOLEAN = "a boolean Column"
    PAIR = "a pair (key, value) of Columns"
    ARRAY = "an array Column"
    KEYS = "a Column, or several in a tuple"


class Otherwise(Enum):
    """How the operator takes a function of Python values instead."""

    PER_RECORD = "per_record"
    PLAIN = "without of_columns"
    NOT_AT_ALL = "only Columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFunction:
    """``function`` of the node ``node``; ``types``: the Spark types of its arguments, where they are known, as DDL text."""

    node: str
    operator: str
    function: Callable[..., object]
    names: tuple[str, ...]
    types: tuple[str | None, ...]
    gives: Expected = Expected.VALUE
    otherwise: Otherwise = Otherwise.PER_RECORD

    @property
    def is_pair_of_serdes(self) -> bool:
        """True if ``per_record`` takes two serdes here."""
        return self.operator in ("map", "flat_map")


def column_functions(topology: Topology) -> Iterator[ColumnFunction]:
    """All functions of Columns of a program's topology, in the order of its nodes."""
    for name, node in topology.nodes.items():
        if isinstance(node, ProcessorNode):
            yield from functions_of(node.operation, name, *_types_above(topology, name))


def functions_of(
    operation: Operation, node: str, key: str | None = None, value: str | None = None
) -> Iterator[ColumnFunction]:
    """The functions of one node; ``key`` and ``value`` are the Spark types of what arrives there."""
    both, types = ("key", "value"), (key, value)

    def found(
        operator: str, function: Callable[..., object], arguments: _Arguments = (both, types), *,
        gives: Expected = Expected.VALUE, otherwise: Otherwise = Otherwise.PER_RECORD,
    ) -> Iterator[ColumnFunction]:
        if not isinstance(function, PerRecord):
            names, kinds = arguments
            yield ColumnFunction(
                node=node, operator=operator, function=function, names=names, types=kinds, gives=gives, otherwise=otherwise
            )

    match operation:
        case Map(function):
            yield from found("map", function, gives=Expected.PAIR)
        case MapValues(function, takes_key) | TableMapValues(function, takes_key):
            yield from found("map_values", function, _of_value(takes_key, key, value))
        case FlatMap(function):
            yield from found("flat_map", function, gives=Expected.ARRAY)
        case FlatMapValues(function, takes_key):
            yield from found("flat_map_values", function, _of_value(takes_key, key, value), gives=Expected.ARRAY)
        case Filter(predicate, negate) | TableFilter(predicate, negate):
            yield from found("filter_not" if negate else "filter", predicate, gives=Expected.BOOLEAN)
        case SelectKey(function):
            yield from found("select_key or group_by", function)
        case Branch(predicates=predicates):
            for predicate in predicates:
                yield from found("branch", predicate, gives=Expected.BOOLEAN)
        case Reduce(reducer=OfColumns(function)):
            yield from found("reduce", function, (("aggregate", "value"), (value, value)), otherwise=Otherwise.PLAIN)
        case DataFrameJoin(selector=selector, joiner=joiner, takes_key=takes_key):
            if selector is not None:
                yield from found("join_dataframe: selector", selector, gives=Expected.KEYS, otherwise=Otherwise.NOT_AT_ALL)
            if joiner is not None:
                names, kinds = _of_value(takes_key, key, value)
                arguments = (*names, "row"), (*kinds, None)
                yield from found("join_dataframe: joiner", joiner, arguments, otherwise=Otherwise.NOT_AT_ALL)
        case _ if isinstance(operation, _JOINS) and isinstance(operation.joiner, OfColumns):
            sides = ("key", "left", "right") if operation.takes_key else ("left", "right")
            yield from found("join", operation.joiner.function, (sides, (None,) * len(sides)), otherwise=Otherwise.PLAIN)
        case _:
            pass


_Arguments = tuple[tuple[str, ...], tuple[str | None, ...]]
"""Their names and their types."""


def _of_value(takes_key: bool, key: str | None, value: str | None) -> _Arguments:
    return (("key", "value"), (key, value)) if takes_key else (("value",), (value,))


def _types_above(topology: Topology, name: str) -> tuple[str | None, str | None]:
    """The types of what all parents say to forward; None where they differ or do not say."""
    above = [node for parent in topology.parents.get(name, ()) if not isinstance(node := topology.nodes[parent], SinkNode)]
    keys = {None if node.key_serde is None else node.key_serde.sql_type for node in above}
    values = {None if node.value_serde is None else node.value_serde.sql_type for node in above}
    return (keys.pop() if len(keys) == 1 else None), (values.pop() if len(values) == 1 else None)
