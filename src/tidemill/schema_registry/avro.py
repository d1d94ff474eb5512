"""Avro: the serde that reads and writes a schema's values, in Confluent's wire format.

Leaves to ``avro_types`` what a schema is in Spark, to ``avro_values`` that values are whole, and to ``avro_bounds`` which
writers' schemas are read.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from tidemill.errors import SerdeError
from tidemill.schema_registry.avro_bounds import AvroBounds, bounds_of
from tidemill.schema_registry.avro_types import ddl_of, record_of, subject_of
from tidemill.schema_registry.avro_values import as_read, from_raw, to_write
from tidemill.schema_registry.references import referenced
from tidemill.schema_registry.registry import BY_RECORD, SchemaRegistry, any_topic, naming, read_as
from tidemill.topology.values import Value

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import SerializationContext

_HEADER = struct.Struct(">bI")


@dataclass(frozen=True, slots=True)
class AvroSerde:
    """Avro in Confluent's wire format. Records written with another version of the schema are resolved to this one."""

    schema: str
    registry: SchemaRegistry
    subject: str | None = None
    name: ClassVar[str] = "avro"
    sql_type: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sql_type", ddl_of(self.schema))

    def serialize(self, value: Value) -> bytes | None:
        if value is None:
            return None
        write, _ = self._codec()
        about = self.registry.written_as(self.subject or subject_of(self.schema))
        return self.registry.call("avro", "write a value", lambda: write(to_write(value, self.schema), any_topic()), about)

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
                return from_raw(b"" if is_empty else read(bytes(data), any_topic()), self.sql_type)
            none = b"\0" if is_empty and bounds.takes_no_bytes else b""
            return as_read(read(bytes(data) + none, any_topic()), self.schema)

        return self.registry.call("avro", "read a value", found, read_as(_HEADER.unpack_from(data)[1]))

    def _bounds(self, data: bytes) -> AvroBounds:
        """The bounds of the writer's schema (``avro_bounds``). SerdeError if they don't bound what these bytes are read into."""
        number = _HEADER.unpack_from(data)[1]
        bounds = _bounds.get((self.registry.url, number))
        if bounds is None:
            bounds = self.registry.call(
                "avro", "read the writer's schema", lambda: _bounds_of(self.registry.client(), number), read_as(number)
            )
            _bounds[self.registry.url, number] = bounds
        why_not = bounds.why_not(len(data))
        if why_not:
            raise SerdeError(f"avro: {why_not}; the writer has to use another schema")
        return bounds

    def _codec(self) -> tuple[AvroSerializer, AvroDeserializer]:
        """The serializer and the deserializer of this process."""
        if self not in _codecs:
            from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
            from fastavro.read import SchemaResolutionError

            client, expected = self.registry.client(), record_of(self.schema)

            class Reader(AvroDeserializer):
                def _get_parsed_schema(self, schema: Schema) -> Value:
                    return _stored(super()._get_parsed_schema(schema))

                def __call__(self, data: bytes | None, ctx: SerializationContext | None = None) -> Value:
                    try:
                        return super().__call__(data, ctx)
                    except SchemaResolutionError:
                        found = record_of(_text(client.get_schema(_HEADER.unpack_from(data or b"")[1])))
                        if not (found and expected) or found.rpartition(".")[2] == expected.rpartition(".")[2]:
                            raise
                        raise ValueError(
                            f"the record is a {found}, expected a {expected}; if it is to be read as one, give the program's "
                            f'schema the name {found}, or "aliases": ["{found}"]'
                        ) from None

            write = {**naming(self.subject), "auto.register.schemas": self.registry.auto_register}
            _codecs[self] = (
                AvroSerializer(client, _without_null(self.schema), conf=write),
                Reader(client, self.schema, conf=BY_RECORD),
            )
        return _codecs[self]

    def __hash__(self) -> int:  # the registry's settings are a mapping
        return hash((self.schema, self.registry.url, self.subject))


_bounds: dict[tuple[str, int], AvroBounds] = {}
"""Bounds by registry and id of the writer's schema."""


def _bounds_of(client: SchemaRegistryClient, number: int) -> AvroBounds:
    schema = client.get_schema(number)
    if schema.schema_type not in (None, "AVRO"):
        raise SerdeError(f"avro: the schema with the id {number} is one of {schema.schema_type}; the topic holds other data")
    found = referenced("avro", schema, lambda subject, version: client.get_version(subject, version, True))
    return bounds_of(_text(schema), map(_text, found))


def _text(schema: Schema) -> str:
    if schema.schema_str is None:
        raise ValueError("the schema has no text")
    return schema.schema_str


_codecs: dict[AvroSerde, tuple[AvroSerializer, AvroDeserializer]] = {}


def _without_null(schema: str) -> str:
    """The other branch of a union: null is written as no value at all."""
    parsed = json.loads(schema)
    if not isinstance(parsed, list):
        return schema
    return json.dumps(next(branch for branch in parsed if branch != "null"))


def _stored(schema: Value) -> Value:
    """A schema as fastavro has parsed it, without logical types: values are read as they are stored, whatever the writer or the
    reader calls them."""
    if isinstance(schema, list):
        return [_stored(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {part: inner if part == "default" else _stored(inner) for part, inner in schema.items() if part != "logicalType"}
