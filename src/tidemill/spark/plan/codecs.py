"""Typed columns as the columns of ``steps.rows.schema`` and back, by serde.

Decides which physical column carries a serde's values between a Python step and the JVM: integral serdes travel as bigint
and floating ones as double (Catalyst has no function between such a number and its bytes), all others as their bytes.
Python steps turn numbers into bytes and back (``physical`` tells them how). Leaves validity of the bytes to who wrote them: a
serde, or the source step, whose ``intake`` lets nothing pass that the serde would refuse. ``json_columns`` has structs as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeGuard

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from tidemill.dsl import json_schema
from tidemill.dsl.serdes import Serdes
from tidemill.dsl.serdes_json import JsonSerde
from tidemill.errors import TopologyError
from tidemill.spark.plan import json_columns
from tidemill.spark.plan.json_columns import json_type, read_column, written_column
from tidemill.spark.plan.row_columns import row
from tidemill.steps.rows.codecs_wire import LENGTH_SIZE, EntriesSerde, PairSerde, Physical, TransitJson, in_transit, physical
from tidemill.topology.values import Serde

_TIME_PARSER = "spark.sql.legacy.timeParserPolicy"


def is_json(serde: Serde) -> TypeGuard[JsonSerde | TransitJson]:
    return isinstance(serde, (JsonSerde, TransitJson))


def _struct_of(serde: JsonSerde | TransitJson) -> json_schema.StructType:
    """The schema of a topic's JSON, or of a struct in transit, is that of an object."""
    assert isinstance(serde.type, json_schema.StructType)
    return serde.type


def check_times(session: SparkSession, serdes: Iterable[Serde | None]) -> None:
    """Refuses a session whose legacy parser takes microseconds for milliseconds, and old dates for those of the Julian calendar.

    Raises:
        TopologyError: one of the serdes reads or writes times as JSON.
    """
    with_times = next((serde for serde in serdes if serde is not None and has_times(serde)), None)
    if with_times is not None and (session.conf.get(_TIME_PARSER) or "").upper() == "LEGACY":
        raise TopologyError(
            f"{_TIME_PARSER} is LEGACY, with which Spark misreads the times of {with_times.sql_type}: remove the setting "
            "(functions that need it can take the text, and F.to_timestamp with a pattern of today's)"
        )


def has_times(serde: Serde) -> bool:
    """True if it reads or writes times as JSON."""
    if isinstance(serde, PairSerde):
        return has_times(serde.left) or has_times(serde.right)
    transit = in_transit(serde)
    return is_json(transit) and json_columns.has_times(transit.type)


def decoded(serde: Serde, side: str) -> Column:
    """The typed column of ``side`` ("key" or "value") of a layer's row whose bytes ``serde`` wrote."""
    serde = in_transit(serde)
    kind = physical(serde.sql_type)
    column = row(side + kind.value)
    if isinstance(serde, PairSerde):
        return _opened(serde, column)
    if isinstance(serde, EntriesSerde):
        return F.transform(F.split(column.cast("string"), ","), partial(_entry, serde))
    if kind is Physical.NUMBER or serde.sql_type == "float":
        return column.cast(serde.sql_type)
    return column if kind is Physical.DOUBLE else _read(serde, column)


def _read(serde: Serde, column: Column) -> Column:
    """The value of a column of bytes."""
    if serde.sql_type == "binary":
        return column
    text = column.cast("string")
    return read_column(text, _struct_of(serde), serde.max_bytes) if is_json(serde) else text


def _opened(pair: PairSerde, column: Column) -> Column:
    """A struct of ``left`` and ``right``. Nothing here fails on other bytes: rows of other nodes are in the frame, too."""
    length = F.substring(column, 1, LENGTH_SIZE).cast("string").try_cast("int")
    begin = LENGTH_SIZE + 2  # positions count from 1, and one byte says whether there is a right side
    left = F.when(length >= 0, F.substring(column, F.lit(begin), length))
    rest = F.length(column)  # more than there is: up to the end
    has_right = F.substring(column, begin - 1, 1).cast("string") == "+"
    right = F.when(has_right, F.substring(column, F.lit(begin) + F.greatest(length, F.lit(0)), rest))
    return F.struct(_side(pair.left, left).alias("left"), _side(pair.right, right).alias("right"))


def _side(serde: Serde, column: Column) -> Column:
    serde = in_transit(serde)
    is_number = physical(serde.sql_type) is not Physical.BYTES
    return column.cast("string").try_cast(serde.sql_type) if is_number else _read(serde, column)


def _entry(entries: EntriesSerde, text: Column) -> Column:
    at, value = F.substring_index(text, ":", 1), F.substring_index(text, ":", -1)
    read = _side(entries.of, value if entries.is_of_numbers else F.unhex(value))
    return F.struct(at.try_cast("bigint").alias("ts"), read.alias("v"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One side of a record as physical columns; the two others of the same side are null."""

    kind: Physical
    column: Column


def encoded(serde: Serde, column: Column, data_type: DataType, where: str) -> Encoded:
    """``column`` as ``serde`` writes it.

    Raises:
        TopologyError: the column's type is not the serde's (a bigint serde takes an int too).
    """
    name, serde = serde.name, in_transit(serde)
    found, wanted = data_type.simpleString(), serde.sql_type
    if found == "void":  # cast, not replaced: the column may fail, as F.raise_error does
        return Encoded(kind=Physical.BYTES, column=column.cast("binary"))
    if is_json(serde):
        if not isinstance(data_type, StructType):
            raise TopologyError(f"{where}: the json serde writes a struct, but the column has type {found}: use F.struct")
        text = written_column(column, data_type, _struct_of(serde), where, is_checked=isinstance(serde, JsonSerde))
        return Encoded(kind=Physical.BYTES, column=text.cast("binary"))
    if found != wanted and (found, wanted) not in (("int", "bigint"), ("float", "double"), ("smallint", "int")):
        raise TopologyError(
            f"{where}: the column has type {found}, but the serde {name} writes {wanted}: {_advice(data_type, wanted)}"
        )
    kind = physical(wanted)
    if kind is Physical.NUMBER:
        return Encoded(kind=kind, column=column.cast("bigint"))
    if kind is Physical.DOUBLE:
        return Encoded(kind=kind, column=column.cast("double"))
    return Encoded(kind=kind, column=column.cast("binary"))


def _advice(data_type: DataType, wanted: str) -> str:
    if isinstance(data_type, StructType):
        names = (field.name if field.name.isidentifier() else f"`{field.name}`" for field in data_type)
        fields = ", ".join(f"{name} {field.dataType.simpleString()}" for name, field in zip(names, data_type, strict=True))
        return f"give Serdes.json({fields!r}), or make one {wanted} of the fields"
    return f"convert the column (for example .cast({wanted!r})) or give a serde for {data_type.simpleString()}"


def serde_for_type(data_type: DataType, where: str) -> Serde:
    """The serde for an edge that the program gives none: chosen by the column's type."""
    by_type: dict[str, Callable[[], Serde]] = {
        "string": Serdes.string,
        "binary": Serdes.bytes,
        "bigint": Serdes.long,
        "int": Serdes.integer,
        "smallint": Serdes.short,
        "double": Serdes.double,
        "float": Serdes.float,
        "boolean": Serdes.boolean,
        "void": Serdes.bytes,
    }
    found = data_type.simpleString()
    if found in by_type:
        return by_type[found]()
    if isinstance(data_type, StructType):
        return Serdes.json(json_type(data_type, where).ddl)
    raise TopologyError(
        f"{where}: no serde for a column of type {found}: cast it, for example to string, make it a field of an F.struct(...), "
        "which is written as JSON, or give a serde of your own for that type (key=, value=)"
    )
