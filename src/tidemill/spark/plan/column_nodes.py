"""Nodes of columns: what one does to a wave of rows, as expressions; the user's functions are called here, once.

Decides that for each operation that the table of operations (``operators.operation_table``) has run in a layer; nothing about
where a node runs or in which projection. Functions are called while now-like functions give the batch's wall clock (``clock``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, NullType

from tidemill.errors import TopologyError
from tidemill.spark.plan.changes import Changes, Pair, type_of
from tidemill.spark.plan.clock import wall_clock_functions
from tidemill.spark.plan.lookups import Side
from tidemill.steps.rows.schema import DROPPED, DROPPED_COUNT
from tidemill.topology import operations as op
from tidemill.topology.nodes import ProcessorNode
from tidemill.topology.spark_operations import DataFrameJoin

# --- one record of one, at most ---------------------------------------------------------------------------------------


def applied(changes: Changes, node: ProcessorNode, at: Pair) -> Pair:
    """What a node that makes at most one record of one does to it: those of ``ONE_OF_ONE``."""
    return ONE_OF_ONE[type(node.operation)](node, node.operation, changes.frame, at)


def _as_it_is(_node: ProcessorNode, _operation: op.Operation, _frame: DataFrame, at: Pair) -> Pair:
    return at


def _with_key(_node: ProcessorNode, _operation: op.NullKeyFilter, _frame: DataFrame, at: Pair) -> Pair:
    return at.passing(at.key.isNotNull())


def _table_row(_node: ProcessorNode, _operation: op.TableSource, _frame: DataFrame, at: Pair) -> Pair:
    return at.passing(at.key.isNotNull(), lost=DROPPED_COUNT)


def _filtered(_node: ProcessorNode, operation: op.Filter, _frame: DataFrame, at: Pair) -> Pair:
    return at.passing(_passes(operation, at))


def _mapped_values(_node: ProcessorNode, operation: op.MapValues, frame: DataFrame, at: Pair) -> Pair:
    return at.with_value(frame, _call_values(operation, at))


def _filtered_table(_node: ProcessorNode, operation: op.TableFilter, frame: DataFrame, at: Pair) -> Pair:
    """Null stays null, and what is refused becomes null."""
    return at.with_value(frame, F.when(_passes(operation, at), at.value))


def _mapped_table(_node: ProcessorNode, operation: op.TableMapValues, frame: DataFrame, at: Pair) -> Pair:
    """Null stays null."""
    return at.with_value(frame, F.when(at.value.isNotNull(), _call_values(operation, at)))


def _selected_key(_node: ProcessorNode, operation: op.SelectKey, frame: DataFrame, at: Pair) -> Pair:
    return at.with_key(frame, _call(operation.function, at))


def _mapped(node: ProcessorNode, operation: op.Map, frame: DataFrame, at: Pair) -> Pair:
    with wall_clock_functions():
        pair = operation.function(at.key, at.value)
    if not (isinstance(pair, tuple) and len(pair) == 2):
        raise TopologyError(f"{node.name}: map's function gave {type(pair).__name__}, expected a pair (key, value)")
    return at.with_key(frame, _column(pair[0])).with_value(frame, _column(pair[1]))


ONE_OF_ONE: Mapping[type, Callable[[ProcessorNode, Any, DataFrame, Pair], Pair]] = {
    op.PassThrough: _as_it_is,
    op.TableToStream: _as_it_is,
    op.Branch: _as_it_is,  # which child gets it, ``chosen`` says
    op.NullKeyFilter: _with_key,
    op.TableSource: _table_row,
    op.Filter: _filtered,
    op.MapValues: _mapped_values,
    op.TableFilter: _filtered_table,
    op.TableMapValues: _mapped_table,
    op.SelectKey: _selected_key,
    op.Map: _mapped,
}


def choices(operation: op.Operation) -> tuple[str, ...]:
    """The children among which the operation chooses for each record; () if all get it."""
    if not isinstance(operation, op.Branch):
        return ()
    return (*operation.children, *([operation.default] if operation.default else []))


def chosen(operation: op.Operation, tags: Mapping[str, int], at: Pair) -> Column:
    """The tag that each row gets, of those of ``choices``."""
    assert isinstance(operation, op.Branch)
    column = F.lit(tags[operation.default] if operation.default else DROPPED)
    for predicate, child in reversed(list(zip(operation.predicates, operation.children, strict=True))):
        column = F.when(_call(predicate, at), F.lit(tags[child])).otherwise(column)
    return column


# --- several of one, or none ------------------------------------------------------------------------------------------


def multiplies(operation: op.Operation) -> bool:
    """Whether it may make several records of one."""
    return type(operation) in MANY_OF_ONE


def multiplied(changes: Changes, tag: int, node: ProcessorNode, at: Pair, sides: Mapping[str, Side]) -> Pair:
    """What a node that may make several records of one does to it: those of ``MANY_OF_ONE``. ``sides``: of joins, by node."""
    return MANY_OF_ONE[type(node.operation)](changes, tag, node, at, sides)


def _flat_mapped_values(changes: Changes, tag: int, node: ProcessorNode, at: Pair, _sides: Mapping[str, Side]) -> Pair:
    operation: Any = node.operation
    return changes.explode_values(tag, node.name, at, _call_values(operation, at))


def _flat_mapped(changes: Changes, tag: int, node: ProcessorNode, at: Pair, _sides: Mapping[str, Side]) -> Pair:
    operation: Any = node.operation
    return changes.explode_pairs(tag, node.name, _call(operation.function, at))


def _joined(changes: Changes, tag: int, node: ProcessorNode, at: Pair, sides: Mapping[str, Side]) -> Pair:
    operation, side = node.operation, sides[node.name]
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


MANY_OF_ONE: Mapping[type, Callable[[Changes, int, ProcessorNode, Pair, Mapping[str, Side]], Pair]] = {
    op.FlatMap: _flat_mapped,
    op.FlatMapValues: _flat_mapped_values,
    DataFrameJoin: _joined,
}


def _passes(operation: op.Filter | op.TableFilter, at: Pair) -> Column:
    passes = F.coalesce(_call(operation.predicate, at), F.lit(False))
    return ~passes if operation.negate else passes


def _column(value: Any) -> Column:
    return value if isinstance(value, Column) else F.lit(value)


def _call(function: Callable[..., Any], at: Pair) -> Column:
    with wall_clock_functions():
        return _column(function(at.key, at.value))


def _call_values(operation: op.MapValues | op.FlatMapValues | op.TableMapValues, at: Pair) -> Column:
    with wall_clock_functions():
        return _column(operation.function(at.key, at.value) if operation.takes_key else operation.function(at.value))
