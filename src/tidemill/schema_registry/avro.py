"""Avro: the Spark type of a schema, and the serde that reads and writes it.

Decides the types: records are structs, unions with null the other type, enums text, ``fixed`` binary. Logical types of time are
read as the numbers they are written as (ms or us since 1970, days), so that they mean the same in the JVM and in Python.
Invariant: what is written is the whole value. fastavro itself would leave out fields that the schema lacks, cut 1.5 to the int 1
and make 1e300 an infinite float.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from tidemill.errors import ConfigError, SerdeError, TopologyError
from tidemill.schema_registry.avro_bounds import AvroBounds, AvroSchema, ComplexSchema, NamedSchemas, bounds_of
from tidemill.schema_registry.registry import BY_RECORD, SchemaRegistry, any_topic
from tidemill.topology.values import Value

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

_SCALARS = {
    "string": "string", "bytes": "binary", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "boolean": "boolean",
}  # fmt: skip
_RECORDS = ("record", "error")
_NAMED = (*_RECORDS, "enum", "fixed")
_HEADER = struct.Struct(">bI")
_FLOAT = struct.Struct(">f")


@dataclass(frozen=True, slots=True)
class AvroSerde:
    """Avro in Confluent's wire format. Records written with another version of the schema are resolved to this one."""

    schema: str
    registry: SchemaRegistry
    name: ClassVar[str] = "avro"
    sql_type: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sql_type", ddl_of(self.schema))

    def serialize(self, value: Value) -> bytes | None:
        if value is None:
            return None
        write, _ = self._codec()

        def written() -> bytes | None:
            from fastavro.validation import ValidationError, validate

            whole = _whole(value, _parsed(self.schema), _named_in(self.schema), "the value")
            try:
                validate(whole, _of_fastavro(self.schema))
            except ValidationError as misfit:
                raise ValueError("; ".join(map(str, misfit.errors))) from None
            return write(whole, any_topic())

        return self.registry.call("avro", "write a value", written)

    def deserialize(self, data: bytes | None) -> Value:
        if data is None:
            return None
        if len(data) < _HEADER.size or data[0] != 0:
            raise SerdeError(f"avro: {len(data)} bytes do not begin with a schema's id; the topic holds other data")
        _, read = self._codec()
        bounds = self._bounds(data)

        is_empty = len(data) == _HEADER.size  # which confluent-kafka writes, but refuses to read

        def found() -> Value:
            if bounds.is_raw:
                return _from_raw(b"" if is_empty else read(bytes(data), any_topic()), self.sql_type)
            none = b"\0" if is_empty and bounds.takes_no_bytes else b""
            return _typed(read(bytes(data) + none, any_topic()), _parsed(self.schema), _named_in(self.schema))

        return self.registry.call("avro", "read a value", found)

    def _bounds(self, data: bytes) -> AvroBounds:
        """Those of the writer's schema. SerdeError if what the bytes could make a reader do has none (``avro_bounds``)."""
        number = _HEADER.unpack_from(data)[1]
        bounds = _bounds.get((self.registry.url, number))
        if bounds is None:
            bounds = self.registry.call("avro", "read the writer's schema", lambda: _bounds_of(self.registry.client(), number))
            _bounds[self.registry.url, number] = bounds
        why_not = bounds.why_not(len(data))
        if why_not:
            raise SerdeError(f"avro: {why_not}; the writer has to use another schema")
        return bounds

    def _codec(self) -> tuple[AvroSerializer, AvroDeserializer]:
        """The serializer and the deserializer of this process."""
        if self not in _codecs:
            from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

            class Reader(AvroDeserializer):
                def _get_parsed_schema(self, schema: Schema) -> Value:
                    return _stored(super()._get_parsed_schema(schema))

            client = self.registry.client()
            write = {**BY_RECORD, "auto.register.schemas": self.registry.auto_register}
            _codecs[self] = (
                AvroSerializer(client, _without_null(self.schema), conf=write),
                Reader(client, self.schema, conf=BY_RECORD),
            )
        return _codecs[self]

    def __hash__(self) -> int:  # the registry's settings are a mapping
        return hash((self.schema, self.registry.url))


_bounds: dict[tuple[str, int], AvroBounds] = {}
"""Bounds by registry and id of the writer's schema."""


def _bounds_of(client: SchemaRegistryClient, number: int) -> AvroBounds:
    schema = client.get_schema(number)
    if schema.schema_type not in (None, "AVRO"):
        raise SerdeError(f"avro: the schema with the id {number} is one of {schema.schema_type}; the topic holds other data")
    return bounds_of(_text(schema), _referenced(client, schema))


def _referenced(client: SchemaRegistryClient, schema: Schema) -> list[str]:
    """The texts of the schemas that one refers to, those that they refer to first."""
    found: list[str] = []
    for reference in schema.references or ():
        if reference.subject is None or reference.version is None:
            raise ValueError(f"the schema refers to {reference.name} without a subject and a version")
        other = client.get_version(reference.subject, reference.version, True).schema
        found += [*_referenced(client, other), _text(other)]
    return found


def _text(schema: Schema) -> str:
    if schema.schema_str is None:
        raise ValueError("the schema has no text")
    return schema.schema_str


_codecs: dict[AvroSerde, tuple[AvroSerializer, AvroDeserializer]] = {}


def ddl_of(schema: str) -> str:
    """The Spark type of an Avro schema, as DDL text.

    Raises:
        TopologyError: it has none, or is no schema.
        ConfigError: the packages for it are not installed.
    """
    try:
        ddl = _ddl(_parsed(schema), {}, ())
        _check_with_fastavro(schema)
    except TopologyError:
        raise
    except ImportError as missing:
        raise ConfigError(f"avro: {missing}; pip install tidemill[registry]") from None
    except json.JSONDecodeError as error:
        raise TopologyError(f"avro: the schema is not JSON text: {error}") from None
    except Exception as error:
        raise TopologyError(f"avro: the schema can't be read: {type(error).__name__}: {error}") from None
    return ddl


def _check_with_fastavro(schema: str) -> None:
    """An exception for what it refuses, which would else be found when records are read."""
    from fastavro.schema import expand_schema

    expand_schema(_of_fastavro(schema))


def _without_null(schema: str) -> str:
    """The other branch of a union: null is written as no value at all."""
    parsed = json.loads(schema)
    if not isinstance(parsed, list):
        return schema
    return json.dumps(next(branch for branch in parsed if branch != "null"))


@cache
def _parsed(schema: str) -> AvroSchema:
    return _with_full_names(json.loads(schema), "")


@cache
def _named_in(schema: str) -> NamedSchemas:
    """The types with a name, wherever in the schema they are."""
    found: NamedSchemas = {}
    _ddl(_parsed(schema), found, ())
    return found


@cache
def _of_fastavro(schema: str) -> Value:
    from fastavro import parse_schema

    return parse_schema(json.loads(schema))


def _with_full_names(schema: AvroSchema, space: str) -> AvroSchema:
    """A schema in which every name, and every mention of one, has its namespace: its own, or that of what it is in."""
    if isinstance(schema, str):
        return schema if schema == "null" or schema in _SCALARS else _full(schema, space)
    if isinstance(schema, list):
        return [_with_full_names(branch, space) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    kind, found = schema.get("type"), schema.copy()
    if kind in _NAMED:
        name = _full(str(schema.get("name")), str(schema.get("namespace", space)))
        found["name"], space = name, name.rpartition(".")[0]
    if kind in _RECORDS:
        found["fields"] = [{**each, "type": _with_full_names(each["type"], space)} for each in schema.get("fields", ())]
    elif kind == "array":
        found["items"] = _with_full_names(schema["items"], space)
    elif kind == "map":
        found["values"] = _with_full_names(schema["values"], space)
    elif kind not in _NAMED:
        found["type"] = _with_full_names(schema["type"], space)
    return found


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _ddl(schema: AvroSchema | None, named: NamedSchemas, inside: tuple[str, ...]) -> str:
    if isinstance(schema, str):
        if schema in _SCALARS:
            return _SCALARS[schema]
        if schema in named:
            return _ddl(named[schema], named, inside)
        raise TopologyError(f"avro: unknown type {schema!r}; expected one of {', '.join(_SCALARS)} or a type named before")
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if len(others) != 1:
            raise TopologyError(f"avro: the union {json.dumps(schema)} has no Spark type; only unions of null and one type have")
        return _ddl(others[0], named, inside)
    if not isinstance(schema, Mapping):
        raise TopologyError(f"avro: {schema!r} is not a schema")
    return _complex_ddl(schema, named, inside)


def _complex_ddl(schema: ComplexSchema, named: NamedSchemas, inside: tuple[str, ...]) -> str:
    kind, name = schema.get("type"), schema.get("name")
    if isinstance(kind, (dict, list)):
        raise TopologyError(f"avro: {json.dumps(schema)} has a schema as its type, expected the name of one; write the inner one")
    if name and name in inside:
        raise TopologyError(f"avro: the record {name} contains itself, and so has no Spark type")
    if name:
        named[name] = schema
    if schema.get("logicalType") == "decimal":
        raise TopologyError(f"avro: the decimal {json.dumps(schema)} has no Spark type here; use a string or a double")
    if kind in _RECORDS:
        names = [f["name"] for f in schema.get("fields", ())]
        if not names:
            raise TopologyError(f"avro: the record {name} has no fields, and so no Spark type")
        if len(set(names)) < len(names):
            raise TopologyError(f"avro: the record {name} has two fields of one name: {', '.join(names)}")
        fields = [f"`{f['name']}`:{_ddl(f['type'], named, (*inside, str(name)))}" for f in schema["fields"]]
        return f"struct<{','.join(fields)}>"
    if kind == "enum":
        return "string"
    if kind == "fixed":
        return "binary"
    if kind == "array":
        return f"array<{_ddl(schema['items'], named, inside)}>"
    if kind == "map":
        return f"map<string,{_ddl(schema['values'], named, inside)}>"
    return _ddl(kind, named, inside)


def _stored(schema: Value) -> Value:
    """A schema as fastavro has parsed it, without logical types: values are read as they are stored, whatever the writer or the
    reader calls them."""
    if isinstance(schema, list):
        return [_stored(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {part: inner if part == "default" else _stored(inner) for part, inner in schema.items() if part != "logicalType"}


def _from_raw(data: Value, sql_type: str) -> Value:
    """What was written as ``bytes`` and nothing else, which has no length of its own."""
    if sql_type == "binary":
        return data
    if sql_type == "string":
        return str(data, "utf-8")
    raise ValueError(f"the writer's schema is bytes, expected {sql_type}")


def _whole(value: Value, schema: AvroSchema, named: NamedSchemas, place: str) -> Value:
    """``value`` as fastavro writes all of it; what is no value of its type is left for its validation.

    Raises:
        ValueError: a field that the schema lacks, or a number that is too large for a float.
    """
    if value is None:
        return None
    if isinstance(schema, list):
        return _whole(value, next(branch for branch in schema if branch != "null"), named, place)
    if isinstance(schema, str):
        if schema in named:
            return _whole(value, named[schema], named, place)
        if schema == "float" and isinstance(value, (int, float)):
            try:
                _FLOAT.pack(value)
            except (OverflowError, struct.error):
                raise ValueError(f"{place} is too large for its type float") from None
        return value
    name, kind = schema.get("name"), schema.get("type")
    if kind in _RECORDS:
        if not isinstance(value, Mapping):
            return value
        types = {f["name"]: f["type"] for f in schema["fields"]}
        lacked = next((other for other in value if other not in types), None)
        if lacked is not None:
            raise ValueError(f"{place} has the field {lacked!r}, which its schema {name} lacks")
        return {field: _whole(item, types[field], named, f"{place}.{field}") for field, item in value.items()}
    if kind == "array":
        is_list = isinstance(value, (list, tuple))  # of a pair, fastavro would take the first for the name of a union's branch
        return [_whole(item, schema["items"], named, f"{place}[]") for item in value] if is_list else value
    if kind == "map":
        if not isinstance(value, Mapping):
            return value
        return {key: _whole(item, schema["values"], named, f"{place}[{key!r}]") for key, item in value.items()}
    return value if kind in _NAMED else _whole(value, schema["type"], named, place)


def _typed(value: Value, schema: AvroSchema, named: NamedSchemas) -> Value:
    """``value`` with its defaults as values of their types: fastavro gives the JSON that the schema's text has."""
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
        return _FLOAT.unpack(_FLOAT.pack(float(value)))[0] if schema == "float" else value
    kind = schema.get("type")
    if kind in _RECORDS:
        whole = {**{f["name"]: f["default"] for f in schema["fields"] if f["name"] not in value}, **value}
        return {f["name"]: _typed(whole[f["name"]], f["type"], named) for f in schema["fields"]}
    if kind == "array":
        return [_typed(item, schema["items"], named) for item in value]
    if kind == "map":
        return {key: _typed(item, schema["values"], named) for key, item in value.items()}
    return _typed(value, "bytes" if kind == "fixed" else schema["type"], named) if kind != "enum" else value
