"""Nodes of columns: what one does to a wave of rows, as expressions; the user's functions are called here, once.

Decides nothing about where a node runs or in which projection. Functions are called while now-like functions give the batch's
wall clock (``clock``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, NullType

from tidemill.errors import TopologyError
from tidemill.spark.plan.changes import Changes, Pair, type_of
from tidemill.spark.plan.clock import wall_clock_functions
from tidemill.spark.plan.lookups import Side
from tidemill.steps.rows.schema import DROPPED, DROPPED_COUNT
from tidemill.topology.nodes import ProcessorNode
from tidemill.topology.operations import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    NullKeyFilter,
    Operation,
    PassThrough,
    SelectKey,
    TableFilter,
    TableMapValues,
    TableSource,
    TableToStream,
)
from tidemill.topology.spark_operations import DataFrameJoin


def branch(operation: Branch, tags: dict[str, int], at: Pair) -> Column:
    """The tag that each row gets."""
    column = F.lit(tags[operation.default] if operation.default else DROPPED)
    for predicate, child in reversed(list(zip(operation.predicates, operation.children, strict=True))):
        column = F.when(_call(predicate, at), F.lit(tags[child])).otherwise(column)
    return column


def applied(changes: Changes, node: ProcessorNode, at: Pair) -> Pair:
    """What a node that makes at most one record of one does to it."""
    operation: Operation = node.operation
    frame = changes.frame
    if isinstance(operation, (PassThrough, TableToStream, Branch)):
        return at
    if isinstance(operation, NullKeyFilter):
        return at.passing(at.key.isNotNull())
    if isinstance(operation, TableSource):
        return at.passing(at.key.isNotNull(), lost=DROPPED_COUNT)
    if isinstance(operation, Filter):
        passes = F.coalesce(_call(operation.predicate, at), F.lit(False))
        return at.passing(~passes if operation.negate else passes)
    if isinstance(operation, (TableFilter, TableMapValues)):
        return at.with_value(frame, table_value(operation, at))
    if isinstance(operation, MapValues):
        return at.with_value(frame, _call_values(operation, at))
    if isinstance(operation, SelectKey):
        return at.with_key(frame, _call(operation.function, at))
    if isinstance(operation, Map):
        with wall_clock_functions():
            pair = operation.function(at.key, at.value)
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise TopologyError(f"{node.name}: map's function gave {type(pair).__name__}, expected a pair (key, value)")
        return at.with_key(frame, _column(pair[0])).with_value(frame, _column(pair[1]))
    raise TopologyError(f"{node.name}: {type(operation).__name__} can't run in the JVM")


def exploded(changes: Changes, tag: int, node: ProcessorNode, at: Pair) -> Pair:
    """What a flat map makes of it."""
    operation = node.operation
    if isinstance(operation, FlatMapValues):
        return changes.explode_values(tag, node.name, at, _call_values(operation, at))
    assert isinstance(operation, FlatMap)
    return changes.explode_pairs(tag, node.name, _call(operation.function, at))


def joined(changes: Changes, tag: int, node: ProcessorNode, at: Pair, side: Side) -> Pair:
    """What a join with a DataFrame makes of it."""
    operation = node.operation
    assert isinstance(operation, DataFrameJoin)
    with wall_clock_functions():
        selected = at.key if operation.selector is None else operation.selector(at.key, at.value)
    keys = [_column(key) for key in selected] if isinstance(selected, (tuple, list)) else [_column(selected)]
    if len(keys) != len(operation.on):
        raise TopologyError(
            f"{node.name}: the selector gave {len(keys)} columns, but on names {len(operation.on)}: {', '.join(operation.on)}"
        )
    for key, on in zip(keys, operation.on, strict=True):
        _check_comparable(node.name, type_of(changes.frame, key), side.row[on].dataType, on)

    def value(row: Column) -> Column:
        if operation.joiner is None:
            return F.struct(at.value.alias("value"), row.alias("row"))
        with wall_clock_functions():
            found = operation.joiner(at.key, at.value, row) if operation.takes_key else operation.joiner(at.value, row)
        return _column(found)

    return changes.join(tag, at, keys, side, value, left=operation.left)


def _check_comparable(name: str, ours: DataType, theirs: DataType, on: str) -> None:
    """Spark would convert one of both for each record, and fail on the first text that is no number."""
    if ours == theirs or isinstance(ours, NullType) or (isinstance(ours, IntegralType) and isinstance(theirs, IntegralType)):
        return
    raise TopologyError(
        f"{name}: records are looked up by a {ours.simpleString()}, but the DataFrame's column {on} is a "
        f"{theirs.simpleString()}: give selector=lambda key, value: ... of that type, or cast the column"
    )


def table_value(operation: TableFilter | TableMapValues, at: Pair) -> Column:
    """What a table passes on: null stays null, and what a filter refuses becomes null."""
    if isinstance(operation, TableMapValues):
        return F.when(at.value.isNotNull(), _call_values(operation, at))
    passes = F.coalesce(_call(operation.predicate, at), F.lit(False))
    return F.when(~passes if operation.negate else passes, at.value)


def _column(value: Any) -> Column:
    return value if isinstance(value, Column) else F.lit(value)


def _call(function: Callable[..., Any], at: Pair) -> Column:
    with wall_clock_functions():
        return _column(function(at.key, at.value))


def _call_values(operation: MapValues | FlatMapValues | TableMapValues, at: Pair) -> Column:
    with wall_clock_functions():
        return _column(operation.function(at.key, at.value) if operation.takes_key else operation.function(at.value))
