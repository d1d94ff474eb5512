"""Protobuf: the Spark type of a message class, and the serde that reads and writes it.

Decides the types: messages are structs under their fields' names, enums the names of their values (of an unknown one its number,
as text), unsigned numbers bigint.
A field that knows whether it was set (a message, ``optional``, one of a ``oneof``) is null where it was not, or the default
that its schema names (``[default = 5]``), as Protobuf itself and Spark's from_protobuf read it. Maps are read and
written by their keys in order, so that equal values are equal bytes in every process.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from google.protobuf.empty_pb2 import Empty

from tidemill.dsl.value_types import written_as
from tidemill.errors import SerdeError, TopologyError
from tidemill.schema_registry.registry import BY_RECORD, SchemaRegistry, any_topic, naming, read_as
from tidemill.topology.values import Value

if TYPE_CHECKING:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

_HEADER = struct.Struct(">bI")
_FLOAT, _DOUBLE = struct.Struct(">f"), struct.Struct(">d")
_NUMBER = re.compile(r"-?[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ProtobufSerde:
    """Protobuf in Confluent's wire format; values are dicts."""

    message: type
    registry: SchemaRegistry
    subject: str | None = None
    name: ClassVar[str] = "protobuf"
    sql_type: str = field(init=False)

    def __post_init__(self) -> None:
        descriptor = getattr(self.message, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(descriptor, "fields"):
            raise TopologyError(f"protobuf: {self.message!r} is not a generated message class")
        object.__setattr__(self, "sql_type", ddl_of(descriptor))

    def serialize(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise SerdeError(f"protobuf: can't write a value of type {type(value).__name__}, expected a dict of fields")
        write, _ = self._codec()
        made = self.registry.call("protobuf", "write a value", lambda: _made(self.message, value))
        about = self.registry.written_as(self.subject or made.DESCRIPTOR.full_name)
        written: Any = self.registry.call("protobuf", "write a value", lambda: write(made, any_topic()), about)
        # Protobuf has the entries of a map in an order of their hashes, another one in each process: equal keys would differ.
        return bytes(written[: len(written) - made.ByteSize()] + made.SerializeToString(deterministic=True))

    def deserialize(self, data: bytes | None) -> dict[str, Value] | None:
        if data is None:
            return None
        if len(data) < _HEADER.size or data[0] != 0:
            raise SerdeError(f"protobuf: {len(data)} bytes do not begin with a schema's id; the topic holds other data")
        _, read = self._codec()
        about = read_as(_HEADER.unpack_from(data)[1])
        made: Any = self.registry.call("protobuf", "read a value", lambda: read(bytes(data), any_topic()), about)
        if not made.IsInitialized():  # as in Java; only messages of proto2 may not be
            lacking = ", ".join(made.FindInitializationErrors())
            raise SerdeError(f"protobuf: a {made.DESCRIPTOR.full_name} lacks the required {lacking}")
        return self.registry.call("protobuf", "read a value", lambda: _as_dict(made), about)

    def _codec(self) -> tuple[ProtobufSerializer, ProtobufDeserializer]:
        """The serializer and the deserializer of this process."""
        if self not in _codecs:
            from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

            from tidemill.schema_registry.protobuf_reader import ProtobufReader

            client = self.registry.client()
            both = {"use.deprecated.format": False}
            write = {**both, **naming(self.subject), "auto.register.schemas": self.registry.auto_register}
            _codecs[self] = (
                ProtobufSerializer(self.message, client, write),
                ProtobufReader(self.message, {**both, **BY_RECORD}, client),
            )
        return _codecs[self]

    def __hash__(self) -> int:  # the registry's settings are a mapping
        return hash((self.message, self.registry.url, self.subject))


_codecs: dict[ProtobufSerde, tuple[ProtobufSerializer, ProtobufDeserializer]] = {}


def ddl_of(descriptor: Descriptor, inside: tuple[str, ...] = ()) -> str:
    """The Spark type of a message, as DDL text; TopologyError where it has none."""
    if descriptor.full_name in inside:
        raise TopologyError(f"protobuf: the message {descriptor.full_name} contains itself, and so has no Spark type")
    if not descriptor.fields:
        raise TopologyError(f"protobuf: the message {descriptor.full_name} has no fields, and so no Spark type")
    hidden = next((f for f in descriptor.fields if hasattr(Empty, f.name)), None)
    if hidden is not None:
        raise TopologyError(
            f"protobuf: the field {hidden.full_name} hides an attribute of that name, with which messages are read and written in"
            " Python; call it otherwise in this program's .proto file (records hold the numbers of fields, no names)"
        )
    inside = (*inside, descriptor.full_name)
    return f"struct<{','.join(f'`{f.name}`:{_field_ddl(f, inside)}' for f in descriptor.fields)}>"


def _field_ddl(described: FieldDescriptor, inside: tuple[str, ...]) -> str:
    if _is_map(described):
        parts = described.message_type.fields_by_name
        if parts["key"].cpp_type != parts["key"].CPPTYPE_STRING:
            raise TopologyError(f"protobuf: the map {described.full_name} has keys that are no strings, and so no Spark type")
        return f"map<string,{_value_ddl(parts['value'], inside)}>"
    return f"array<{_value_ddl(described, inside)}>" if described.is_repeated else _value_ddl(described, inside)


def _value_ddl(described: FieldDescriptor, inside: tuple[str, ...]) -> str:
    kind = described.cpp_type
    if kind == described.CPPTYPE_MESSAGE:
        return ddl_of(described.message_type, inside)
    if kind == described.CPPTYPE_STRING:
        return "binary" if described.type == described.TYPE_BYTES else "string"
    return {
        described.CPPTYPE_INT32: "int", described.CPPTYPE_INT64: "bigint", described.CPPTYPE_UINT32: "bigint",
        described.CPPTYPE_UINT64: "bigint", described.CPPTYPE_DOUBLE: "double", described.CPPTYPE_FLOAT: "float",
        described.CPPTYPE_BOOL: "boolean", described.CPPTYPE_ENUM: "string",
    }[kind]  # fmt: skip


def _is_map(described: FieldDescriptor) -> bool:
    return described.message_type is not None and described.message_type.GetOptions().map_entry


def _as_dict(message: Message) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for described in message.DESCRIPTOR.fields:
        value = getattr(message, described.name)
        if _is_map(described):
            inner = described.message_type.fields_by_name["value"]
            found[described.name] = {key: _as_value(inner, value[key]) for key in sorted(value)}
        elif described.is_repeated:
            found[described.name] = [_as_value(described, item) for item in value]
        elif described.has_presence and not _has_default(described) and not message.HasField(described.name):
            found[described.name] = None
        else:
            found[described.name] = _as_value(described, value)
    return found


def _has_default(described: FieldDescriptor) -> bool:
    """One of a ``oneof`` has none: that it is not set says that another one is."""
    return bool(described.has_default_value and described.containing_oneof is None)


def _as_value(described: FieldDescriptor, value: Value) -> Value:
    if described.cpp_type == described.CPPTYPE_MESSAGE:
        return _as_dict(value)
    if described.cpp_type == described.CPPTYPE_ENUM:
        named = described.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if isinstance(value, bytes) and described.type == described.TYPE_STRING:  # of proto2: proto3 refuses it itself
        raise ValueError(f"the text of {described.full_name} is not UTF-8")
    return value


def _made(kind: Any, value: Mapping[str, Value]) -> Any:
    """A message of the class ``kind`` with all of ``value``.

    Raises:
        ValueError: it does not fit, in the field that is named.
    """
    fields = _numbered(value, kind.DESCRIPTOR)
    try:
        return kind(**fields)
    except Exception:  # most of them don't say which field
        for name, item in fields.items():
            try:
                kind(**{name: item})
            except Exception as misfit:
                raise ValueError(f"{kind.DESCRIPTOR.full_name}.{name}: {misfit}") from None
        raise


def _check_number(packed: struct.Struct, item: float, described: FieldDescriptor) -> None:
    kind = "float" if packed is _FLOAT else "double"
    try:
        data = packed.pack(item)
    except (OverflowError, struct.error):
        raise ValueError(f"{described.full_name}: the number is too large for a {kind}") from None
    if isinstance(item, int) and packed.unpack(data)[0] != item:
        raise ValueError(
            f"{described.full_name}: {item} is beyond the whole numbers that a {kind} has; write float(value), which rounds it"
        )


def _numbered(value: Mapping[str, Value], descriptor: Descriptor) -> dict[str, Value]:
    """``value`` with the numbers of enums that have no name as numbers again.

    Raises:
        ValueError: Protobuf itself would write something else: an infinite number for one that is too large for a float, a
            rounded one for a whole number of more digits, the last one of several fields of a ``oneof``.
    """

    def of(described: FieldDescriptor, item: Value) -> Value:
        if isinstance(item, Mapping) and described.cpp_type == described.CPPTYPE_MESSAGE:
            return _numbered(item, described.message_type)
        packed = {described.CPPTYPE_FLOAT: _FLOAT, described.CPPTYPE_DOUBLE: _DOUBLE}.get(described.cpp_type)
        if packed is not None and isinstance(item, (int, float)):
            _check_number(packed, item, described)
        is_number = described.cpp_type == described.CPPTYPE_ENUM and isinstance(item, str) and _NUMBER.fullmatch(item) is not None
        return int(item) if is_number else item

    for group in descriptor.oneofs:
        given = [member.name for member in group.fields if value.get(member.name) is not None]
        if len(given) > 1:
            raise ValueError(f"{group.full_name} is one of several fields, and {' and '.join(given)} have values; leave one")
    found = dict(value)
    for name, item in value.items():
        described = descriptor.fields_by_name.get(name)
        if described is None or item is None:
            continue
        if _is_map(described) and not isinstance(item, Mapping):
            instead = written_as(item, "map")
            misfit = f"{described.full_name}: the map is of type {type(item).__name__}, expected a dict"
            raise ValueError(f"{misfit}; write {instead}" if instead else misfit)
        if _is_map(described):
            inner = described.message_type.fields_by_name["value"]
            found[name] = {key: of(inner, each) for key, each in item.items()}
        elif described.is_repeated and isinstance(item, (list, tuple)):
            found[name] = [of(described, each) for each in item]
        else:
            found[name] = of(described, item)
    return found
