"""JSON text and columns of structs: Catalyst's side of ``dsl.json_reading`` and ``dsl.json_writing``.

Decides the expressions. Those that read get text that the serde has checked, and give the serde's values. Those that write give
the serde's text: fields in the schema's order and of its types, whatever the order and the widths in the column. A column that
the schema has no place for is refused when the plan is built. Values that can't be written are refused when they are met: those
that JSON has no form for (NaN, infinite numbers, years beyond 9999), required ones that are null, others than those of an Enum or
a Literal, and names that no reader takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from tidemill.dsl.json_reading import MAX_NAME
from tidemill.dsl.json_schema import ArrayType, DecimalType, JsonType, MapType, ScalarType, StructType, in_backticks, parts_of
from tidemill.errors import TopologyError

_WIDER = {
    ("tinyint", "smallint"), ("tinyint", "int"), ("tinyint", "bigint"), ("smallint", "int"), ("smallint", "bigint"),
    ("int", "bigint"), ("float", "double"),
}  # fmt: skip
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_YEARS = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp": ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
    "timestamp_ntz": ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"),
}
"""The first and the last one that Python has."""
_MINUTES = len("2026-01-31T12:00")
_LONGEST_OFFSET = len("+02:00")
_AS_PARSED = {"float": "double", "timestamp": "string"}
_TIMES = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json``, whose own form has milliseconds."""


def read_column(text: Column, kind: StructType, max_bytes: int) -> Column:
    """The struct that JSON text holds; the text is one that the serde reads."""
    longest = max((len(name) for name, _ in kind.fields), default=0)
    # Of a field by this name Spark would give text that it can't read.
    options = {"mode": "PERMISSIVE", "maxStringLen": str(max_bytes), "columnNameOfCorruptRecord": "_" * (longest + 1)}
    # Floats as the serde reads them, since the JVM's own reader rounds in another place; of times see _with_seconds.
    plain = _with_types(kind, _AS_PARSED)
    read = F.from_json(text, _ddl(plain), options)
    return read if plain == kind else _with_seconds(read, kind).cast(_ddl(kind))


def _with_seconds(column: Column, kind: JsonType) -> Column:
    """The texts of times as Spark can cast them: it knows none that has an offset, but no seconds, and would read null."""
    if ScalarType("timestamp") not in parts_of(kind):
        return column
    match kind:
        case StructType(fields):

            def of_fields(found: Column) -> Column:
                parts = [
                    _with_seconds(part, inner).alias(name)
                    for part, (name, inner) in zip(_fields(found, fields, _AS_PARSED), fields, strict=True)
                ]
                return F.when(found.isNotNull(), F.struct(*parts))

            return F.transform(F.array(column), of_fields)[0]  # so that the text is parsed once, whatever is asked of it
        case ArrayType(element):
            return F.transform(column, lambda item: _with_seconds(item, element))
        case MapType(inner):
            return F.transform_values(column, lambda _, item: _with_seconds(item, inner))
        case _:
            has_seconds = F.substring(column, _MINUTES + 1, 1) == ":"
            padded = F.concat(F.substring(column, 1, _MINUTES), F.lit(":00"), F.substring(column, _MINUTES + 1, _LONGEST_OFFSET))
            return F.when(has_seconds, column).otherwise(padded)


def _fields(
    column: Column,
    fields: Sequence[tuple[str, JsonType]],
    types: Mapping[str, str] | None = None,
    places: Sequence[int] | None = None,
) -> list[Column]:
    """The fields of a struct (those at ``places``), those of types that are in ``types`` being of others."""
    ddl = ",".join(f"`{at}`:{_ddl(_with_types(inner, types or {}))}" for at, (_, inner) in enumerate(fields))
    return _told_apart(column, [name for name, _ in fields], f"struct<{ddl}>", places)


def _told_apart(
    column: Column, names: Sequence[str], placed: str | spark.StructType, places: Sequence[int] | None = None
) -> list[Column]:
    """The fields of a struct (those at ``places``) by their names, or, as Spark takes names that differ in case only for one, by
    places, which are the names in the type ``placed``."""
    wanted = range(len(names)) if places is None else places
    if len({name.upper().lower() for name in names}) == len(names):
        return [column.getField(names[at]) for at in wanted]
    by_place = column.cast(placed)
    return [by_place.getField(str(at)) for at in wanted]


def _with_types(kind: JsonType, others: Mapping[str, str]) -> JsonType:
    match kind:
        case StructType(fields):
            return StructType(tuple((name, _with_types(inner, others)) for name, inner in fields), kind.required, kind.is_closed)
        case ArrayType(element):
            return ArrayType(_with_types(element, others))
        case MapType(inner):
            return MapType(_with_types(inner, others))
        case ScalarType(ddl) if ddl in others:
            return ScalarType(others[ddl])
        case _:
            return kind


def _ddl(kind: JsonType) -> str:
    """The type as DDL text that Spark reads alike whatever ``spark.sql.timestampType`` and
    ``spark.sql.ansi.enforceReservedKeywords`` are."""
    match kind:
        case StructType(fields):
            return f"struct<{','.join(f'{in_backticks(name)}:{_ddl(inner)}' for name, inner in fields)}>"
        case ArrayType(element):
            return f"array<{_ddl(element)}>"
        case MapType(inner):
            return f"map<string,{_ddl(inner)}>"
        case ScalarType("timestamp"):
            return "timestamp_ltz"
        case _:
            return kind.ddl


def has_times(kind: JsonType) -> bool:
    """True if a part of it is a time or a date."""
    return any(part.ddl in _YEARS for part in parts_of(kind))


def written_column(
    column: Column, data_type: spark.DataType, kind: StructType, where: str, *, is_checked: bool
) -> Column:
    """The JSON text of a struct, as the serde with this schema writes it. ``is_checked``: what the serde refuses is refused here.

    Raises:
        TopologyError: the column is not what the schema says.
    """
    shaped = _shaped(column, data_type, kind, where)
    options = {"ignoreNullFields": "true", **(_TIMES if has_times(kind) else {})}
    present = _present(data_type, kind, where)
    if not is_checked or not _may_be_unwritable(present):
        return F.to_json(shaped, options)

    def checked(found: Column) -> Column:
        chain: Any = F
        for is_met, sentence in _unwritable(found, present, where):
            chain = chain.when(is_met, F.raise_error(F.lit(sentence)).cast("string"))
        written: Column = chain.otherwise(F.to_json(found, options))
        return written

    return F.transform(F.array(shaped), checked)[0]  # so that the struct is there once, whatever is asked of it


def json_type(data_type: spark.DataType, where: str) -> JsonType:
    """The schema of columns of a type.

    Raises:
        TopologyError: JSON can't carry it.
    """
    match data_type:
        case spark.StructType(fields=fields):
            if not fields:
                raise TopologyError(f"{where}: a struct has no fields, and so no form in JSON here: give F.struct(...) some")
            if len(set(data_type.names)) < len(fields):
                raise TopologyError(f"{where}: a struct has two fields of one name: {', '.join(data_type.names)}")
            return StructType(tuple((field.name, json_type(field.dataType, where)) for field in fields))
        case spark.ArrayType(elementType=element):
            return ArrayType(json_type(element, where))
        case spark.MapType(keyType=key, valueType=inner) if key.simpleString() == "string":
            return MapType(json_type(inner, where))
    if isinstance(data_type, spark.DecimalType):
        return DecimalType(data_type.precision, data_type.scale)
    name = data_type.simpleString()
    if name not in ("string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "binary", *_YEARS):
        raise TopologyError(f"{where}: a field has type {name}, which JSON does not carry: cast it, for example to string")
    return ScalarType(name)


def _shaped(column: Column, found: spark.DataType, kind: JsonType, where: str) -> Column:
    """``column`` with the schema's fields in their order, of their types."""
    if _is_alike(found, kind):
        return column
    if found.simpleString() == "void":
        return column.cast(_ddl(kind))
    match kind, found:
        case StructType(), spark.StructType():
            return _shaped_struct(column, found, kind, where)
        case ArrayType(element), spark.ArrayType(elementType=item_type):
            return F.transform(column, lambda item: _shaped(item, item_type, element, f"{where}[]"))
        case MapType(), spark.MapType(keyType=spark.NullType()):  # F.create_map() without arguments
            return column.cast(_ddl(kind))
        case MapType(value), spark.MapType(keyType=key, valueType=item_type) if key.simpleString() == "string":
            return F.transform_values(column, lambda _, item: _shaped(item, item_type, value, f"{where}[]"))
        case DecimalType(), _ if _has_room(kind, found):
            return column.cast(kind.ddl)
        case ScalarType(ddl), _ if (found.simpleString(), ddl) in _WIDER:
            return column.cast(ddl)
    raise TopologyError(
        f"{where}: the column has type {found.simpleString()}, but the serde's schema has {kind.ddl} there: convert the "
        "column, or give a serde with its type"
    )


def _shaped_struct(column: Column, found: spark.StructType, kind: StructType, where: str) -> Column:
    """Fields of the schema that the column lacks are left out; TopologyError for one that the schema lacks. Null stays null."""
    types = {field.name: field.dataType for field in found.fields}
    if len(types) < len(found.fields):
        raise TopologyError(f"{where}: the column has two fields of one name: {', '.join(found.names)}")
    lacking = [name for name in types if name not in dict(kind.fields)]
    if lacking:
        raise TopologyError(
            f"{where}: the column has the field {lacking[0]!r}, which the serde's schema {kind.ddl} lacks: drop it, or "
            "add it to the schema"
        )
    placed = spark.StructType([spark.StructField(str(at), field.dataType) for at, field in enumerate(found.fields)])
    parts = dict(zip(found.names, _told_apart(column, found.names, placed), strict=True))
    present = [(name, inner) for name, inner in kind.fields if name in types]
    shaped = [_shaped(parts[name], types[name], inner, f"{where}.{name}").alias(name) for name, inner in present]
    return F.when(column.isNotNull(), F.struct(*shaped))


def _has_room(kind: DecimalType, found: spark.DataType) -> bool:
    """True if every value of the column fits."""
    if isinstance(found, spark.DecimalType):
        return found.scale <= kind.scale and found.precision - found.scale <= kind.precision - kind.scale
    return _DIGITS.get(found.simpleString(), 99) <= kind.precision - kind.scale


def _present(found: spark.DataType, kind: JsonType, where: str) -> JsonType:
    """The schema without the fields that the column lacks.

    Raises:
        TopologyError: one of them is required.
    """
    match kind, found:
        case StructType(fields, required), spark.StructType():
            types = {field.name: field.dataType for field in found.fields}
            for name, _ in fields:
                if name in required and name not in types:
                    raise TopologyError(f"{where}: the column lacks the field {name!r}, which the serde's schema requires")
            present = ((name, _present(types[name], inner, f"{where}.{name}")) for name, inner in fields if name in types)
            return StructType(tuple(present), required)
        case ArrayType(element), spark.ArrayType(elementType=item):
            return ArrayType(_present(item, element, f"{where}[]"))
        case MapType(value), spark.MapType(valueType=item):
            return MapType(_present(item, value, f"{where}[]"))
        case _:
            return kind


def _is_alike(found: spark.DataType, kind: JsonType) -> bool:
    match kind, found:
        case StructType(fields), spark.StructType():
            return [name for name, _ in fields] == found.names and all(
                _is_alike(field.dataType, inner) for field, (_, inner) in zip(found.fields, fields, strict=True)
            )
        case ArrayType(element), spark.ArrayType(elementType=inner):
            return _is_alike(inner, element)
        case MapType(value), spark.MapType(keyType=key, valueType=inner):
            return key.simpleString() == "string" and _is_alike(inner, value)
        case _:
            return isinstance(kind, ScalarType) and found.simpleString() == kind.ddl


def _may_be_unwritable(kind: JsonType) -> bool:
    """True if ``_unwritable`` has conditions for it. Each field that is looked at takes calls of the JVM."""
    match kind:
        case StructType(fields, required):
            return any(name in required or _may_be_unwritable(inner) for name, inner in fields)
        case ArrayType(inner):
            return _may_be_unwritable(inner)
        case MapType():
            return True
        case _:
            return isinstance(kind, ScalarType) and (kind.ddl in ("float", "double", *_YEARS) or bool(kind.values))


def _unwritable(column: Column, kind: JsonType, where: str) -> Iterator[tuple[Column, str]]:
    """Conditions (never null) under which a value of the column can't be written, each with the error's sentence."""
    match kind:
        case StructType(fields, required):
            places = [at for at, (name, inner) in enumerate(fields) if name in required or _may_be_unwritable(inner)]
            for part, at in zip(_fields(column, fields, places=places), places, strict=True):
                name, inner = fields[at]
                if name in required:
                    is_null = column.isNotNull() & part.isNull()
                    yield is_null, f"{where}: json: the field {name} is null, expected a value: the schema requires one"
                yield from _unwritable(part, inner, f"{where}.{name}")
        case ArrayType(inner):
            yield from _in_any(column, inner, f"{where}[]")
        case MapType(inner):
            is_too_long = F.exists(F.map_keys(column), lambda name: F.octet_length(name) > MAX_NAME)
            problem = f"a value is under a name of more than {MAX_NAME} bytes, which no reader takes"
            yield _known(is_too_long), f"{where}[]: json: {problem}"
            yield from _in_any(F.map_values(column), inner, f"{where}[]")
        case ScalarType(_, values) if values:
            expected = ", ".join(map(repr, values))
            yield _known(~column.isin(list(values))), f"{where}: json: a value is none of {expected}, which the class takes"
        case ScalarType("float" | "double"):
            is_infinite = F.isnan(column) | (F.abs(column) == F.lit(float("inf")))
            problem = "NaN and infinite numbers have no form in JSON; write null or text for them"
            yield _known(is_infinite), f"{where}: json: {problem}"
        case ScalarType(ddl) if ddl in _YEARS:
            first, last = (F.lit(text).cast(_ddl(kind)) for text in _YEARS[ddl])
            yield _known(~column.between(first, last)), f"{where}: json: a {ddl} is beyond the years 1 to 9999"
        case _:
            pass


def _known(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _in_any(items: Column, kind: JsonType, where: str) -> Iterator[tuple[Column, str]]:
    sentences = dict.fromkeys(sentence for _, sentence in _unwritable(F.lit(None), kind, where))
    if sentences:
        is_met = F.exists(items, lambda item: reduce(or_, [is_met for is_met, _ in _unwritable(item, kind, where)]))
        yield _known(is_met), "; or ".join(sentences)
