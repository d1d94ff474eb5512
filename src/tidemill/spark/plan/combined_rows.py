"""Rows that the JVM combines before a Python step: sums before a count, merges of a ``reduce(of_columns(f))``.

    a count     one row for each key, which says of how many it is the sum             (``presummed``)
    a reduce    layer   one row for each key: the merge of its records, in their order  (``merged``)
                step    one row for each key: what the store holds, and all that came   (``HeldAggregates``)
                layer   the merge of what is in each row                                (``fold``)
                step    written to the store, and passed on                             (``MergedAggregates``)

Both sums and the first merge need the end of the input, so a standing run does without them: rows pass to the step one by one.

Decides what one row represents; which rows may be combined, and as what, is ``compile``'s. All other rows keep themselves apart
by what combined rows leave null. A function of a reduce must be associative, since it is applied to merges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidemill.spark.plan.clock import wall_clock_functions
from tidemill.spark.plan.codecs import Encoded, decoded, encoded
from tidemill.spark.plan.row_columns import own, row
from tidemill.spark.plan.user_columns import UserColumnError, type_of
from tidemill.steps.rows.codecs_wire import Physical
from tidemill.steps.rows.schema import HEAD, MARKER
from tidemill.topology.functions import UserFunction
from tidemill.topology.values import Serde

_ORDER = ("seq", "child", "place")
_IN_BATCH = "in batch"
_GROUP = ("node", "part", "key", "key_num")
_APART_FROM_SUMS = ("off", *_ORDER, "headers", "value", "value_num", "wall")
_APART_FROM_MERGES = ("off", *_ORDER, "n", "headers", "value", "value_num")
_OF_THE_LAST = ("off", *_ORDER, "headers")
"""Columns that a merged row has of its last record."""


def can_be_grouped_by(key: Encoded) -> bool:
    """Not by doubles: Spark makes one of 0.0 and -0.0, which are two keys in Kafka."""
    return key.kind is not Physical.DOUBLE


def presummed(frame: DataFrame, sink_tags: Sequence[int]) -> DataFrame:
    """One row per (node, task, key) of rows with ``summed``, which has the place of its last record in the order; all others keep
    themselves apart by what summed rows leave null.

    ``sink_tags``: of the rows that may be summed over tasks, because a repartition topic gets them. No column is of a nested
    type: one in the key took as long as all else. Doubles are no grouping columns, because Spark makes one of 0.0 and -0.0
    there; the greatest of a row kept apart is that row's own.
    """
    part = row("part")
    if sink_tags:
        part = F.when(row("node").isin(list(sink_tags)) & row("summed"), F.lit(-1)).otherwise(part)
    apart = {f"apart:{name}": F.when(~row("summed"), row(name)) for name in _APART_FROM_SUMS}
    kept = [row(name) for name in ("key", "key_num", "key_dbl", "value_dbl", "n", "node", "seq", "ts")]
    named = [column.alias(name) for name, column in apart.items()]
    by = [F.col(f"`{_IN_BATCH}`"), *map(row, _GROUP), *[F.col(f"`{name}`") for name in apart]]
    grouped = frame.select(_in_batch(), part.alias(own("part")), *kept, *named).groupBy(*by)
    count = F.sum(F.coalesce(row("n"), F.lit(1))).alias(own("n"))
    summed = grouped.agg(count, *[F.max(row(name)).alias(own(name)) for name in ("seq", "ts", "key_dbl", "value_dbl")])
    return summed.withColumns({own(name): F.col(f"`apart:{name}`") for name in _APART_FROM_SUMS if name != "seq"})


def _in_batch() -> Column:
    """The first grouping column. Hashed groups come in the order in which they began, but where memory or a limit of Spark's does
    not suffice they are sorted by these columns: the head is the first row of a batch and the marker its last in any case."""
    node = row("node")
    return F.when(node == HEAD, 0).when(node == MARKER, 2).otherwise(1).alias(_IN_BATCH)


@dataclass(frozen=True, slots=True)
class Merging:
    """Rows of ``tag`` are merged by key: ``function(earlier, later)``, values written by ``serde``."""

    tag: int
    function: UserFunction
    serde: Serde
    value_type: DataType


def check_function(frame: DataFrame, function: UserFunction, value: Column) -> None:
    """Spark looks at the function as ``fold`` calls it.

    Raises:
        UserColumnError: it calls a UDF.
    """
    entries = F.array(F.struct(value.alias("v"), F.lit(0).cast("bigint").alias("ts")))
    try:
        type_of(frame, fold(entries, function))
    except AnalysisException as error:
        if error.getCondition() != "UNSUPPORTED_FEATURE.LAMBDA_FUNCTION_WITH_PYTHON_UDF":
            raise
        raise UserColumnError(
            "the function calls a UDF, which Spark can't call where it merges values: call it in a map_values above, or reduce "
            "with a plain Python function"
        ) from error


def merged(frame: DataFrame, mergings: Sequence[Merging]) -> DataFrame:
    """One row for each (node, task, key) of the rows to be merged, with offset, order and headers of the last; all others keep
    themselves apart, as in ``presummed``, by what merged rows leave null."""
    node = row("node")
    is_mine = node.isin([merging.tag for merging in mergings])
    apart = [F.when(~is_mine, row(name)).alias(own(name)) for name in _APART_FROM_MERGES]
    order = [row(name).alias(name) for name in (*_ORDER, "off", "ts", "headers")]
    entries = [
        F.when(node == merging.tag, F.struct(*order, decoded(merging.serde, "value").alias("v")))
        for merging in mergings
    ]
    named = [entry.alias(f"entry:{at}") for at, entry in enumerate(entries)]
    kept = map(row, (*_GROUP, "key_dbl", "value_dbl", "ts", "wall"))
    by = [F.col(f"`{_IN_BATCH}`"), *map(row, (*_GROUP, *_APART_FROM_MERGES))]
    grouped = frame.select(_in_batch(), *kept, *apart, *named).groupBy(*by).agg(
        *[F.max(row(name)).alias(own(name)) for name in ("key_dbl", "value_dbl", "ts", "wall")],
        *[_in_order(F.collect_list(F.col(f"`entry:{at}`")), of).alias(f"entries:{at}") for at, of in enumerate(mergings)],
    )
    results = {f"result:{at}": fold(F.col(f"`entries:{at}`"), merging.function) for at, merging in enumerate(mergings)}
    with_results = grouped.withColumns(results)
    return with_results.withColumns(_columns(mergings))


def _in_order(entries: Column, merging: Merging) -> Column:
    if not _has_map(merging.value_type):
        return F.array_sort(entries)
    # Maps have no order, and an entry is compared as a whole, though its first fields always decide.
    return F.array_sort(entries, _compared)


def _compared(first: Column, second: Column) -> Column:
    one, other = (F.struct(*[entry[name].alias(name) for name in _ORDER]) for entry in (first, second))
    return F.when(one < other, -1).when(one > other, 1).otherwise(0)


def _has_map(kind: DataType) -> bool:
    match kind:
        case StructType(fields=fields):
            return any(_has_map(field.dataType) for field in fields)
        case ArrayType(elementType=element):
            return _has_map(element)
    return isinstance(kind, MapType)


def fold(entries: Column, function: UserFunction) -> Column:
    """(v, ts) of all entries, one after the other."""
    first = F.get(entries, F.lit(0))

    def step(so_far: Column, entry: Column) -> Column:
        begins = so_far["v"].isNull()  # deleted by what came before: the next value is the first again
        value = F.when(begins, entry["v"]).otherwise(function(so_far["v"], entry["v"]))
        at = F.when(begins, entry["ts"]).otherwise(F.greatest(so_far["ts"], entry["ts"]))
        return F.struct(value.alias("v"), at.alias("ts"))

    with wall_clock_functions():
        return F.aggregate(
            F.slice(entries, F.lit(2), F.size(entries)), F.struct(first["v"].alias("v"), first["ts"].alias("ts")), step
        )


def _columns(mergings: Sequence[Merging]) -> dict[str, Column]:
    found: dict[str, Column] = {name: row(name) for name in (*_OF_THE_LAST, "ts", "value", "value_num", "value_dbl")}
    for at, merging in enumerate(mergings):
        is_mine = row("node") == merging.tag
        last = F.try_element_at(F.col(f"`entries:{at}`"), F.lit(-1))
        result = F.col(f"`result:{at}`")
        for name in _OF_THE_LAST:
            found[name] = F.when(is_mine, last[name]).otherwise(found[name])
        found["ts"] = F.when(is_mine, result["ts"]).otherwise(found["ts"])
        written = encoded(merging.serde, result["v"], merging.value_type, "a merged value")
        for kind in Physical:
            name = "value" + kind.value
            column = written.column if kind is written.kind else F.lit(None)
            found[name] = F.when(is_mine, column).otherwise(found[name])
    return {own(name): column for name, column in found.items()}
