"""Nodes that a static plan must not hold (correctness.md, rule 18), found in Spark's own tree.

Decides by the names of nodes; the sentence says which one and what to do instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame

from tidemill.errors import TopologyError
from tidemill.spark.java import JavaObject, items_of
from tidemill.spark.plan.udf_calls import PREFIX

_FROZEN = ("Exchange", "Subquery", "InMemory", "AdaptiveSparkPlan", "Broadcast")
"""Parts of names of physical nodes that compute once and replay the first batch's result in every batch."""

_LOOKUP = ("BroadcastHashJoin", "BroadcastExchange")
"""Nodes of a join with a static data frame: its side is meant to be computed once."""

_OF_UDFS = ("BatchEvalPython", "ArrowEvalPython")


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
