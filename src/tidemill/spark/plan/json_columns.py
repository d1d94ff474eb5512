"""JSON text and columns of structs: Catalyst's side of ``dsl.json_reading`` and ``dsl.json_writing``.

Decides the expressions that read text which the serde has taken to the serde's values, and write the serde's text: fields in the
schema's order, of the schema's types, whatever the order and the widths in the column. A column that the schema has no place for
is refused when the plan is built; NaN and infinite numbers, for which JSON has no form, when they are met.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from tidemill.dsl.json_schema import ArrayType, JsonType, MapType, ScalarType, StructType
from tidemill.errors import TopologyError

_WIDER = {
    ("tinyint", "smallint"), ("tinyint", "int"), ("tinyint", "bigint"), ("smallint", "int"), ("smallint", "bigint"),
    ("int", "bigint"), ("float", "double"),
}  # fmt: skip


def read_column(text: Column, kind: StructType, max_bytes: int) -> Column:
    """The struct that JSON text holds; the text is one that the serde reads."""
    wide = _with_doubles(kind)  # as the serde does: the JVM's own reader of floats rounds in another place
    read = F.from_json(text, wide.ddl, {"mode": "PERMISSIVE", "maxStringLen": str(max_bytes)})
    return read if wide == kind else read.cast(kind.ddl)


def _with_doubles(kind: JsonType) -> JsonType:
    match kind:
        case StructType(fields):
            return StructType(tuple((name, _with_doubles(inner)) for name, inner in fields))
        case ArrayType(element):
            return ArrayType(_with_doubles(element))
        case MapType(inner):
            return MapType(_with_doubles(inner))
        case ScalarType("float"):
            return ScalarType("double")
        case _:
            return kind


def written_column(
    column: Column, data_type: spark.DataType, kind: StructType, where: str, *, refuse_non_finite: bool
) -> Column:
    """The JSON text of a struct, as the serde with this schema writes it.

    Raises:
        TopologyError: the column is not what the schema says.
    """
    shaped = _shaped(column, data_type, kind, where)
    text = F.to_json(shaped, {"ignoreNullFields": "true"})
    found = _non_finite(shaped, _present(data_type, kind)) if refuse_non_finite else None
    if found is None:
        return text
    problem = f"{where}: json: NaN and infinite numbers have no form in JSON; write null or text for them"
    return F.when(F.coalesce(found, F.lit(False)), F.raise_error(F.lit(problem)).cast("string")).otherwise(text)


def json_type(data_type: spark.DataType, where: str) -> JsonType:
    """The schema of columns of a type.

    Raises:
        TopologyError: JSON can't carry it.
    """
    match data_type:
        case spark.StructType(fields=fields):
            return StructType(tuple((field.name, json_type(field.dataType, where)) for field in fields))
        case spark.ArrayType(elementType=element):
            return ArrayType(json_type(element, where))
        case spark.MapType(keyType=key, valueType=inner) if key.simpleString() == "string":
            return MapType(json_type(inner, where))
    name = data_type.simpleString()
    if name not in ("string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "binary"):
        raise TopologyError(f"{where}: a field has type {name}, which JSON does not carry: cast it, for example to string")
    return ScalarType(name)


def _shaped(column: Column, found: spark.DataType, kind: JsonType, where: str) -> Column:
    """``column`` with the schema's fields in their order, of their types."""
    if found.simpleString() == "void":
        return F.lit(None).cast(kind.ddl)
    match kind, found:
        case StructType(fields), spark.StructType():
            if _is_alike(found, kind):
                return column
            types = {field.name: field.dataType for field in found.fields}
            lacking = [name for name in types if name not in dict(fields)]
            if lacking:
                raise TopologyError(
                    f"{where}: the column has the field {lacking[0]!r}, which the serde's schema {kind.ddl} lacks: drop it, or "
                    "add it to the schema"
                )
            present = [(name, inner) for name, inner in fields if name in types]
            shaped = [_shaped(column[name], types[name], inner, f"{where}.{name}").alias(name) for name, inner in present]
            return F.when(column.isNotNull(), F.struct(*shaped))
        case ArrayType(element), spark.ArrayType(elementType=item_type):
            if _is_alike(found, kind):
                return column
            return F.transform(column, lambda item: _shaped(item, item_type, element, f"{where}[]"))
        case MapType(value), spark.MapType(keyType=key, valueType=item_type) if key.simpleString() == "string":
            if _is_alike(found, kind):
                return column
            return F.transform_values(column, lambda _, item: _shaped(item, item_type, value, f"{where}[]"))
        case ScalarType(ddl), _ if found.simpleString() == ddl:
            return column
        case ScalarType(ddl), _ if (found.simpleString(), ddl) in _WIDER:
            return column.cast(ddl)
    raise TopologyError(
        f"{where}: the column has type {found.simpleString()}, but the serde's schema has {kind.ddl} there: convert the "
        "column, or give a serde with its type"
    )


def _present(found: spark.DataType, kind: JsonType) -> JsonType:
    """The schema without the fields that the column lacks."""
    match kind, found:
        case StructType(fields), spark.StructType():
            types = {field.name: field.dataType for field in found.fields}
            return StructType(tuple((name, _present(types[name], inner)) for name, inner in fields if name in types))
        case ArrayType(element), spark.ArrayType(elementType=item):
            return ArrayType(_present(item, element))
        case MapType(value), spark.MapType(valueType=item):
            return MapType(_present(item, value))
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


def _non_finite(column: Column, kind: JsonType) -> Column | None:
    """Whether a number in ``column`` is NaN or infinite; None where there is none that could be."""
    match kind:
        case StructType(fields):
            found = [one for name, inner in fields if (one := _non_finite(column[name], inner)) is not None]
            return reduce(or_, [F.coalesce(one, F.lit(False)) for one in found]) if found else None
        case ArrayType(element):
            return None if _has_no_numbers(element) else F.exists(column, lambda item: _is_non_finite(item, element))
        case MapType(value):
            return None if _has_no_numbers(value) else F.exists(F.map_values(column), lambda item: _is_non_finite(item, value))
        case ScalarType("float" | "double"):
            return F.isnan(column) | (F.abs(column) == F.lit(float("inf")))
        case _:
            return None


def _has_no_numbers(kind: JsonType) -> bool:
    return _non_finite(F.lit(None), kind) is None


def _is_non_finite(column: Column, kind: JsonType) -> Column:
    found = _non_finite(column, kind)
    assert found is not None
    return F.coalesce(found, F.lit(False))
