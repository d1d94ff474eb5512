"""Columns that functions of the program give: what they may be in a static plan (correctness.md, rules 18 and 19).

Decides by Spark's own analysis of each such Column alone: it is computed for each record by itself, gives the same when a
batch is run again, and has no literal that Java refuses (``refused_literals``). The sentence says what it is instead, and what to
do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType

from tidemill.errors import TopologyError
from tidemill.spark.java import JavaObject, class_of, items_of
from tidemill.spark.plan.refused_literals import refused_literal

_ONCE_PER_PLAN = {
    "CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp", "CurrentTimestampLike", "CurrentBatchTimestamp",
}  # fmt: skip
_RANDOM = {
    "Rand", "Randn", "RandStr", "Uniform", "Uuid", "Shuffle", "MonotonicallyIncreasingID", "SparkPartitionID",
    "InputFileName", "InputFileBlockStart", "InputFileBlockLength",
}  # fmt: skip
_ANY_JAVA = "CallMethodViaReflection"
_SUBQUERIES = {"ScalarSubquery", "Exists", "InSubquery", "ListQuery"}
_SUSPECTS = ("CURRENT_LIKE", "EXPRESSION_WITH_RANDOM_SEED", "PLAN_EXPRESSION")
"""Spark's kinds of expressions that hold those above, besides those that are not deterministic."""

OF_ROWS = (
    "the function gives explode or the like, which makes several rows: take flat_map_values or flat_map, whose function gives an "
    "array"
)
OF_AN_AGGREGATE = (
    "the function gives an aggregate (sum, max ...), which is of several records: group the stream and take reduce or aggregate"
)
OF_A_WINDOW = (
    "the function gives a window, which is of several records, and would be of those that happen to be in a micro-batch: group "
    "the stream and take windowed_by"
)
_OF_SEVERAL = {"Aggregate": OF_AN_AGGREGATE, "Generate": OF_ROWS}
OF_ALL = (
    'the function gives columns by "*", which are none of its arguments: take those that it is called with (a struct holds all '
    "of its fields; F.struct(key, value) makes one of several)"
)
OF_A_LAMBDA = (
    "the function gives a function of SQL text (x -> ...), which can only be an argument of another one: write the whole in "
    "Python, as in F.transform(value, lambda x: x + 1)"
)
OF_A_UDF_IN_A_LAMBDA = (
    "a UDF is in the lambda of a higher-order function (F.transform, F.filter ...), where Spark calls none: give the UDF the "
    "whole array (a result of ArrayType), compute its result in a map_values above, or wrap the operator's function in "
    "per_record(...)"
)
_STAR = re.compile(r"[(.,] ?\*[,.) ]")
_LAMBDA = re.compile(r"(\w+|\([\w, ]+\)) *->")
_OF_AN_ORDER = (
    "the function gives an order ({0}() in an expression), which is of several records: leave it out; an array is sorted "
    "by F.array_sort or F.sort_array"
)


class UserColumnError(TopologyError):
    """A Column that can't be part of a static plan; the message does not say whose."""


def type_of(frame: DataFrame, column: Column) -> DataType:
    """The type of a Column that is computed for each row of ``frame`` by itself, always gives the same for it, and may give
    something.

    Raises:
        UserColumnError: it is not.
    """
    selected = _selected(frame, column)
    plan, above = selected._jdf.queryExecution().analyzed(), frame._jdf.queryExecution().analyzed()
    if not (plan.nodeName() == "Project" and plan.child().equals(above)):  # Spark adds more than a projection
        added = plan.nodeName() if plan.nodeName() != "Project" else plan.child().nodeName()
        raise UserColumnError(_OF_SEVERAL.get(added, OF_A_WINDOW))
    expression = plan.expressions().apply(0)
    if above.outputSet().subsetOf(expression.references()):
        raise UserColumnError(OF_ALL)
    _require_no_order(expression)
    require_same_again(frame, expression)
    refused = refused_literal(frame, expression)
    if refused is not None:
        raise UserColumnError(refused)
    return selected.schema["column"].dataType


def _selected(frame: DataFrame, column: Column) -> DataFrame:
    """The column by itself. Where Spark's error would name the columns of a layer, or nothing, ours says what it is."""
    try:
        return frame.select(column.alias("column"))
    except (AnalysisException, Py4JJavaError) as error:
        text = re.sub(r"'[^']*'", "", str(column).removeprefix("Column<'"))
        said = OF_ALL if _STAR.search(text) else OF_A_LAMBDA if _LAMBDA.match(text) else None
        if said is None:
            raise
        raise UserColumnError(said) from error


def _require_no_order(expression: JavaObject) -> None:
    """Refuses what Spark can't compute, and would say so of each micro-batch.

    Raises:
        UserColumnError: there is an order in it.
    """
    if " NULLS " not in expression.sql():
        return
    for part in _tree(expression):
        if part.getClass().getSimpleName() == "SortOrder":
            raise UserColumnError(_OF_AN_ORDER.format("asc" if part.isAscending() else "desc"))


def require_same_again(frame: DataFrame, expression: JavaObject) -> None:
    """Refuses an expression whose value would be computed once and kept, or differs when a batch is run again.

    Raises:
        UserColumnError: names the function and what to use instead.
    """
    patterns = class_of(frame.sparkSession, "org.apache.spark.sql.catalyst.trees.TreePattern")
    # A tree keeps what kinds of expressions it has; walking it takes many calls, so only to say which function it is.
    if expression.deterministic() and not any(expression.containsPattern(getattr(patterns, name)()) for name in _SUSPECTS):
        return
    for part in _tree(expression):
        _check(part)


def _check(expression: JavaObject) -> None:
    name = expression.getClass().getSimpleName()
    text = expression.prettyName()
    if name in _ONCE_PER_PLAN:
        raise UserColumnError(
            f"{text}() in an expression would be computed once and never again, because a stream thread's plan is built "
            f"once: call pyspark.sql.functions.{text}() through the module (F.{text}()), which gives the batch's wall clock"
        )
    if name in _RANDOM:
        raise UserColumnError(
            f"{text}() in an expression gives another value when a batch is run again after a failure: "
            "derive the value from the record (for example F.xxhash64(key, value)) or from its key and timestamp"
        )
    if name == _ANY_JAVA:
        raise UserColumnError(
            f"{text}() in an expression calls a method of Java, which may give another value when a batch is run again after a "
            "failure: take a function of pyspark.sql.functions, or per_record"
        )
    if name in _SUBQUERIES:
        raise UserColumnError(f"a subquery ({text}) in an expression would be computed once and never again: use a table")


def _tree(expression: JavaObject) -> Iterator[JavaObject]:
    yield expression
    for child in items_of(expression.children()):
        yield from _tree(child)
