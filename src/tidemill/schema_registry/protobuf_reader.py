"""confluent-kafka's Protobuf deserializer, which reads records of any message as the one that it was given, behind a check."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from tidemill.errors import SerdeError
from tidemill.schema_registry.protobuf_fit import why_unfit
from tidemill.schema_registry.references import referenced

_DEEPEST = 100
"""Protobuf's own limit of messages in messages."""
_MOST_BYTES = 5 + 5 * (1 + _DEEPEST)
"""Most bytes of a schema's id and a message's place in it: a count of numbers, and these, each of at most five bytes."""


class ProtobufReader(ProtobufDeserializer):
    """Refuses records of writers that ``message`` is no reader's schema of, with a SerdeError."""

    def __init__(self, message: Any, settings: dict[str, Any], client: SchemaRegistryClient) -> None:
        super().__init__(message, {**settings, "schema.id.deserializer": _read_id}, client)
        self._reader = message.DESCRIPTOR
        self._unfit: dict[tuple[int | None, tuple[int, ...]], str] = {}
        """Why not, by a schema's id and the place of the message in it."""
        self._messages: dict[tuple[FileDescriptor, tuple[int, ...]], Descriptor] = {}

    def _get_writer_schema(self, schema_id: SchemaId, *args: Any, **options: Any) -> Schema:
        schema = super()._get_writer_schema(schema_id, *args, **options)
        indexes = schema_id.message_indexes or []
        writer = schema_id.id, tuple(indexes)
        if writer not in self._unfit:
            self._unfit[writer] = self._why_unfit(schema, schema_id.id, indexes)
        if self._unfit[writer]:
            raise SerdeError(f"protobuf: {self._unfit[writer]}; the topic holds other data")
        return schema

    def _get_message_desc(self, pool: DescriptorPool, file: FileDescriptor, indexes: list[int]) -> Descriptor:
        """Looked up once: for each look the library copies the whole file, and looks twice for each record."""
        place = file, tuple(indexes)
        if place not in self._messages:
            self._messages[place] = super()._get_message_desc(pool, file, indexes)
        return self._messages[place]

    def _why_unfit(self, schema: Schema, number: int | None, indexes: list[int]) -> str:
        if schema.schema_type != "PROTOBUF":
            return f"the schema with the id {number} is one of {schema.schema_type}"
        find = self._registry.get_version
        # The library looks them up without a limit.
        referenced("protobuf", schema, lambda subject, version: find(subject, version, True, "serialized"), once=True)
        file, pool = self._get_parsed_schema(schema)
        return why_unfit(self._get_message_desc(pool, pool.FindFileByName(file.name), indexes), self._reader)


def _read_id(data: bytes, _: Any, schema_id: SchemaId) -> BytesIO:
    """Reads the schema's id and the place of the message into ``schema_id``; returns what is behind them.

    Reads from few bytes: for one number of a million bytes, confluent-kafka would need minutes.
    """
    head = BytesIO(data[:_MOST_BYTES])
    try:
        schema_id.from_bytes(head)
    except EOFError:
        raise SerdeError(
            f"protobuf: found no end of the message's place in its schema within {min(len(data), _MOST_BYTES)} bytes; "
            "the topic holds other data"
        ) from None
    return BytesIO(data[head.tell() :])
