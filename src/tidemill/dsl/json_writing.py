"""Values, of a schema or of none, as JSON text: the one text that a value is written as.

Decides the form: fields in the schema's order, null fields left out, no spaces, binary as base64, times as ISO 8601 with six
digits of a second (in UTC, where they are instants), numbers and escapes as Java writes them. It is that of Spark's ``to_json``,
since keys are compared by their bytes, of whichever writer. Numbers that JSON has no form for are refused.
"""

from __future__ import annotations

import base64
import difflib
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import cache
from json.encoder import encode_basestring  # the quoting of json.dumps
from uuid import UUID

from tidemill.dsl.json_reading import BITS, MAX_NAME, check_limits, is_too_long, rounded
from tidemill.dsl.json_schema import ArrayType, DecimalType, JsonType, MapType, Misfit, ScalarType, StructType
from tidemill.dsl.json_times import date_text, instant_text, local_time_text
from tidemill.dsl.value_types import as_json, type_name
from tidemill.errors import SerdeError
from tidemill.topology.values import Value

Writer = Callable[[Value], str]

_ESCAPES = {chr(code): f"\\u{code:04X}" for code in range(32)} | {
    '"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r",
}  # fmt: skip
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_PLAIN_FROM, _PLAIN_TO = -3, 7
"""Java writes numbers whose first digit is so far from the point with an exponent."""


def write_json(value: Value, writer: Writer) -> bytes:
    """The JSON text of a dict. ``writer``: that of the schema.

    Raises:
        SerdeError: the value is not of the schema's type, with the place and what was expected there.
    """
    try:
        return utf8(writer(value))
    except Misfit as misfit:
        error = misfit.error("value")
        if misfit.places or isinstance(value, dict):
            raise error from None
        # as of an aggregate of another type than the group's values, whose serde it has got
        raise SerdeError(f"{error}; give the operator or the topic the serde of its values") from None


def write_document(value: Value, max_bytes: int) -> bytes:
    """The JSON text of a value that no schema describes. Unlike fields of a schema, members that are None are written, as null.

    Raises:
        SerdeError: a part of the value has no form in JSON, with its place; or no reader would take the text.
    """
    try:
        data = utf8(_document(value))
    except Misfit as misfit:
        raise misfit.error("value") from None
    except RecursionError:
        raise SerdeError("json: value is nested too deep, or contains itself") from None
    check_limits(data, max_bytes)
    return data


def utf8(text: str) -> bytes:
    """The bytes of text as Java writes them: two halves of a surrogate pair are one character, a single half is "?"."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass").encode("utf-8", "replace")


def writer_of(kind: JsonType, *, non_finite: bool = False) -> Writer:
    """A function that writes a value of ``kind`` which is not None; it raises Misfit.

    ``non_finite``: NaN and infinite numbers are written as Spark's text for them, and values that a class does not take.
    """
    match kind:
        case ScalarType(ddl, values) if values and not non_finite:
            return _one_of(values, writer_of(ScalarType(ddl)))
        case StructType(fields):
            return _struct(kind, tuple((name, writer_of(inner, non_finite=non_finite)) for name, inner in fields))
        case ArrayType(element):
            return _array(kind, writer_of(element, non_finite=non_finite))
        case MapType(inner):
            return _map(kind, writer_of(inner, non_finite=non_finite))
        case ScalarType("string"):
            return _text
        case ScalarType("boolean"):
            return _boolean
        case ScalarType("binary"):
            return _binary
        case DecimalType():
            return _decimal(kind)
        case ScalarType("date" | "timestamp" | "timestamp_ntz" as ddl):
            return _WRITERS_OF_TIMES[ddl]
        case ScalarType("float" | "double"):
            return _number(kind, non_finite=non_finite)
        case ScalarType(ddl):
            return _whole(kind, BITS[ddl])


_WRITERS_OF_TIMES: dict[str, Writer] = {"date": date_text, "timestamp": instant_text, "timestamp_ntz": local_time_text}


def members_of(value: Value) -> dict[str, Value] | None:
    """The JSON form of a dict, a row of PySpark, an instance of a dataclass or of a Pydantic model; None of anything else."""
    if isinstance(value, dict):
        return value
    if hasattr(value, "asDict"):
        members: dict[str, Value] = value.asDict()
        return members
    cls: type = type(value)
    attributes = _attributes_of(cls)
    return None if attributes is None else {name: getattr(value, attribute) for name, attribute in attributes}


@cache
def _attributes_of(cls: type) -> tuple[tuple[str, str], ...] | None:
    """Pairs of a member's name and the attribute that holds it."""
    models = getattr(cls, "model_fields", None)
    if isinstance(models, dict) and hasattr(cls, "model_validate"):
        return tuple((field.alias or name, name) for name, field in models.items())
    return tuple((field.name, field.name) for field in fields(cls)) if is_dataclass(cls) else None


def _document(value: Value) -> str:
    if isinstance(value, Enum):
        return _document(value.value)
    if isinstance(value, (str, UUID)):
        return _text(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else _boolean(value)
    if isinstance(value, (int, Decimal)):
        return _number_of_any_size(value)
    if isinstance(value, float):
        return _double(value)
    members = members_of(value)
    if members is not None:
        for name in members:
            if not isinstance(name, str):
                raise Misfit(f"has the member {name!r}, expected names that are text, such as {str(name)!r}")
        return _members_text(members, _document)
    if isinstance(value, (list, tuple)):
        return _items_text(value, _document)
    raise Misfit(f"is of type {type_name(value)}, which has no form in JSON; write {as_json(value)}")


def _number_of_any_size(value: int | Decimal) -> str:
    if isinstance(value, Decimal) and not value.is_finite():
        raise Misfit.of_no_number()
    return str(value if isinstance(value, Decimal) else int(value))


def _struct(kind: StructType, fields: tuple[tuple[str, Writer], ...]) -> Writer:
    quoted = [(name, quoted_text(name) + ":", inner) for name, inner in fields]
    known = {name for name, _ in fields}
    required = tuple(name for name, _ in fields if name in kind.required)

    def write(value: Value) -> str:
        given = value if value.__class__ is dict else members_of(value)
        if given is None:
            raise Misfit.of_unwritable(value, kind)
        if not given.keys() <= known:
            field = min(map(str, given.keys() - known))
            raise Misfit(f"has the field {field!r}, which its schema {kind.ddl} lacks: {_instead_of(field, known)}")
        written, name = [], ""
        try:
            for name, prefix, inner in quoted:
                found = given.get(name)
                if found is not None:
                    written.append(prefix + inner(found))
        except Misfit as misfit:
            raise misfit.inside(f".{name}") from None
        for name in required:
            if given.get(name) is None:
                raise Misfit.of_null(name)
        return "{" + ",".join(written) + "}"

    return write


def _instead_of(field: str, known: Collection[str]) -> str:
    near = [name for name in known if name.lower() == field.lower()] or difflib.get_close_matches(field, known, n=1)
    return f"write {near[0]!r}, or leave it out" if near else "leave it out, or add it to the schema"


def _array(kind: ArrayType, element: Writer) -> Writer:
    def write(value: Value) -> str:
        if not isinstance(value, (list, tuple)):
            raise Misfit.of_unwritable(value, kind)
        return _items_text(value, element)

    return write


def _items_text(items: Sequence[Value], element: Writer) -> str:
    written: list[str] = []
    try:
        for item in items:
            written.append("null" if item is None else element(item))  # the place of a misfit is wanted
    except Misfit as misfit:
        raise misfit.inside(f"[{len(written)}]") from None
    return "[" + ",".join(written) + "]"


def _map(kind: MapType, inner: Writer) -> Writer:
    def write(value: Value) -> str:
        if not isinstance(value, dict):
            raise Misfit.of_unwritable(value, kind)
        for name in value:
            if not isinstance(name, str):
                raise Misfit.of_key(name, kind)
        return _members_text(value, inner)

    return write


def _members_text(members: dict[str, Value], inner: Writer) -> str:
    written, name = [], ""
    try:
        for name, item in members.items():
            if is_too_long(name):
                raise Misfit(f"is under a name of more than {MAX_NAME} bytes, which no reader takes")
            written.append(quoted_text(name) + (":null" if item is None else ":" + inner(item)))
    except Misfit as misfit:
        raise misfit.inside(f"[{name[:60]!r}]") from None
    return "{" + ",".join(written) + "}"


def quoted_text(text: str) -> str:
    if text.isprintable():  # nothing but quotes and backslashes has to be escaped
        quoted: str = encode_basestring(text)
        return quoted
    return '"' + _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text) + '"'


def _text(value: Value) -> str:
    if isinstance(value, Enum):
        value = value.value
    elif isinstance(value, UUID):
        value = str(value)
    if not isinstance(value, str):
        raise Misfit.of_unwritable(value, ScalarType("string"))
    return quoted_text(value)


def _one_of(values: tuple[object, ...], writer: Writer) -> Writer:
    texts = {writer(one) for one in values}

    def write(value: Value) -> str:
        text = writer(value)
        if text not in texts:
            raise Misfit.of_value(value, values)
        return text

    return write


def _boolean(value: Value) -> str:
    if not isinstance(value, bool):
        raise Misfit.of_unwritable(value, ScalarType("boolean"))
    return "true" if value else "false"


def _binary(value: Value) -> str:
    if not isinstance(value, (bytes, bytearray)):
        raise Misfit.of_unwritable(value, ScalarType("binary"))
    return f'"{base64.b64encode(value).decode("ascii")}"'


def _whole(kind: ScalarType, bits: int) -> Writer:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def write(value: Value) -> str:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Misfit.of_unwritable(value, kind)
        if not low <= value <= high:
            raise Misfit.of_size(value, kind)
        return str(int(value))

    return write


def _decimal(kind: DecimalType) -> Writer:
    def write(value: Value) -> str:
        if not isinstance(value, (int, Decimal)) or isinstance(value, bool):
            raise Misfit.of_unwritable(value, kind)
        return str(kind.fitted(Decimal(value)))  # as Java's BigDecimal.toString

    return write


def _number(kind: ScalarType, *, non_finite: bool) -> Writer:
    is_single = kind.ddl == "float"

    def write(value: Value) -> str:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise Misfit.of_unwritable(value, kind)
        try:
            number = float(value)
        except OverflowError:
            raise Misfit.of_size(value, kind) from None
        if not math.isfinite(number):
            if non_finite:
                return '"NaN"' if number != number else '"Infinity"' if number > 0 else '"-Infinity"'
            raise Misfit.of_no_number()
        written = rounded(number) if is_single else number
        if isinstance(value, int) and written != value:
            raise Misfit.of_digits(value, kind)
        return java_float(written) if is_single else java_double(written)

    return write


_double = _number(ScalarType("double"), non_finite=False)


def java_double(number: float) -> str:
    """A finite number as Java's ``Double.toString`` writes it since version 19: the shortest digits that mean it."""
    text = repr(number)
    if len(text) < 8 and "e" not in text:  # alike in both, up to 0.001 and 10**7
        return text if abs(number) >= 1e-3 or number == 0 else _in_java(text)
    if text[1:].lstrip(".0123456789")[:1] == "e" and "." not in text:  # one digit: Java takes the best of two
        of_two = f"{number:.1e}"
        text = of_two if float(of_two) == number else text
    return _in_java(text)


def java_float(number: float) -> str:
    """A float of 4 bytes as Java's ``Float.toString`` writes it since version 19."""
    for digits in range(1, 9):
        text = f"{number:.{digits}e}"
        try:
            if rounded(float(text)) == number:
                return _in_java(text)
        except Misfit:  # rounded up beyond the largest
            continue
    return _in_java(f"{number:.8e}")


def _in_java(text: str) -> str:
    """The number that ``text`` says in digits, with Java's place of the point and form of the exponent."""
    sign = "-" if text.startswith("-") else ""
    mantissa, _, exponent = text.removeprefix("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0.0"
    if not _PLAIN_FROM < point <= _PLAIN_TO:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    digits = digits.ljust(point + 1, "0")
    return f"{sign}{digits[:point]}.{digits[point:]}"
