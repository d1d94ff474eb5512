"""Values as fastavro writes and reads them, made those of a schema.

Invariant: what is written is the whole value. fastavro itself would leave out fields that the schema lacks, cut 1.5 to the int 1,
make 1e300 an infinite float and 2^53 + 1 a rounded double, and take a time without a time zone for one of the machine's.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime

from tidemill.schema_registry.avro_bounds import NAMED, RECORDS, AvroSchema, NamedSchemas
from tidemill.schema_registry.avro_types import named_in, of_fastavro, parsed
from tidemill.topology.values import Value

_FLOAT = struct.Struct(">f")
_ROUND = "write float(value), which rounds it"
_WITH_A_POINT = {"float": _FLOAT, "double": struct.Struct(">d")}


def to_write(value: Value, schema: str) -> Value:
    """``value`` as fastavro writes all of it.

    Raises:
        ValueError: it is none of the schema's type.
    """
    from fastavro.validation import ValidationError, validate

    whole = _whole(value, parsed(schema), named_in(schema), "the value")
    try:
        validate(whole, of_fastavro(schema))
    except ValidationError as misfit:
        raise ValueError("; ".join(map(str, misfit.errors))) from None
    return whole


def as_read(value: Value, schema: str) -> Value:
    """A value that fastavro has read with a schema, with defaults as values of their types: fastavro gives them as the JSON of
    the schema's text.

    Raises:
        ValueError: an int that no writer can have written.
    """
    return _typed(value, parsed(schema), named_in(schema))


def from_raw(data: Value, sql_type: str) -> Value:
    """The value of data whose whole schema is ``bytes``: such data have no length in front."""
    if sql_type == "binary":
        return data
    if sql_type == "string":
        return str(data, "utf-8")
    raise ValueError(f"the writer's schema is bytes, expected {sql_type}")


def _whole(value: Value, schema: AvroSchema, named: NamedSchemas, place: str) -> Value:
    """``value`` as fastavro writes all of it; what is no value of its type is left for its validation.

    Raises:
        ValueError: a field that the schema lacks, a number that is too large for its type or has more digits, or a time without
            a time zone.
    """
    if value is None:
        return None
    if isinstance(schema, list):
        return _whole(value, next(branch for branch in schema if branch != "null"), named, place)
    if isinstance(schema, str):
        if schema in named:
            return _whole(value, named[schema], named, place)
        if schema in _WITH_A_POINT and isinstance(value, (int, float)):
            try:
                data = _WITH_A_POINT[schema].pack(value)
            except (OverflowError, struct.error):
                raise ValueError(f"{place} is too large for its type {schema}") from None
            if isinstance(value, int) and _WITH_A_POINT[schema].unpack(data)[0] != value:
                raise ValueError(f"{place} is {value}, which is beyond the whole numbers that its type {schema} has; {_ROUND}")
        return value
    name, kind = schema.get("name"), schema.get("type")
    if kind in RECORDS:
        if not isinstance(value, Mapping):
            return value
        types = {f["name"]: f["type"] for f in schema["fields"]}
        lacked = next((other for other in value if other not in types), None)
        if lacked is not None:
            misfit = f"{place} has the field {lacked!r}, which its schema {name} lacks"
            raise ValueError(f"{misfit}; leave it out, or add it to the schema")
        return {field: _whole(item, types[field], named, f"{place}.{field}") for field, item in value.items()}
    if kind == "array":
        is_list = isinstance(value, (list, tuple))  # of a pair, fastavro would take the first for the name of a union's branch
        return [_whole(item, schema["items"], named, f"{place}[]") for item in value] if is_list else value
    if kind == "map":
        if not isinstance(value, Mapping):
            return value
        return {key: _whole(item, schema["values"], named, f"{place}[{key!r}]") for key, item in value.items()}
    if isinstance(value, datetime) and value.tzinfo is None and schema.get("logicalType", "").startswith("timestamp-"):
        raise ValueError(f"{place} is a time without a time zone, which would be this machine's; give it one (timezone.utc)")
    return value if kind in NAMED else _whole(value, schema["type"], named, place)


def _typed(value: Value, schema: AvroSchema, named: NamedSchemas) -> Value:
    if value is None:
        return None
    if isinstance(schema, list):
        return _typed(value, next(branch for branch in schema if branch != "null"), named)
    if isinstance(schema, str):
        if schema in named:
            return _typed(value, named[schema], named)
        if schema == "bytes":
            return value.encode("latin-1") if isinstance(value, str) else value
        if schema == "double":
            return float(value)
        if schema == "int" and not -(2**31) <= value < 2**31:  # fastavro reads as many bits as there are
            raise ValueError(f"an int is {value}, which does not fit in 32 bits: these are other bytes than of this schema")
        return _FLOAT.unpack(_FLOAT.pack(float(value)))[0] if schema == "float" else value
    kind = schema.get("type")
    if kind in RECORDS:
        whole = {**{f["name"]: f["default"] for f in schema["fields"] if f["name"] not in value}, **value}
        return {f["name"]: _typed(whole[f["name"]], f["type"], named) for f in schema["fields"]}
    if kind == "array":
        return [_typed(item, schema["items"], named) for item in value]
    if kind == "map":
        return {key: _typed(item, schema["values"], named) for key, item in value.items()}
    return _typed(value, "bytes" if kind == "fixed" else schema["type"], named) if kind != "enum" else value
