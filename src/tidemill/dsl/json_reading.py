"""JSON text as values, of a schema or of none: which text is read, and what is refused.

Decides what a JSON serde refuses: whatever is no single JSON text in UTF-8 (RFC 8259), names a member of an object twice, or is
larger than the limits. With a schema it also refuses what is no object, or has a member of another type than its field. A value
that doesn't fit is never read as null or left out. Invariant: Spark's ``from_json`` reads what is not refused here to equal
values, so the plan needs no check of its own.
"""

from __future__ import annotations

import binascii
import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from tidemill.dsl.json_schema import ArrayType, DecimalType, JsonType, MapType, Misfit, ScalarType, StructType, parts_of
from tidemill.dsl.json_times import read_date, read_instant, read_local_time
from tidemill.errors import SerdeError
from tidemill.topology.values import Value

MAX_BYTES = 16 * 1024 * 1024
"""Size limit of one JSON text, unless the serde sets another."""
MAX_DEPTH = 100
"""Limit of nested objects and arrays, those of ignored members included."""
MAX_NUMBER = 1_000
"""Characters of a number: the JVM's reader takes no more."""
MAX_NAME = 50_000
"""Bytes of a member's name: the JVM's reader takes no more."""

Reader = Callable[[Value], Value]

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Spark's text for numbers that JSON has no form for."""
_FLOAT = struct.Struct(">f")
_WHITESPACE = " \t\n\r"
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)
_NUMBER_TEXT = re.compile(r"-?[0-9]{1,100}(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_ALIKE = bytes.maketrans(b"[]", b"{}")
_NUMBER_BYTES = bytes(ord("0") if chr(byte) in "+-.0123456789eE" else ord(" ") for byte in range(256))
_TOO_LONG = b"0" * (MAX_NUMBER + 1)


TextReader = Callable[[bytes], Value]


def text_reader(
    kind: StructType, max_bytes: int | None, *, non_finite: bool = False, maker: Callable[[Value], Value] | None = None
) -> TextReader:
    """A function that gives the dict that JSON text holds; every field of the schema is a key of it. It raises SerdeError, with
    the place and what was expected there.

    ``max_bytes`` None: no limits. ``maker`` makes the result of the dict; it may raise Misfit.
    """
    read = reader_of(kind, non_finite=non_finite)
    number = _exact_number if any(isinstance(part, DecimalType) for part in parts_of(kind)) else float

    def read_text(data: bytes) -> Value:
        parsed = parsed_text(data, max_bytes, number)
        if parsed is None:
            raise SerdeError("json: found the text null, expected an object")
        try:
            found = read(parsed)
            return found if maker is None else maker(found)
        except Misfit as misfit:
            raise misfit.error("value") from None

    return read_text


def read_document(data: bytes, max_bytes: int) -> Value:
    """The value that JSON text holds: a dict, list, str, int, float or bool.

    Raises:
        SerdeError: it is no JSON, null, beyond the limits, or has a number that no float can be.
    """
    parsed = parsed_text(data, max_bytes, _finite_number)
    if parsed is None:
        raise SerdeError("json: found the text null, expected a document; only a record without a value has the value None")
    return parsed


def parsed_text(data: bytes, max_bytes: int | None, number: Callable[[str], Value] = float) -> Value:
    """JSON text as ``json`` parses it. ``number``: of those in ``_DECODERS``, what makes the value of a number with a point or an
    exponent.

    Raises:
        SerdeError: it is no JSON, or beyond the limits (``max_bytes`` None: there are none).
    """
    size = len(data)
    if max_bytes is not None:
        check_limits(data, max_bytes)
    decoder = _DECODERS[number, max_bytes is not None and size > MAX_NAME]
    try:
        text = data.decode("utf-8").strip(_WHITESPACE)
        parsed, end = decoder.raw_decode(text)
    except ValueError as error:  # not UTF-8, or no JSON
        raise SerdeError(f"json: {size} bytes are not JSON text in UTF-8 ({error})") from None
    if end != len(text):
        raise SerdeError(f"json: {len(text) - end} characters follow the JSON text, expected nothing more")
    if b"\\u" in data and _SURROGATE.search(data) is not None and not _is_unicode(parsed):
        raise SerdeError("json: an escape is half of a surrogate pair, which is no character")
    return parsed


# What is checked before the text is parsed: nothing here takes longer than reading the bytes once or twice.


def check_limits(data: bytes, max_bytes: int) -> None:
    """
    Raises:
        SerdeError: the text is larger, deeper, or has a longer number than a reader takes.
    """
    size = len(data)
    if size > max_bytes:
        raise SerdeError(f"json: found {size} bytes, expected at most {max_bytes}; raise the serde's max_bytes for more")
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _is_too_deep(data):
        raise SerdeError(f"json: objects and arrays are nested more than {MAX_DEPTH} levels deep")
    if size > MAX_NUMBER and _TOO_LONG in data.translate(_NUMBER_BYTES) and _has_long_number(data):
        raise SerdeError(f"json: a number has more than {MAX_NUMBER} characters")


def _is_too_deep(data: bytes) -> bool:
    brackets = _outside_strings(data).translate(_ALIKE, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):  # each time the innermost ones go
        brackets = brackets.replace(b"{}", b"")
    return b"{}" in brackets or brackets.count(b"{") > MAX_DEPTH


def _has_long_number(data: bytes) -> bool:
    return _TOO_LONG in _outside_strings(data).translate(_NUMBER_BYTES)


def _outside_strings(data: bytes) -> bytes:
    """JSON text without its strings; of other text right up to where it ceases to be JSON."""
    return b" ".join(data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def _object(members: list[tuple[str, Value]]) -> dict[str, Value]:
    made = dict(members)
    if len(made) != len(members):
        seen: set[str] = set()
        twice = next(name for name, _ in members if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise SerdeError(f"json: an object has the member {twice[:60]!r} more than once: which of its values counts is not known")
    return made


def is_too_long(name: str) -> bool:
    """True of a member's name that the JVM would not read."""
    return len(name) > MAX_NAME // 4 and len(name.encode("utf-8", "replace")) > MAX_NAME


def _object_of_long_text(members: list[tuple[str, Value]]) -> dict[str, Value]:
    if any(is_too_long(name) for name, _ in members):
        raise SerdeError(f"json: the name of a member has more than {MAX_NAME} bytes")
    return _object(members)


def _no_number(token: str) -> Value:
    raise SerdeError(f"json: {token} is not JSON; a number that is missing is written null")


def _exact_number(token: str) -> Decimal | float:
    try:
        return Decimal(token)
    except InvalidOperation:  # an exponent of twenty digits
        return float(token)


def _finite_number(token: str) -> float:
    number = float(token)
    if math.isinf(number):
        raise SerdeError(f"json: the number {token[:60]} is too large for a float")
    return number


_DECODERS: dict[tuple[Callable[[str], Value], bool], json.JSONDecoder] = {
    (number, is_long): json.JSONDecoder(
        object_pairs_hook=_object_of_long_text if is_long else _object, parse_float=number, parse_constant=_no_number
    )
    for number in (float, _exact_number, _finite_number)
    for is_long in (False, True)
}
"""Decoders by what numbers are, and whether a name can be too long."""


def _is_unicode(value: Value) -> bool:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return True
    if isinstance(value, dict):
        return all(map(_is_unicode, value)) and all(map(_is_unicode, value.values()))
    return all(map(_is_unicode, value)) if isinstance(value, list) else True


# --- readers of types -------------------------------------------------------------------------------------------------


def reader_of(kind: JsonType, *, non_finite: bool) -> Reader:
    """A function that turns what ``json`` has parsed into a value of ``kind``; it raises Misfit.

    ``non_finite``: a number may be one of the texts NON_FINITE.
    """
    match kind:
        case StructType(fields):
            return _struct(kind, tuple((name, reader_of(inner, non_finite=non_finite)) for name, inner in fields))
        case DecimalType():
            return _decimal(kind)
        case ArrayType(element):
            return _array(kind, reader_of(element, non_finite=non_finite))
        case MapType(inner):
            return _map(kind, reader_of(inner, non_finite=non_finite))
        case ScalarType("string" | "boolean" as ddl):
            return _exact(kind, str if ddl == "string" else bool)
        case ScalarType("binary"):
            return _binary
        case ScalarType("date" | "timestamp" | "timestamp_ntz" as ddl):
            return _READERS_OF_TIMES[ddl]
        case ScalarType("float" | "double" as ddl):
            finite = _float if ddl == "float" else _double
            return _or_non_finite(finite) if non_finite else finite
        case ScalarType(ddl):
            return _whole(kind, BITS[ddl])


_READERS_OF_TIMES: dict[str, Reader] = {"date": read_date, "timestamp": read_instant, "timestamp_ntz": read_local_time}


def _wrong_type(value: Value, kind: JsonType) -> Misfit:
    """A number with a point is called a float also where it was read as a Decimal, for the sake of another field."""
    return Misfit.of_type(float(value) if isinstance(value, Decimal) else value, kind)


def _struct(kind: StructType, fields: tuple[tuple[str, Reader], ...]) -> Reader:
    required = tuple(name for name, _ in fields if name in kind.required)

    def read(value: Value) -> dict[str, Value]:
        if value.__class__ is not dict:
            raise _wrong_type(value, kind)
        get, made, name = value.get, {}, ""
        try:
            for name, inner in fields:
                found = get(name)
                made[name] = None if found is None else inner(found)
        except Misfit as misfit:
            raise misfit.inside(f".{name}") from None
        for name in required:
            if made[name] is None:
                raise Misfit.of_null(name)
        if kind.is_closed and not value.keys() <= made.keys():
            raise Misfit(f"has the member {min(value.keys() - made.keys())[:60]!r}, which its type lacks")
        return made

    return read


def _array(kind: ArrayType, element: Reader) -> Reader:
    def read(value: Value) -> list[Value]:
        if value.__class__ is not list:
            raise _wrong_type(value, kind)
        made: list[Value] = []
        try:
            for item in value:
                made.append(None if item is None else element(item))  # the place of a misfit is wanted
        except Misfit as misfit:
            raise misfit.inside(f"[{len(made)}]") from None
        return made

    return read


def _map(kind: MapType, inner: Reader) -> Reader:
    def read(value: Value) -> dict[str, Value]:
        if value.__class__ is not dict:
            raise _wrong_type(value, kind)
        made, name = {}, ""
        try:
            for name, item in value.items():
                made[name] = None if item is None else inner(item)
        except Misfit as misfit:
            raise misfit.inside(f"[{name[:60]!r}]") from None
        return made

    return read


def _exact(kind: ScalarType, python: type) -> Reader:
    def read(value: Value) -> Value:
        if value.__class__ is not python:
            raise _wrong_type(value, kind)
        return value

    return read


def _whole(kind: ScalarType, bits: int) -> Reader:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(value: Value) -> Value:
        if value.__class__ is not int:
            raise _wrong_type(value, kind)
        if not low <= value <= high:
            raise Misfit.of_size(value, kind)
        return value

    return read


_DOUBLE, _SINGLE = ScalarType("double"), ScalarType("float")


def _double(value: Value) -> float:
    if value.__class__ is int:
        try:
            return float(value)
        except OverflowError:
            raise Misfit.of_size(value, _DOUBLE) from None
    if value.__class__ is Decimal:
        value = float(value)
    if value.__class__ is not float:
        raise _wrong_type(value, _DOUBLE)
    if math.isinf(value):  # as json reads 1e400
        raise Misfit.of_size(value, _DOUBLE)
    number: float = value
    return number


def _float(value: Value) -> float:
    """The double that the text says, rounded to a float."""
    if value.__class__ not in (int, float, Decimal):
        raise _wrong_type(value, _SINGLE)
    return rounded(_double(value))


def rounded(value: float) -> float:
    """The nearest float of 4 bytes; Misfit where there is none."""
    try:
        single: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        raise Misfit.of_size(value, _SINGLE) from None
    return single


def _decimal(kind: DecimalType) -> Reader:
    """Reader of a Decimal: from a number, or from a string with one."""

    def read(value: Value) -> Decimal:
        if value.__class__ is str and _NUMBER_TEXT.fullmatch(value):
            value = Decimal(value)
        if value.__class__ is int:
            value = Decimal(value)
        if value.__class__ is not Decimal:
            raise _wrong_type(value, kind)
        return kind.fitted(value)

    return read


def _or_non_finite(finite: Reader) -> Reader:
    def read(value: Value) -> Value:
        return NON_FINITE[value] if value.__class__ is str and value in NON_FINITE else finite(value)

    return read


def _binary(value: Value) -> bytes:
    if value.__class__ is not str or _BASE64.fullmatch(value) is None:
        raise Misfit("is not base64 text, as its type binary needs")
    return binascii.a2b_base64(value)
