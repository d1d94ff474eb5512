"""``reduce(of_columns(f))`` on a plan: a batch is merged in the JVM, met with what the store holds, and merged again.

    layer   one row for each key: the merge of its records, in their order
    step    beside each row, before it, what the store holds of its key               (``HeldAggregates``)
    layer   one row for each key: the merge of both
    step    written to the store, and passed on                                       (``MergedAggregates``)

Decides the rewriting of such a node into two, and how rows are merged. So a batch's records never meet Python one by one; the
function must be associative, since it is applied to merges. The function never leaves the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from tidemill.spark.plan.clock import wall_clock_functions
from tidemill.spark.plan.codecs import decoded, encoded
from tidemill.steps.rows.codecs_wire import Physical
from tidemill.topology.nodes import Node, ProcessorNode, Topology
from tidemill.topology.operations import OfColumns, Operation, Reduce
from tidemill.topology.spark_operations import HeldAggregates, MergedAggregates

_HELD = "|held"
_APART = ("off", "seq", "child", "n", "headers", "value", "value_num")


@dataclass(frozen=True, slots=True)
class Merging:
    """Rows of ``tag`` are merged by key: ``function(earlier, later)``, values written by ``serde``."""

    tag: int
    function: Callable[..., Any]
    serde: Any
    value_type: DataType


def reduces_columns(operation: Operation) -> bool:
    return isinstance(operation, Reduce) and isinstance(operation.reducer, OfColumns)


def merge_functions(topology: Topology) -> dict[str, Callable[..., Any]]:
    """Of a program's topology, by the nodes that the plan has for them."""
    found: dict[str, Callable[..., Any]] = {}
    for name, node in topology.nodes.items():
        operation = node.operation if isinstance(node, ProcessorNode) else None
        if isinstance(operation, Reduce) and isinstance(operation.reducer, OfColumns):
            found[name] = found[name + _HELD] = operation.reducer.function
    return found


def with_column_reduces(topology: Topology) -> Topology:
    """The topology as the plan sees it; the same if it has none."""
    if not merge_functions(topology):
        return topology
    nodes: dict[str, Node] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for name, node in topology.nodes.items():
        if isinstance(node, ProcessorNode) and isinstance(node.operation, Reduce) and reduces_columns(node.operation):
            store = node.operation.store
            nodes[name + _HELD] = replace(node, name=name + _HELD, operation=HeldAggregates(store))
            parents[name + _HELD] = topology.parents[name]
            nodes[name] = replace(node, operation=MergedAggregates(store))
            parents[name] = (name + _HELD,)
        else:
            nodes[name], parents[name] = node, topology.parents[name]
    return replace(topology, nodes=nodes, parents=parents)


def merged(frame: DataFrame, mergings: Sequence[Merging]) -> DataFrame:
    """One row for each (node, task, key) of the rows to be merged, with offset, order and headers of the last; all others keep
    themselves apart, as in ``presummed``, by what merged rows leave null."""
    node = F.col("node")
    is_mine = node.isin([merging.tag for merging in mergings])
    apart = [F.when(~is_mine, F.col(name)).alias(name) for name in _APART]
    entries = [
        F.when(node == merging.tag, F.struct("seq", "child", "off", "ts", "headers", decoded(merging.serde, "value").alias("v")))
        for merging in mergings
    ]
    named = [entry.alias(f"entry:{at}") for at, entry in enumerate(entries)]
    chosen = frame.select("node", "part", "key", "key_num", *apart, "key_dbl", "value_dbl", "ts", "wall", *named)
    grouped = chosen.groupBy("node", "part", "key", "key_num", *_APART).agg(
        *[F.max(name).alias(name) for name in ("key_dbl", "value_dbl", "ts", "wall")],
        *[F.array_sort(F.collect_list(F.col(f"`entry:{at}`"))).alias(f"entries:{at}") for at in range(len(mergings))],
    )
    results = {f"result:{at}": _folded(F.col(f"`entries:{at}`"), merging) for at, merging in enumerate(mergings)}
    with_results = grouped.withColumns(results)
    return with_results.withColumns(_columns(mergings))


def _folded(entries: Column, merging: Merging) -> Column:
    """(value, timestamp) of all entries, one after the other."""
    first = F.get(entries, F.lit(0))

    def step(so_far: Column, entry: Column) -> Column:
        begins = so_far["v"].isNull()  # deleted by what came before: the next value is the first again
        value = F.when(begins, entry["v"]).otherwise(merging.function(so_far["v"], entry["v"]))
        at = F.when(begins, entry["ts"]).otherwise(F.greatest(so_far["ts"], entry["ts"]))
        return F.struct(value.alias("v"), at.alias("ts"))

    with wall_clock_functions():
        return F.aggregate(
            F.slice(entries, F.lit(2), F.size(entries)), F.struct(first["v"].alias("v"), first["ts"].alias("ts")), step
        )


def _columns(mergings: Sequence[Merging]) -> dict[str, Column]:
    found: dict[str, Column] = {name: F.col(name) for name in ("off", "seq", "headers", "ts", "value", "value_num", "value_dbl")}
    for at, merging in enumerate(mergings):
        is_mine = F.col("node") == merging.tag
        last = F.try_element_at(F.col(f"`entries:{at}`"), F.lit(-1))
        result = F.col(f"`result:{at}`")
        for name in ("off", "seq", "headers"):
            found[name] = F.when(is_mine, last[name]).otherwise(found[name])
        found["ts"] = F.when(is_mine, result["ts"]).otherwise(found["ts"])
        written = encoded(merging.serde, result["v"], merging.value_type, "a merged value")
        for kind in Physical:
            name = "value" + kind.value
            own = written.column if kind is written.kind else F.lit(None)
            found[name] = F.when(is_mine, own).otherwise(found[name])
    return found
