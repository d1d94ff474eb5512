"""One projection of a layer: changes of rows by tag, collected and applied at once.

Decides how the changes of many waves become one ``select``; what they are is ``compile``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from tidemill.errors import TopologyError
from tidemill.spark.plan.codecs import Encoded
from tidemill.spark.plan.lookups import KEY, ROWS, Side
from tidemill.spark.plan.row_columns import own, row
from tidemill.spark.plan.user_columns import type_of
from tidemill.steps.rows import schema as rows
from tidemill.steps.rows.codecs_wire import Physical
from tidemill.steps.rows.schema import DROPPED


@dataclass(frozen=True, slots=True)
class KeyValue:
    """Key and value of a wave as typed columns. ``conditions``: which of its rows are still there, and as what the others go.

    ``is_plain``: both are columns of the frame, not expressions that the projection in the making computes. ``made``: the
    names of the columns among them that a layer has made. ``time``: with which timestamp they arrive, if not with their rows'.
    """

    key: Column
    key_type: DataType
    value: Column
    value_type: DataType
    conditions: tuple[tuple[Column, int], ...] = ()
    is_plain: bool = True
    made: frozenset[str] = frozenset()
    time: Column | None = None

    @staticmethod
    def typed(frame: DataFrame, key: Column, value: Column) -> KeyValue:
        schema = frame.select(key.alias("key"), value.alias("value")).schema
        return KeyValue(key, schema["key"].dataType, value, schema["value"].dataType)

    def merged_as(self, frame: DataFrame, name: str) -> KeyValue:
        """With value and timestamp of the frame's column of that name, which a merge has made."""
        value = _column(name)["v"]
        return replace(self, value=value, value_type=type_of(frame, value), time=_column(name)["ts"], made=self.made | {name})

    def kept(self, key: str, value: str) -> KeyValue:
        """The same as columns of the frame with these names."""
        return KeyValue(_column(key), self.key_type, _column(value), self.value_type, made=frozenset({key, value}))

    def with_key(self, frame: DataFrame, key: Column) -> KeyValue:
        if key is self.value:
            return replace(self, key=key, key_type=self.value_type)
        return self if key is self.key else replace(self, key=key, key_type=type_of(frame, key), is_plain=False)

    def with_value(self, frame: DataFrame, value: Column) -> KeyValue:
        if value is self.value:
            return self
        return replace(self, value=value, value_type=type_of(frame, value), is_plain=False)

    def passing(self, condition: Column, lost: int = DROPPED) -> KeyValue:
        """Only the rows that meet ``condition`` are forwarded; the others are tagged ``lost``."""
        return replace(self, conditions=(*self.conditions, (condition, lost)))

    def tagged(self, tag: Column) -> Column:
        """``tag`` for the rows that are still there."""
        for condition, lost in reversed(self.conditions):
            tag = F.when(condition, tag).otherwise(F.lit(lost))
        return tag

    @property
    def types(self) -> tuple[DataType, DataType]:
        return self.key_type, self.value_type

    @property
    def types_text(self) -> str:
        """Says nothing of what may be null."""
        return f"({self.key_type.simpleString()}, {self.value_type.simpleString()})"


@dataclass(frozen=True, slots=True)
class Wave:
    """The rows with one tag: they have left ``node``, or are about to enter it."""

    tag: int
    node: str
    at: KeyValue


class Changes:
    """The changes that one projection of ``frame`` makes; ``number`` makes the names of its typed columns unique."""

    def __init__(self, frame: DataFrame, number: int) -> None:
        self.frame = frame
        self._number = number
        self._node: list[tuple[int, Column]] = []
        self._columns: dict[str, list[tuple[int, Column]]] = {}
        self._typed: dict[str, Column] = {}
        self._exploded: list[tuple[int, str, Column, ArrayType]] = []
        self._summed: list[tuple[int, Column]] = []
        self._joins: list[_Join] = []

    @property
    def multiply(self) -> bool:
        """True if the projection makes several rows of one."""
        return bool(self._exploded or self._joins)

    def arrive(self, tag: int, at_tag: int, at: KeyValue) -> None:
        """The rows of ``tag`` that are still there wait as ``at_tag``."""
        self._node.append((tag, at.tagged(F.lit(at_tag))))
        if at.time is not None:
            self._columns.setdefault("ts", []).append((tag, at.time))

    def keep(self, tag: int, at: KeyValue) -> KeyValue:
        """Makes columns of the wave's expressions, for the next projection to read."""
        if at.conditions:
            self._node.append((tag, at.tagged(row("node"))))
        if at.is_plain:
            return replace(at, conditions=())
        key, value = f"k:{self._number}:{tag}", f"v:{self._number}:{tag}"
        self._typed[key] = F.when(row("node") == tag, at.key)
        self._typed[value] = F.when(row("node") == tag, at.value)
        return at.kept(key, value)

    def explode_values(self, tag: int, name: str, at: KeyValue, array: Column) -> KeyValue:
        kind = type_of(self.frame, array)
        if not isinstance(kind, ArrayType):
            raise TopologyError(f"{name}: flat_map_values gave {kind.simpleString()}, expected an array of values")
        alias = self._explode(tag, array, kind)
        return KeyValue(at.key, at.key_type, _column(alias), kind.elementType, made=at.made | {alias})

    def explode_pairs(self, tag: int, name: str, array: Column) -> KeyValue:
        kind = type_of(self.frame, array)
        if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType) and len(kind.elementType) == 2):
            raise TopologyError(f"{name}: flat_map gave {kind.simpleString()}, expected an array of struct(key, value)")
        first, second = kind.elementType.fields
        if first.name.lower() == second.name.lower():  # neither could be named
            pair_type = StructType([StructField("key", first.dataType), StructField("value", second.dataType)])
            kind = ArrayType(pair_type, kind.containsNull)
            array, (first, second) = array.cast(kind), pair_type.fields
        alias = self._explode(tag, array, kind)
        pair = _column(alias)
        is_none = F.raise_error(F.lit(f"{name}: flat_map gave null in an array, expected a struct(key, value)"))
        key, value = (
            F.when(pair.isNull(), is_none).otherwise(pair[side.name]) if kind.containsNull else pair[side.name]
            for side in (first, second)
        )
        return KeyValue(key, first.dataType, value, second.dataType, made=frozenset({alias}))

    def _explode(self, tag: int, array: Column, kind: ArrayType) -> str:
        """The name of the column that has the array's elements."""
        alias = f"e:{self._number}:{tag}"
        self._exploded.append((tag, alias, array, kind))
        return alias

    def join(
        self, tag: int, at: KeyValue, keys: Sequence[Column], side: Side, value: Callable[[Column], Column], *, left: bool
    ) -> KeyValue:
        """The rows of ``tag`` once for each row of ``side`` with the same keys, as ``value(row)``; ``left``: where there is none
        with a null row."""
        alias = f"j:{self._number}:{tag}"
        made = value(_column(alias))
        kind = type_of(self.frame.withColumn(alias, F.lit(None).cast(side.row)), made)
        self._joins.append(_Join(tag, alias, tuple(keys), side, made, left))
        joined = f"{alias}:value"
        return KeyValue(at.key, at.key_type, _column(joined), kind, made=at.made | {joined})

    def write(self, tag: int, side: str, to: Encoded, unless: Column | None = None) -> None:
        """The physical columns of ``side`` ("key" or "value")."""
        for kind in Physical:
            column = to.column if kind is to.kind else F.lit(None)
            if unless is not None and kind is to.kind:
                column = F.when(~unless, column)
            self._columns.setdefault(side + kind.value, []).append((tag, column))

    def sum_all(self, tag: int) -> None:
        """Makes the rows summable as they are: how many they stand for is all that counts. A result has the headers of its last
        record, so a record that has any is not summed with others."""
        for name in ("value", "value_num", "value_dbl"):
            self._columns.setdefault(name, []).append((tag, F.lit(None)))
        self._summed.append((tag, row("headers").isNull()))

    def sum_where(self, tag: int, condition: Column) -> None:
        """Turns the rows that meet ``condition``, and have no headers, into summable ones: their value is gone."""
        condition &= row("headers").isNull()
        for name in ("value", "value_num", "value_dbl"):
            writes = self._columns[name]
            at = next(i for i, (t, _) in enumerate(writes) if t == tag)
            writes[at] = (tag, F.when(~condition, writes[at][1]))
        self._summed.append((tag, condition))

    def apply(self) -> DataFrame:
        frame = self.frame
        for join in self._joins:
            frame = join.applied(frame)
        for tag, alias, array, kind in self._exploded:
            other = F.array(F.lit(None).cast(kind.elementType))
            frame = exploded(frame, F.when(row("node") == tag, array).otherwise(other), alias)
        columns = {own(name): by_tag(writes, row(name)).cast(rows.DDL[name]) for name, writes in self._columns.items()}
        columns.update(self._typed)
        if self._summed:
            before = row("summed") if own("summed") in frame.columns else F.lit(False)
            columns[own("summed")] = by_tag(self._summed, before)
        if self._node:
            columns[own("node")] = by_tag(self._node, row("node"))
        return frame.withColumns(columns) if columns else frame


@dataclass(frozen=True, slots=True)
class _Join:
    """A join of the rows of one tag with a static side, which is broadcast; no match ever multiplies rows by itself."""

    tag: int
    alias: str
    keys: tuple[Column, ...]
    side: Side
    value: Column
    left: bool

    def applied(self, frame: DataFrame) -> DataFrame:
        is_mine, alias = row("node") == self.tag, self.alias
        renamed = [F.col(f"`{KEY}{number}`").alias(f"{alias}:{number}") for number in range(len(self.keys))]
        other = self.side.frame.select(*renamed, F.col(f"`{ROWS}`").alias(f"{alias}:rows"))
        equal = [F.when(is_mine, key) == F.col(f"`{alias}:{number}`") for number, key in enumerate(self.keys)]
        frame = frame.join(F.broadcast(other), reduce(and_, equal), "left")
        nothing = F.array(F.lit(None).cast(self.side.row))
        unmatched = nothing if self.left else F.array().cast(ArrayType(self.side.row))
        matches = F.when(is_mine, F.coalesce(F.col(f"`{alias}:rows`"), unmatched)).otherwise(nothing)
        frame = exploded(frame, matches, alias)
        frame = frame.withColumn(f"{alias}:value", F.when(is_mine, self.value))
        return frame.drop(alias, f"{alias}:rows", *[f"{alias}:{number}" for number in range(len(self.keys))])


def exploded(frame: DataFrame, array: Column, alias: str) -> DataFrame:
    """A row for each element of ``array``, as column ``alias``, one after the other in place of the row."""
    return frame.withColumn(alias, F.explode(array))


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def by_tag(writes: list[tuple[int, Column]], otherwise: Column | None) -> Column:
    """A column that takes, for the rows of each tag, what is written for it."""
    column = F.when(row("node") == writes[0][0], writes[0][1])
    for tag, to in writes[1:]:
        column = column.when(row("node") == tag, to)
    return column if otherwise is None else column.otherwise(otherwise)
