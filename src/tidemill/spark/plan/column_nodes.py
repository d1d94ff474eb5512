"""Nodes of columns as expressions on a wave of rows; the user's functions are called here, once.

Decides that for each operation that the table of operations (``operators.operation_table``) has run in a layer; nothing about
where a node runs or in which projection. Functions are called while now-like functions give the batch's wall clock (``clock``);
its mistakes are reported with its node, file and line (``columns``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, IntegralType, NullType

from tidemill.columns.check import called
from tidemill.columns.functions import ColumnFunction, functions_of
from tidemill.columns.mistakes import parameters_of
from tidemill.columns.sentences import where
from tidemill.errors import TopologyError
from tidemill.spark.batch_failures import errors_unlogged, one_line
from tidemill.spark.plan.changes import Changes, KeyValue
from tidemill.spark.plan.clock import wall_clock_functions
from tidemill.spark.plan.lookups import Side
from tidemill.spark.plan.user_columns import (
    OF_A_LAMBDA,
    OF_A_UDF_IN_A_LAMBDA,
    OF_A_WINDOW,
    OF_ALL,
    OF_AN_AGGREGATE,
    OF_ROWS,
    UserColumnError,
    type_of,
)
from tidemill.steps.rows.schema import DROPPED, DROPPED_COUNT
from tidemill.topology import operations as op
from tidemill.topology.functions import UserFunction
from tidemill.topology.nodes import ProcessorNode
from tidemill.topology.spark_operations import DataFrameJoin

_SIDES = ("left", "right")
"""Fields of a change that arrives as a pair: new value, old value."""

# --- one record of one, at most ---------------------------------------------------------------------------------------


def applied(changes: Changes, node: ProcessorNode, at: KeyValue) -> KeyValue:
    """The record after a node that makes at most one record of one: those of ``ONE_OF_ONE``."""
    return ONE_OF_ONE[type(node.operation)](node, node.operation, changes.frame, at)


def _as_it_is(_node: ProcessorNode, _operation: op.Operation, _frame: DataFrame, at: KeyValue) -> KeyValue:
    return at


def _with_key(_node: ProcessorNode, _operation: op.Operation, _frame: DataFrame, at: KeyValue) -> KeyValue:
    return at.passing(at.key.isNotNull())


def _table_row(_node: ProcessorNode, _operation: op.Operation, _frame: DataFrame, at: KeyValue) -> KeyValue:
    return at.passing(at.key.isNotNull(), lost=DROPPED_COUNT)


def _filtered(node: ProcessorNode, operation: op.Filter, frame: DataFrame, at: KeyValue) -> KeyValue:
    return at.passing(_passes(node, operation, frame, at))


def _mapped_values(node: ProcessorNode, operation: op.MapValues, frame: DataFrame, at: KeyValue) -> KeyValue:
    use, value = _call_values(node, operation, at)
    with computed(use):
        return at.with_value(frame, value)


def _filtered_table(node: ProcessorNode, operation: op.TableFilter, frame: DataFrame, at: KeyValue) -> KeyValue:
    """Null stays null; a refused value becomes null."""
    if operation.of_changes:
        return _filtered_changes(node, operation, frame, at)
    return at.with_value(frame, F.when(_passes(node, operation, frame, at), at.value))


def _filtered_changes(node: ProcessorNode, operation: op.TableFilter, frame: DataFrame, at: KeyValue) -> KeyValue:
    """Filters new and old value; drops a change of which neither passes."""
    sides = [at.with_value(frame, at.value[side]) for side in _SIDES]
    new, old = (F.when(_passes(node, operation, frame, side), side.value) for side in sides)
    value = F.struct(new.alias("left"), old.alias("right")) if operation.gives_changes else new
    return at.with_value(frame, value).passing(new.isNotNull() | old.isNotNull())


def _mapped_table(node: ProcessorNode, operation: op.TableMapValues, frame: DataFrame, at: KeyValue) -> KeyValue:
    """Null stays null."""
    if operation.of_changes:
        new, old = (_mapped_side(node, operation, frame, at.with_value(frame, at.value[side])).value for side in _SIDES)
        return at.with_value(frame, F.struct(new.alias("left"), old.alias("right")))
    return _mapped_side(node, operation, frame, at)


def _mapped_side(node: ProcessorNode, operation: op.TableMapValues, frame: DataFrame, at: KeyValue) -> KeyValue:
    use, value = _call_values(node, operation, at)
    with computed(use):
        return at.with_value(frame, F.when(at.value.isNotNull(), value))


def _selected_key(node: ProcessorNode, operation: op.SelectKey, frame: DataFrame, at: KeyValue) -> KeyValue:
    use, key = _call(node, operation.function, at)
    with computed(use):
        return at.with_key(frame, key)


def _mapped(node: ProcessorNode, operation: op.Map, frame: DataFrame, at: KeyValue) -> KeyValue:
    use = _use(node, operation.function, at)
    with wall_clock_functions():
        pair = called(use, at.key, at.value)
    with computed(use):
        return at.with_key(frame, _column(use, pair[0])).with_value(frame, _column(use, pair[1]))


ONE_OF_ONE: Mapping[type, Callable[[ProcessorNode, Any, DataFrame, KeyValue], KeyValue]] = {
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


def chosen(node: ProcessorNode, tags: Mapping[str, int], frame: DataFrame, at: KeyValue) -> Column:
    """The tag that each row gets, of those of ``choices``."""
    operation = node.operation
    assert isinstance(operation, op.Branch)
    column = F.lit(tags[operation.default] if operation.default else DROPPED)
    for predicate, child in reversed(list(zip(operation.predicates, operation.children, strict=True))):
        column = F.when(_predicate(node, predicate, frame, at), F.lit(tags[child])).otherwise(column)
    return column


# --- several of one, or none ------------------------------------------------------------------------------------------


def multiplies(operation: op.Operation) -> bool:
    """True if it may make several records of one."""
    return type(operation) in MANY_OF_ONE


def multiplied(changes: Changes, tag: int, node: ProcessorNode, at: KeyValue, sides: Mapping[str, Side]) -> KeyValue:
    """The records after a node that may make several of one: those of ``MANY_OF_ONE``. ``sides``: of joins, by node."""
    return MANY_OF_ONE[type(node.operation)](changes, tag, node, at, sides)


def _flat_mapped_values(changes: Changes, tag: int, node: ProcessorNode, at: KeyValue, _sides: Mapping[str, Side]) -> KeyValue:
    operation = node.operation
    assert isinstance(operation, op.FlatMapValues)
    use, array = _call_values(node, operation, at)
    with computed(use):
        return changes.explode_values(tag, node.name, at, array)


def _flat_mapped(changes: Changes, tag: int, node: ProcessorNode, at: KeyValue, _sides: Mapping[str, Side]) -> KeyValue:
    operation = node.operation
    assert isinstance(operation, op.FlatMap)
    use, array = _call(node, operation.function, at)
    with computed(use):
        return changes.explode_pairs(tag, node.name, array)


def _joined(changes: Changes, tag: int, node: ProcessorNode, at: KeyValue, sides: Mapping[str, Side]) -> KeyValue:
    operation, side = node.operation, sides[node.name]
    assert isinstance(operation, DataFrameJoin)
    keys, types = [at.key], [at.key_type]
    if operation.selector is not None:
        use = _use(node, operation.selector, at)
        with wall_clock_functions():
            selected = called(use, at.key, at.value)
        keys = [_column(use, key) for key in (selected if isinstance(selected, (tuple, list)) else [selected])]
        with computed(use):
            types = [type_of(changes.frame, key) for key in keys]
    if len(keys) != len(operation.on):
        raise TopologyError(
            f"{node.name}: the selector gave {len(keys)} columns, but on names {len(operation.on)}: {', '.join(operation.on)}"
        )
    for kind, on in zip(types, operation.on, strict=True):
        _check_comparable(node.name, kind, side.row[on].dataType, on)

    if operation.joiner is None:
        return changes.join(tag, at, keys, side, partial(_both, at), left=operation.left)
    joiner = _use(node, operation.joiner, at)

    def joined(row: Column) -> Column:
        with wall_clock_functions():
            return _column(joiner, called(joiner, *([at.key] if operation.takes_key else []), at.value, row))

    with computed(joiner):
        return changes.join(tag, at, keys, side, joined, left=operation.left)


def _both(at: KeyValue, row: Column) -> Column:
    return F.struct(at.value.alias("value"), row.alias("row"))


def _check_comparable(name: str, ours: DataType, theirs: DataType, on: str) -> None:
    """Spark would convert one of both for each record, and fail on the first text that is no number."""
    if ours == theirs or isinstance(ours, NullType) or (isinstance(ours, IntegralType) and isinstance(theirs, IntegralType)):
        return
    raise TopologyError(
        f"{name}: records are looked up by a {ours.simpleString()}, but the DataFrame's column {on} is a "
        f"{theirs.simpleString()}: give selector=lambda key, value: ... of that type, or cast the column"
    )


MANY_OF_ONE: Mapping[type, Callable[[Changes, int, ProcessorNode, KeyValue, Mapping[str, Side]], KeyValue]] = {
    op.FlatMap: _flat_mapped,
    op.FlatMapValues: _flat_mapped_values,
    DataFrameJoin: _joined,
}


# --- the user's functions ----------------------------------------------------------------------------------------------

_CANT_COMPUTE = "Spark can't compute what the function gives"
_OF_ANOTHER_FRAME = (
    "the function gives a column of a DataFrame ({}), which is none of its arguments: take those that it is called with, and "
    "join_dataframe for the rows of a DataFrame"
)
_NAMES_COUNT = (
    "The names of fields are part of a struct's type: where several structs meet, give all of them the same, as in "
    'F.struct(a.alias("key"), b.alias("value"))'
)
_SAID = {
    "MISSING_GROUP_BY": OF_AN_AGGREGATE,
    "MISSING_AGGREGATION": OF_AN_AGGREGATE,
    "UNSUPPORTED_GENERATOR": OF_ROWS,
    "UDTF_ALIAS_NUMBER_MISMATCH": OF_ROWS,
    "WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE": OF_A_WINDOW,
    "CANNOT_RESOLVE_STAR_EXPAND": OF_ALL,
    "INVALID_LAMBDA_FUNCTION_CALL.NON_HIGHER_ORDER_FUNCTION": OF_A_LAMBDA,
    "UNSUPPORTED_FEATURE.LAMBDA_FUNCTION_WITH_PYTHON_UDF": OF_A_UDF_IN_A_LAMBDA,
}
"""By the names of Spark's errors, or the first parts of them."""


@contextlib.contextmanager
def computed(use: ColumnFunction) -> Iterator[None]:
    """Within it Spark looks at what a function gave: its errors are reported as the function's."""
    try:
        with errors_unlogged():
            yield
    except UserColumnError as error:
        raise TopologyError(f"{where(use)}: {error}") from error
    except AnalysisException as error:
        raise TopologyError(f"{where(use)}: {_sentence(_by_parameters(use, error))}") from error
    except (CapturedException, Py4JJavaError) as error:
        raise TopologyError(f"{where(use)}: {_CANT_COMPUTE}: {one_line(error)}") from error


def _by_parameters(use: ColumnFunction, error: AnalysisException) -> AnalysisException:
    """The same error as Spark has it of columns that are called as the function's parameters.

    That of the plan itself writes out what these are computed from: how the record is read, and all functions above this one.
    """
    session = SparkSession.getActiveSession()
    if session is None or None in use.types:
        return error
    typed = zip(parameters_of(use), use.types, strict=True)
    try:
        frame = session.range(0).select(*(F.lit(None).cast(str(kind)).alias(name) for name, kind in typed))
        made = called(use, *(frame[name] for name in frame.columns))
        frame.select(*(_column(use, column) for column in (made if isinstance(made, tuple | list) else [made])))
    except AnalysisException as named:
        return named if named.getCondition() == error.getCondition() else error
    except Exception:  # the function, or Spark, says another thing here: the first error is what counts
        return error
    return error


def _sentence(error: AnalysisException) -> str:
    condition, said = error.getCondition() or "", (error.getMessage() or str(error)).splitlines()[0]
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "'")
        return (
            f"the function names the column {name}, but there are none to be named: take those that it is called with "
            '(of a struct, its fields: value["field"])'
        )
    if condition in ("AMBIGUOUS_REFERENCE", "AMBIGUOUS_REFERENCE_TO_FIELDS"):
        name = (error.getMessageParameters() or {}).get("field" if "FIELDS" in condition else "name", "").replace("`", "'")
        return (
            f"the struct has several fields that are called {name} but for the case of their letters, which Spark takes for one: "
            "set spark.sql.caseSensitive to true, or read the field with a function of Python values (per_record)"
        )
    if condition.startswith("MISSING_ATTRIBUTES"):
        missing = (error.getMessageParameters() or {}).get("missingAttributes", "").replace('"', "").replace("`", "'")
        return _OF_ANOTHER_FRAME.format(missing)
    if condition == "DATATYPE_MISMATCH.DATA_DIFF_TYPES" and '"STRUCT<' in said:
        return f"{_CANT_COMPUTE}: {said}. {_NAMES_COUNT}"
    return _SAID.get(condition) or _SAID.get(condition.partition(".")[0]) or f"{_CANT_COMPUTE}: {said}"


def _use(node: ProcessorNode, function: UserFunction, at: KeyValue) -> ColumnFunction:
    """The description of the function for error messages."""
    types = at.key_type.simpleString(), at.value_type.simpleString()
    return next(use for use in functions_of(node.operation, node.name, *types) if use.function is function)


def _call(node: ProcessorNode, function: UserFunction, at: KeyValue) -> tuple[ColumnFunction, Column]:
    use = _use(node, function, at)
    with wall_clock_functions():
        return use, _column(use, called(use, at.key, at.value))


def _call_values(
    node: ProcessorNode, operation: op.MapValues | op.FlatMapValues | op.TableMapValues, at: KeyValue
) -> tuple[ColumnFunction, Column]:
    use = _use(node, operation.function, at)
    with wall_clock_functions():
        return use, _column(use, called(use, at.key, at.value) if operation.takes_key else called(use, at.value))


def _passes(node: ProcessorNode, operation: op.Filter | op.TableFilter, frame: DataFrame, at: KeyValue) -> Column:
    passes = F.coalesce(_predicate(node, operation.predicate, frame, at), F.lit(False))
    return ~passes if operation.negate else passes


def _predicate(node: ProcessorNode, function: UserFunction, frame: DataFrame, at: KeyValue) -> Column:
    use, passes = _call(node, function, at)
    with computed(use):
        kind = type_of(frame, passes)
    if not isinstance(kind, (BooleanType, NullType)):
        raise TopologyError(f"{where(use)}: the function gives {kind.simpleString()}, expected a boolean")
    return passes


def _column(use: ColumnFunction, value: object) -> Column:
    try:
        return value if isinstance(value, Column) else F.lit(value)
    except (PySparkException, Py4JError, AttributeError, TypeError) as error:  # py4j's, of what it can't hand over
        raise TopologyError(
            f"{where(use)}: the function gives {value!r} of type {type(value).__name__}, expected {use.gives.value} or a constant"
        ) from error
