"""Nodes and expressions that a static plan must not hold (correctness.md, rules 18 and 19), found in Spark's own trees.

Decides by the classes of nodes and expressions; the sentence says which one and what to do instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame

from tidemill.errors import TopologyError
from tidemill.spark.java import JavaObject, class_of, items_of
from tidemill.spark.plan.udf_calls import PREFIX

_FROZEN = ("Exchange", "Subquery", "InMemory", "AdaptiveSparkPlan", "Broadcast")
"""Parts of names of physical nodes that compute once and replay the first batch's result in every batch."""

_LOOKUP = ("BroadcastHashJoin", "BroadcastExchange")
"""Nodes of a join with a static data frame: its side is meant to be computed once."""

_OF_UDFS = ("BatchEvalPython", "ArrowEvalPython")

_ONCE_PER_PLAN = {
    "CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp", "CurrentTimestampLike", "CurrentBatchTimestamp",
}  # fmt: skip
_RANDOM = {
    "Rand", "Randn", "RandStr", "Uniform", "Uuid", "Shuffle", "MonotonicallyIncreasingID", "SparkPartitionID",
    "InputFileName", "InputFileBlockStart", "InputFileBlockLength",
}  # fmt: skip
_SUBQUERIES = {"ScalarSubquery", "Exists", "InSubquery", "ListQuery"}
_SUSPECTS = ("CURRENT_LIKE", "EXPRESSION_WITH_RANDOM_SEED", "PLAN_EXPRESSION")
"""Spark's kinds of expressions that hold those above, besides those that are not deterministic."""


def check_expressions(frame: DataFrame) -> None:
    """Refuses expressions whose value would be computed once and kept, or differs when a batch is run again.

    Raises:
        TopologyError: names the function and what to use instead.
    """
    analyzed = frame._jdf.queryExecution().analyzed()
    patterns = class_of(frame.sparkSession, "org.apache.spark.sql.catalyst.trees.TreePattern")
    # A tree keeps what kinds of expressions it has; walking it takes thousands of calls, so only to say which function it is.
    if analyzed.deterministic() and not any(analyzed.containsPattern(getattr(patterns, name)()) for name in _SUSPECTS):
        return
    for plan in _tree(analyzed):
        for expression in items_of(plan.expressions()):
            for part in _tree(expression):
                _check_expression(part)


def _check_expression(expression: JavaObject) -> None:
    name = expression.getClass().getSimpleName()
    text = expression.prettyName()
    if name in _ONCE_PER_PLAN:
        raise TopologyError(
            f"{text}() in an expression would be computed once and never again, because a stream thread's plan is built "
            f"once: call pyspark.sql.functions.{text}() through the module (F.{text}()), which gives the batch's wall clock"
        )
    if name in _RANDOM:
        raise TopologyError(
            f"{text}() in an expression gives another value when a batch is run again after a failure: "
            "derive the value from the record (for example F.xxhash64(key, value)) or from its key and timestamp"
        )
    if name in _SUBQUERIES:
        raise TopologyError(f"a subquery ({text}) in an expression would be computed once and never again: use a table")


def check_physical(frame: DataFrame, *, lookups: int = 0) -> None:
    """Refuses a physical plan that would replay its first batch or that is cut into several tasks. ``lookups``: as many static
    sides are meant to be broadcast once.

    Raises:
        TopologyError: names the node.
    """
    executed = frame._jdf.queryExecution().executedPlan()
    broadcast = 0
    for node in _tree(executed, not_below="BroadcastExchange" if lookups else None):
        if lookups and node.nodeName() in _LOOKUP:
            broadcast += node.nodeName() == "BroadcastExchange"
            continue
        if node.nodeName() in _OF_UDFS and not all(udf.name().startswith(PREFIX) for udf in items_of(node.udfs())):
            raise TopologyError(
                "a UDF is called by the name that it is registered under: call the object that udf(...) gave, as in my_udf(value)"
            )
        name = "Subquery" if node.subqueries().size() else node.nodeName()
        if any(part in name for part in _FROZEN):
            raise TopologyError(
                f"the plan holds a {name}, which would replay the first batch's result in every batch: "
                "express the operation without joining, sorting globally or collecting other data"
            )
    if broadcast != lookups:
        raise TopologyError(f"the plan broadcasts {broadcast} data frames, expected the {lookups} of join_dataframe")
    found = executed.execute().getNumPartitions()
    if found != 1:
        raise TopologyError(f"the plan has {found} partitions, expected 1")


def _tree(node: JavaObject, not_below: str | None = None) -> Iterator[JavaObject]:
    yield node
    if not_below is not None and node.nodeName() == not_below:
        return
    for child in items_of(node.children()):
        yield from _tree(child, not_below)
