"""Serdes: how keys and values become bytes, and back, exactly as Kafka's own serializers do.

Decides the bytes and the Spark type of each kind. Leaves where a serde applies to the DSL, and what happens to records
that can't be read to the runtime. The Catalyst expressions of ``tidemill.spark`` must agree with these.
"""

from __future__ import annotations

import codecs
import difflib
import re
import struct
import uuid
from dataclasses import dataclass
from typing import ClassVar, overload

from tidemill.dsl.json_classes import schema_of
from tidemill.dsl.json_reading import MAX_BYTES
from tidemill.dsl.json_schema import declared
from tidemill.dsl.json_writing import utf8
from tidemill.dsl.serdes_json import JsonClassSerde, JsonDocumentSerde, JsonSerde
from tidemill.dsl.stateful_serde import StatefulSerde
from tidemill.dsl.value_types import type_name, written_as
from tidemill.errors import ConfigError, SerdeError
from tidemill.spellings import Spelled
from tidemill.topology.values import Serde
from tidemill.topology.windows import Windowed


def java_text(data: bytes) -> str:
    """Text as Java's ``new String(data, UTF_8)`` reads it."""
    return data.decode("utf-8", _JAVA_REPLACES)


def _replaced_by_java(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each malformed sequence. They are those of the Unicode standard, as Python has them, but that Java takes an
    encoded half of a surrogate pair (ED A0..BF), whole or cut short, for one sequence."""
    assert isinstance(error, UnicodeDecodeError)
    data, at = error.object, error.start
    if data[at] == 0xED and 0xA0 <= data[at + 1 : at + 2].ljust(1, b"\0")[0] <= 0xBF:
        is_whole = 0x80 <= data[at + 2 : at + 3].ljust(1, b"\0")[0] <= 0xBF
        return "\ufffd", at + (3 if is_whole else 2)
    return "\ufffd", error.end


_JAVA_REPLACES = "tidemill.java"
codecs.register_error(_JAVA_REPLACES, _replaced_by_java)


@dataclass(frozen=True, slots=True, eq=False)
class StringSerde(StatefulSerde):
    """UTF-8 text. Reading never fails: malformed bytes become U+FFFD, as in Java."""

    name: ClassVar[str] = "string"
    sql_type: ClassVar[str] = "string"

    def serialize(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise _wrong_type(self.name, value, "str")
        return utf8(value)

    def deserialize(self, data: bytes | None) -> str | None:
        return None if data is None else str(data, "utf-8", _JAVA_REPLACES)  # not by java_text: it is called for each record


@dataclass(frozen=True, slots=True, eq=False)
class BytesSerde(StatefulSerde):
    """The bytes themselves."""

    name: ClassVar[str] = "bytes"
    sql_type: ClassVar[str] = "binary"

    def serialize(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _wrong_type(self.name, value, "bytes")
        return bytes(value)

    def deserialize(self, data: bytes | None) -> bytes | None:
        return None if data is None else bytes(data)


@dataclass(frozen=True, slots=True, eq=False)
class WholeNumberSerde(StatefulSerde):
    """A signed whole number of ``width`` bytes, big-endian."""

    name: str
    sql_type: str
    width: int

    def serialize(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong_type(self.name, value, "int")
        try:
            return value.to_bytes(self.width, "big", signed=True)
        except OverflowError:
            raise SerdeError(
                f"{self.name}: {value} does not fit in {self.width} bytes; keep it within"
                f" -2^{8 * self.width - 1} .. 2^{8 * self.width - 1} - 1"
            ) from None

    def deserialize(self, data: bytes | None) -> int | None:
        if data is None:
            return None
        _check_length(self.name, data, self.width)
        return int.from_bytes(data, "big", signed=True)


@dataclass(frozen=True, slots=True, eq=False)
class DoubleSerde(StatefulSerde):
    """An IEEE 754 double of 8 bytes, big-endian; every NaN is written as Java's canonical one, and no whole number is rounded."""

    name: ClassVar[str] = "double"
    sql_type: ClassVar[str] = "double"

    def serialize(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise _wrong_type(self.name, value, "float")
        try:
            number = float(value)
        except OverflowError:
            raise SerdeError("double: the whole number is too large for a double") from None
        if number != value == value:
            raise SerdeError(f"double: {value} is beyond the whole numbers that a double has; {_ROUND}")
        return _CANONICAL_NAN if number != number else struct.pack(">d", number)

    def deserialize(self, data: bytes | None) -> float | None:
        if data is None:
            return None
        _check_length(self.name, data, 8)
        number: float = struct.unpack(">d", data)[0]
        return number


@dataclass(frozen=True, slots=True, eq=False)
class FloatSerde(StatefulSerde):
    """An IEEE 754 float of 4 bytes, big-endian; every NaN is written as Java's canonical one, and no whole number is rounded."""

    name: ClassVar[str] = "float"
    sql_type: ClassVar[str] = "float"

    def serialize(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise _wrong_type(self.name, value, "float")
        if value != value:
            return _CANONICAL_FLOAT_NAN
        try:
            data = struct.pack(">f", value)
        except (OverflowError, struct.error):  # the second of a whole number that no double has
            raise SerdeError(f"float: {value} is too large for 4 bytes; use a double") from None
        if isinstance(value, int) and struct.unpack(">f", data)[0] != value:
            raise SerdeError(f"float: {value} is beyond the whole numbers that a float has; {_ROUND}")
        return data

    def deserialize(self, data: bytes | None) -> float | None:
        if data is None:
            return None
        _check_length(self.name, data, 4)
        number: float = struct.unpack(">f", data)[0]
        return number


@dataclass(frozen=True, slots=True, eq=False)
class BooleanSerde(StatefulSerde):
    """One byte: 1 is true, 0 is false."""

    name: ClassVar[str] = "boolean"
    sql_type: ClassVar[str] = "boolean"

    def serialize(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, bool):
            raise _wrong_type(self.name, value, "bool")
        return b"\1" if value else b"\0"

    def deserialize(self, data: bytes | None) -> bool | None:
        if data is None:
            return None
        if bytes(data) not in (b"\0", b"\1"):
            found = bytes(data[:24]).hex() or "no bytes"
            raise SerdeError(f"boolean: found {found}, expected 00 or 01; the topic holds other data")
        return bytes(data) == b"\1"


@dataclass(frozen=True, slots=True, eq=False)
class UUIDSerde(StatefulSerde):
    """A UUID as its text; in Spark a string."""

    name: ClassVar[str] = "uuid"
    sql_type: ClassVar[str] = "string"

    def serialize(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, (str, uuid.UUID)):
            raise _wrong_type(self.name, value, "uuid.UUID")
        return str(_uuid(value)).encode()

    def deserialize(self, data: bytes | None) -> uuid.UUID | None:
        return None if data is None else _uuid(java_text(bytes(data)))


def _uuid(value: str | uuid.UUID) -> uuid.UUID:
    """Parses like Java's ``UUID.fromString``: five hexadecimal numbers, each cut to the digits that it has room for."""
    if isinstance(value, uuid.UUID):
        return value
    parts = value.split("-") if len(value) <= 36 else []
    if len(parts) != 5 or not all(_HEXADECIMAL.fullmatch(part) for part in parts):
        raise SerdeError(f"uuid: {value[:48]!r} is not the text of a UUID")
    numbers = [int(part, 16) & (16**digits - 1) for part, digits in zip(parts, _UUID_DIGITS, strict=True)]
    return uuid.UUID(hex="".join(f"{number:0{digits}x}" for number, digits in zip(numbers, _UUID_DIGITS, strict=True)))


_HEXADECIMAL = re.compile("0*[0-9a-fA-F]{1,15}|0*[1-7][0-9a-fA-F]{15}", re.ASCII)
_UUID_DIGITS = (8, 4, 4, 4, 12)


@dataclass(frozen=True, slots=True, eq=False)
class VoidSerde(StatefulSerde):
    """Null, and nothing else."""

    name: ClassVar[str] = "void"
    sql_type: ClassVar[str] = "binary"

    def serialize(self, value: object) -> None:
        if value is not None:
            raise _wrong_type(self.name, value, "None")

    def deserialize(self, data: bytes | None) -> None:
        if data is not None:
            raise SerdeError(f"void: found {len(data)} bytes, expected null; the topic holds other data than this serde's")


_ROUND = "write float(value), which rounds it, or use Serdes.long()"
_CANONICAL_NAN = bytes.fromhex("7ff8000000000000")
_CANONICAL_FLOAT_NAN = bytes.fromhex("7fc00000")
_FLOAT, _BOOLEAN, _UUID, _VOID = FloatSerde(), BooleanSerde(), UUIDSerde(), VoidSerde()
_STRING, _BYTES, _DOUBLE = StringSerde(), BytesSerde(), DoubleSerde()
_LONG, _INTEGER = WholeNumberSerde("long", "bigint", 8), WholeNumberSerde("integer", "int", 4)
_SHORT = WholeNumberSerde("short", "smallint", 2)


class Serdes(Spelled):
    """The serdes that there are, named as in ``org.apache.kafka.common.serialization.Serdes``; their bytes are Java's.

    Each has ``name``, ``sql_type`` (the Spark type of its values), ``serialize(value)`` and ``deserialize(data)``; null is null
    both ways.

    Raises:
        SerdeError: from ``serialize`` for a value of another type, from ``deserialize`` for bytes of another length or form.
    """

    @staticmethod
    def string() -> StringSerde:
        """UTF-8 text; Spark type string. Malformed bytes are read as U+FFFD, as in Java."""
        return _STRING

    @staticmethod
    def bytes() -> BytesSerde:
        """Bytes as they are; Spark type binary."""
        return _BYTES

    @staticmethod
    def long() -> WholeNumberSerde:
        """Eight bytes, signed, big-endian; Spark type bigint."""
        return _LONG

    @staticmethod
    def integer() -> WholeNumberSerde:
        """Four bytes, signed, big-endian; Spark type int."""
        return _INTEGER

    @staticmethod
    def double() -> DoubleSerde:
        """An IEEE 754 double, eight bytes, big-endian; Spark type double."""
        return _DOUBLE

    @staticmethod
    def short() -> WholeNumberSerde:
        """Two bytes, signed, big-endian; Spark type smallint."""
        return _SHORT

    @staticmethod
    def float() -> FloatSerde:
        """An IEEE 754 float, four bytes, big-endian; Spark type float."""
        return _FLOAT

    @staticmethod
    def boolean() -> BooleanSerde:
        """One byte, 00 or 01; Spark type boolean."""
        return _BOOLEAN

    @staticmethod
    def uuid() -> UUIDSerde:
        """A UUID as its text; Spark type string, ``uuid.UUID`` in Python functions."""
        return _UUID

    @staticmethod
    def void() -> VoidSerde:
        """Null only, such as the keys of a topic whose records have none; Spark type binary."""
        return _VOID

    @overload
    @staticmethod
    def json(schema: None = None, *, max_bytes: int = MAX_BYTES) -> JsonDocumentSerde: ...

    @overload
    @staticmethod
    def json(schema: str, *, max_bytes: int = MAX_BYTES) -> JsonSerde: ...

    @overload
    @staticmethod
    def json(schema: type, *, max_bytes: int = MAX_BYTES) -> JsonSerde | JsonClassSerde: ...

    @staticmethod
    def json(
        schema: str | type | None = None, *, max_bytes: int = MAX_BYTES
    ) -> JsonSerde | JsonClassSerde | JsonDocumentSerde:
        """JSON objects with the fields of ``schema``, which is one of

        - Spark DDL: ``"user string NOT NULL, amount decimal(12,2), at timestamp, tags array<string>"``; values are dicts;
        - a TypedDict; values are dicts;
        - a dataclass or a Pydantic model; values are its instances.

        Spark type: a struct of the fields. Fields that are missing are null, members that the schema lacks are ignored, null
        fields are not written. A field of another type, a required one without a value, and text that is no JSON can't be read.
        docs/json.md has the rules and the types. ``max_bytes``: larger texts can't be read.

        Without a schema: any JSON value but null, as a dict, list, str, int, float or bool. Spark type: string, the text; parse
        it with ``F.from_json`` or ``F.parse_json``.

        Raises:
            TopologyError: ``schema`` is none of these, or has a type that JSON has no form for.
        """
        if schema is None:
            return JsonDocumentSerde(max_bytes)
        if isinstance(schema, str):
            return JsonSerde(schema, max_bytes)
        kind, shape = schema_of(schema)
        return JsonSerde(declared(kind), max_bytes) if shape is None else JsonClassSerde(kind, shape, max_bytes)


_BY_NAME: dict[str, Serde] = {
    "string": _STRING, "bytes": _BYTES, "long": _LONG, "integer": _INTEGER, "double": _DOUBLE,
    "short": _SHORT, "float": _FLOAT, "boolean": _BOOLEAN, "uuid": _UUID,
    "void": _VOID, "json": JsonDocumentSerde(),
}
_JAVA_PREFIX = "org.apache.kafka.common.serialization.Serdes$"
_BY_JAVA_CLASS: dict[str, Serde] = {
    "StringSerde": _STRING, "BytesSerde": _BYTES, "ByteArraySerde": _BYTES, "LongSerde": _LONG,
    "IntegerSerde": _INTEGER, "DoubleSerde": _DOUBLE, "ShortSerde": _SHORT, "FloatSerde": _FLOAT,
    "BooleanSerde": _BOOLEAN, "UUIDSerde": _UUID, "VoidSerde": _VOID,
}


def serde_by_name(text: str) -> Serde:
    """The serde that a setting names (``default.key.serde``): ``string``, or Kafka's Java class.

    ``json:<schema>`` gives the JSON serde of a schema in Spark's DDL. ConfigError for anything else.
    """
    name = text.strip()
    if name.startswith("json:"):
        return JsonSerde(name.removeprefix("json:"))
    found = _BY_NAME.get(name.lower()) or _BY_JAVA_CLASS.get(name.removeprefix(_JAVA_PREFIX))
    if found is not None:
        return found
    known = [*_BY_NAME, *(_JAVA_PREFIX + java for java in _BY_JAVA_CLASS)]
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ConfigError(
        f"unknown serde {text!r}: expected one of {', '.join(_BY_NAME)}, json:<schema>, or Kafka's class"
        f" {_JAVA_PREFIX}StringSerde and the like{hint}"
    )


_CONVERTED = {"str": "string", "bytes": "binary", "int": "bigint", "float": "double"}
"""The Spark type of what a serde expected, of which values of other types can be made."""


def _wrong_type(name: str, value: object, expected: str) -> SerdeError:
    instead = written_as(value, _CONVERTED.get(expected, ""))
    found = f"{name}: can't write a value of type {type_name(value)}, expected {expected};"
    if isinstance(value, Windowed):
        serde = "WindowedSerdes.time_windowed_serde_from(...), or session_windowed_serde_from(...)"
        return SerdeError(f"{found} give windowed keys {serde}, or write the key alone, as of to_stream(lambda k, v: k['key'])")
    return SerdeError(
        found
        + (f" write {instead}, or" if instead else "")
        + " give the operator or the topic the serde of its values"
    )


def _check_length(name: str, data: bytes, expected: int) -> None:
    if len(data) != expected:
        raise SerdeError(
            f"{name}: found {len(data)} bytes, expected {expected}; the topic holds other data than this serde's"
        )
