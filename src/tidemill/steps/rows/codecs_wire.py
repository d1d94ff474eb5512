"""The form of a serde's bytes between a Python step and the JVM; no JVM needed.

Numbers of fixed width are the bigint and double columns of ``schema``. A serde that Catalyst does not know (Avro, a UUID, one of
the user's) is replaced by the native one of its Spark type, which Python steps write on the way in and read on the way out.
The pair that a join forwards is one value of bytes (``PairSerde``); so is all that a function of Columns merges
(``EntriesSerde``).
"""

from __future__ import annotations

import math
import struct
from binascii import hexlify
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from typing import ClassVar

from tidemill.dsl.json_reading import TextReader, text_reader
from tidemill.dsl.json_schema import StructType, parse_schema
from tidemill.dsl.json_writing import Writer, write_json, writer_of
from tidemill.dsl.serdes import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    Serdes,
    StringSerde,
    WholeNumberSerde,
)
from tidemill.dsl.serdes_json import JsonClassSerde, JsonDocumentSerde, JsonSerde
from tidemill.dsl.serdes_windowed import SessionWindowedSerde, TimeWindowedSerde
from tidemill.dsl.stateful_serde import StatefulSerde
from tidemill.errors import ConfigError, RetriableError, SerdeError, TopologyError
from tidemill.printable import said_by
from tidemill.topology.values import Serde, Value
from tidemill.topology.windows import Windowed


class Physical(Enum):
    """The column of a key or value: bytes, ``_num`` or ``_dbl``."""

    BYTES = ""
    NUMBER = "_num"
    DOUBLE = "_dbl"


@dataclass(frozen=True, slots=True)
class FixedWidth:
    """A serde of fixed length: its bytes and how to convert them."""

    width: int
    code: str

    def encode(self, value: float) -> bytes:
        if value != value:  # NaN, of which Java writes one kind only
            value = math.nan
        return struct.pack(self.code, value)

    def decode(self, data: bytes) -> float:
        found: float = struct.unpack(self.code, data)[0]
        return found

    @property
    def kind(self) -> Physical:
        return Physical.DOUBLE if self.code in (">d", ">f") else Physical.NUMBER


_FIXED = {
    "bigint": FixedWidth(8, ">q"), "int": FixedWidth(4, ">i"), "smallint": FixedWidth(2, ">h"), "double": FixedWidth(8, ">d"),
    "float": FixedWidth(4, ">f"), "boolean": FixedWidth(1, ">b"),
}  # fmt: skip


def fixed_width(sql_type: str) -> FixedWidth | None:
    return _FIXED.get(sql_type)


def physical(sql_type: str) -> Physical:
    fixed = fixed_width(sql_type)
    return Physical.BYTES if fixed is None else fixed.kind


@dataclass(frozen=True, slots=True, eq=False)
class TransitJson(StatefulSerde):
    """A struct on its way between Python and the JVM, as JSON. Unlike a JSON serde's text it is no topic's: it has no limits, and
    NaN and infinite numbers are the texts that Spark writes for them."""

    type: StructType
    name: ClassVar[str] = "json"
    max_bytes: ClassVar[int] = 2**31 - 1
    _read: TextReader = field(init=False, repr=False, compare=False)
    _writer: Writer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_read", text_reader(self.type, None, non_finite=True))
        object.__setattr__(self, "_writer", writer_of(self.type, non_finite=True))

    @property
    def sql_type(self) -> str:
        return self.type.ddl

    def serialize(self, value: object) -> bytes | None:
        return None if value is None else write_json(value, self._writer)

    def deserialize(self, data: bytes | None) -> dict[str, object] | None:
        return None if data is None else self._read(data)


@cache
def _transit_json(sql_type: str) -> TransitJson:
    return TransitJson(parse_schema(sql_type))


# Of exactly these classes, here and wherever a serde's bytes are not made by the serde: a derived one may write others.
_NATIVE = (StringSerde, BytesSerde, WholeNumberSerde, DoubleSerde, FloatSerde, BooleanSerde, JsonSerde)
_BY_TYPE: Mapping[str, Callable[[], Serde]] = {
    "string": Serdes.string, "binary": Serdes.bytes, "bigint": Serdes.long, "int": Serdes.integer, "smallint": Serdes.short,
    "double": Serdes.double, "float": Serdes.float, "boolean": Serdes.boolean,
}  # fmt: skip
_TAKE_DICTS: set[tuple[type, type]] = set()
"""Classes of serdes that write dicts, each with one of their values: looked at once, since it costs half as much as a record."""
_WindowedSerde = TimeWindowedSerde | SessionWindowedSerde


def transit_of(serde: Serde) -> Serde | None:
    """The native serde in place of ``serde`` between Python and the JVM; None for one that is native itself.

    Raises:
        TopologyError: no native serde has its Spark type.
    """
    if type(serde) in (*_NATIVE, PairSerde, EntriesSerde, TransitJson):
        return None
    if serde.sql_type in _BY_TYPE:
        return _BY_TYPE[serde.sql_type]()
    if serde.sql_type.startswith("struct<"):
        return _transit_json(serde.sql_type)
    raise TopologyError(
        f"the serde {serde.name} has the Spark type {serde.sql_type}; expected a struct, as in 'struct<ids: array<bigint>>', or "
        f"one of {', '.join(_BY_TYPE)}"
    )


def in_transit(serde: Serde) -> Serde:
    """The serde of what the JVM sees."""
    return transit_of(serde) or serde


def before_it_is_written(serde: Serde) -> Serde:
    """The serde of what functions of Columns hand to functions of Python: it is no topic's text yet, so only the serde
    that writes it in the end, which may be Avro's, refuses what it can't write."""
    return _transit_json(serde.sql_type) if type(serde) is JsonSerde else serde


def for_the_jvm(serde: Serde, data: bytes | None) -> bytes | None:
    """Bytes of a serde that has one in transit, as that one's; SerdeError where they can't be read."""
    value, transit = serde.deserialize(data), in_transit(serde)
    if type(serde) is JsonDocumentSerde:
        return serde.serialize(value)  # the text itself
    if isinstance(serde, _WindowedSerde):
        value = _window_as_struct(serde, value)
    elif transit.sql_type == "string" and value is not None and not isinstance(value, str):
        value = _as_text(serde, value)
    try:
        made = transit.serialize(value)
    except SerdeError as error:
        raise SerdeError(
            f"{serde.name}: functions of Columns get its values in its Spark type, {serde.sql_type} (of a struct: a dict), and "
            f"this one, of the type {type(value).__name__}, is none: {error}"
        ) from None
    if isinstance(transit, TransitJson) and type(serde) is not JsonClassSerde and not isinstance(value, dict | None):
        _check_takes_dicts(serde, value, transit, made)
    return made


def _check_takes_dicts(serde: Serde, value: Value, transit: TransitJson, made: bytes | None) -> None:
    """Functions of Columns give a struct back as a dict, whatever object of its fields they were given."""
    kinds = type(serde), type(value)
    if kinds in _TAKE_DICTS:
        return
    try:
        serde.serialize(transit.deserialize(made))
    except (RetriableError, ConfigError):
        raise
    except Exception as error:
        raise SerdeError(
            f"{serde.name}: its Spark type is a struct, but its values are of the type {type(value).__name__}, and it does not "
            f"write the dict that functions of Columns make of one: {type(error).__name__}: {said_by(error)}; let it read and "
            "write dicts"
        ) from None
    _TAKE_DICTS.add(kinds)


def _as_text(serde: Serde, value: Value) -> str:
    """The text of a UUID and the like, which the serde must take back from functions of Columns."""
    text, given = str(value), type(value).__name__
    try:
        is_taken_back = serde.serialize(text) == serde.serialize(value)
    except Exception as error:
        raise SerdeError(f"{_no_text(serde, given)}: {type(error).__name__}: {said_by(error)}") from None
    if not is_taken_back:
        raise SerdeError(f"{_no_text(serde, given)} in the same bytes")
    return text


def _no_text(serde: Serde, given: str) -> str:
    return (
        f"{serde.name}: its Spark type is string, but its values are of the type {given}, which functions of Columns can't get;"
        f" let it read text, or write str(...) of a {given}"
    )


def from_the_jvm(serde: Serde, data: bytes | None) -> bytes | None:
    """The other way round."""
    value = serde.deserialize(data) if type(serde) is JsonDocumentSerde else in_transit(serde).deserialize(data)
    if isinstance(serde, _WindowedSerde):
        value = window_of_struct(serde, value)
    return serde.serialize(value)


def as_it_came(came_by: Serde | None, serde: Serde, data: bytes | None) -> bytes | None:
    """Bytes of ``serde`` as those of the serde with which the value came (None: the same), where that one can write it."""
    if came_by is None or data is None:
        return data
    try:
        return came_by.serialize(serde.deserialize(data))
    except (RetriableError, ConfigError):
        raise
    except Exception:
        return data


def _window_as_struct(serde: _WindowedSerde, value: Windowed | None) -> dict[str, object] | None:
    """A windowed key as functions of Columns see it: a struct, with the key in the window as they see such a key by itself."""
    if value is None:
        return None
    inner, key = serde.inner, value.key
    if isinstance(inner, _WindowedSerde):
        key = _window_as_struct(inner, key)
    elif transit_of(inner) is not None:
        key = in_transit(inner).deserialize(for_the_jvm(inner, inner.serialize(key)))
    return {"key": key, "start": value.start, "end": value.end}


def window_of_struct(serde: _WindowedSerde, value: Mapping[str, Value] | None) -> Windowed | None:
    """The other way round."""
    if value is None:
        return None
    inner, key = serde.inner, value["key"]
    if isinstance(inner, _WindowedSerde):
        key = window_of_struct(inner, key)
    elif transit_of(inner) is not None:
        key = inner.deserialize(from_the_jvm(inner, in_transit(inner).serialize(key)))
    return Windowed(key, value["start"], value["end"])


@dataclass(frozen=True, slots=True)
class PairSerde:
    """Both sides of a join on their way to a function of Columns; only written here, and opened in the JVM (``codecs``).

    ``length 10 (of no left side: -1) | "+", where there is a right side, else "-" | left | right``: numbers as text, which
    Catalyst reads and bytes it does not, all else as it travels by itself.
    """

    left: Serde
    right: Serde
    name: ClassVar[str] = "pair"
    _left_form: Callable[[bytes | None], bytes | None] = field(init=False, repr=False, compare=False)
    _right_form: Callable[[bytes | None], bytes | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_left_form", _form_of_side(self.left))
        object.__setattr__(self, "_right_form", _form_of_side(self.right))

    @property
    def sql_type(self) -> str:
        return f"struct<left:{in_transit(self.left).sql_type},right:{in_transit(self.right).sql_type}>"

    def serialize(self, value: tuple[object, object]) -> bytes:
        return self.of_bytes((self.left.serialize(value[0]), self.right.serialize(value[1])))

    def deserialize(self, _data: bytes | None) -> tuple[object, object] | None:
        raise AssertionError("a pair is opened in the JVM (codecs), not in Python")

    def of_bytes(self, sides: tuple[bytes | None, bytes | None]) -> bytes:
        """The pair of what both serdes have written."""
        left, right = self._left_form(sides[0]), self._right_form(sides[1])
        return b"%010d%b%b%b" % (-1 if left is None else len(left), b"-" if right is None else b"+", left or b"", right or b"")


@dataclass(frozen=True, slots=True)
class EntriesSerde:
    """The values of one key that a function of Columns merges, each with its timestamp; only written here, and opened in the JVM
    (``codecs``).

    ``timestamp:value,timestamp:value,...``: numbers as text, for the reason above, and all else in hexadecimal digits.
    """

    of: Serde
    name: ClassVar[str] = "entries"
    _form: Callable[[bytes | None], bytes | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_form", _form_of_side(self.of))

    @property
    def is_of_numbers(self) -> bool:
        return fixed_width(self.of.sql_type) is not None

    @property
    def sql_type(self) -> str:
        return f"array<struct<ts:bigint,v:{in_transit(self.of).sql_type}>>"

    def serialize(self, value: Iterable[tuple[int, object]]) -> bytes:
        return self.of_bytes([(timestamp, self.of.serialize(each)) for timestamp, each in value])

    def deserialize(self, _data: bytes | None) -> list[tuple[int, object]] | None:
        raise AssertionError("entries are opened in the JVM (codecs), not in Python")

    def of_bytes(self, entries: Iterable[tuple[int, bytes | None]]) -> bytes:
        """The entries of what the serde has written."""
        form, is_text = self._form, self.is_of_numbers
        forms = [(timestamp, form(data)) for timestamp, data in entries]
        return b",".join(
            b"%d:%b" % (timestamp, _NONE if data is None else data if is_text else hexlify(data)) for timestamp, data in forms
        )


_NONE = b"-"
"""No number, and no hexadecimal digits: null in the JVM."""
LENGTH_SIZE = 10
"""Bytes of the length field in front of a pair's left side."""


def _form_of_side(serde: Serde) -> Callable[[bytes | None], bytes | None]:
    fixed = fixed_width(serde.sql_type)
    if transit_of(serde) is not None:
        return partial(_transit_form, serde)
    return as_it_is if fixed is None else partial(_number_text, fixed)


def _transit_form(serde: Serde, data: bytes | None) -> bytes | None:
    if data is None:
        return None
    fixed, written = fixed_width(serde.sql_type), for_the_jvm(serde, data)
    return written if fixed is None else _number_text(fixed, written)


def _number_text(fixed: FixedWidth, data: bytes | None) -> bytes | None:
    return None if data is None else repr(fixed.decode(data)).encode()


def as_it_is(data: bytes | None) -> bytes | None:
    return data
