"""The schema of a JSON serde: Spark DDL text, read without Spark.

Decides which types a schema may have: those of Spark that JSON has a form for. ``json_reading`` reads JSON text as values of
these types, ``json_writing`` writes them; both raise ``Misfit`` for a value that is not of its type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

from tidemill.dsl.value_types import type_name, written_as
from tidemill.errors import SerdeError, TopologyError
from tidemill.printable import printable

_CONTEXT = Context(prec=80, traps=[])
"""More digits than any decimal type has, and no errors: what does not fit is found by comparing."""
_FARTHEST = 100
"""The power of ten up to which a number is looked at: one that says more (0e9999) would be made of as many digits."""


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A type without parts, by its DDL name. ``values``: the only ones that a class takes (an Enum's, a Literal's); none: all of
    the type."""

    ddl: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A number of ``precision`` digits, ``scale`` of them behind the point."""

    precision: int
    scale: int

    @property
    def ddl(self) -> str:
        return f"decimal({self.precision},{self.scale})"

    def fitted(self, value: Decimal) -> Decimal:
        """``value`` with the type's digits behind the point, never rounded; Misfit if it has more, or is too large."""
        if not value.is_finite():
            raise Misfit("is not finite: NaN and infinite numbers have no form in JSON; write null or text for them")
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        if exponent > _FARTHEST or (value and value.adjusted() >= self.precision - self.scale):
            raise Misfit(f"is too large for its type {self.ddl}")
        fit = value.quantize(Decimal((0, (1,), -self.scale)), context=_CONTEXT) if exponent >= -10 * _FARTHEST else Decimal("NaN")
        if fit != value:
            raise Misfit(
                f"is {str(value)[:60]}, expected at most {self.scale} digits behind the point, as its type {self.ddl} has: round"
                " it, or give the schema more"
            )
        return fit if fit else abs(fit)  # without the sign of -0


@dataclass(frozen=True, slots=True)
class ArrayType:
    element: JsonType

    @property
    def ddl(self) -> str:
        return f"array<{self.element.ddl}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map; its keys are strings, as JSON's are."""

    value: JsonType

    @property
    def ddl(self) -> str:
        return f"map<string,{self.value.ddl}>"


@dataclass(frozen=True, slots=True)
class StructType:
    """``required``: the fields that are never null. ``is_closed``: an object with other members is refused.

    ``ddl`` is the type as Spark compares it, which says neither.
    """

    fields: tuple[tuple[str, JsonType], ...]
    required: frozenset[str] = frozenset()
    is_closed: bool = False

    @property
    def ddl(self) -> str:
        return f"struct<{','.join(f'{quoted_name(name)}:{kind.ddl}' for name, kind in self.fields)}>"


JsonType = ScalarType | DecimalType | ArrayType | MapType | StructType


def declared(kind: JsonType) -> str:
    """DDL text that says NOT NULL, too; of a struct as a type."""
    match kind:
        case StructType(fields, required):
            inner = (f"{quoted_name(name)}:{declared(one)}{' NOT NULL' if name in required else ''}" for name, one in fields)
            return f"struct<{','.join(inner)}>"
        case ArrayType(element):
            return f"array<{declared(element)}>"
        case MapType(value):
            return f"map<string,{declared(value)}>"
        case _:
            return kind.ddl


def parts_of(kind: JsonType) -> Iterator[JsonType]:
    """The type and all types in it."""
    yield kind
    match kind:
        case StructType(fields):
            for _, inner in fields:
                yield from parts_of(inner)
        case ArrayType(inner) | MapType(inner):
            yield from parts_of(inner)
        case _:
            pass


@dataclass(slots=True)
class Misfit(Exception):  # noqa: N818  # between readers, writers and their caller only
    """A value is not of its type. ``problem`` continues the sentence after the place, which is built from the inside out."""

    problem: str
    places: list[str] = field(default_factory=list)

    @staticmethod
    def of_type(value: Any, kind: JsonType) -> Misfit:
        return Misfit(f"is of type {type_name(value)}, expected {kind.ddl} as in the schema")

    @staticmethod
    def of_unwritable(value: Any, kind: JsonType) -> Misfit:
        """The same of a value that a program gives, with what to write instead."""
        instead, misfit = written_as(value, kind.ddl), Misfit.of_type(value, kind)
        return Misfit(f"{misfit.problem}; write {instead}") if instead else misfit

    @staticmethod
    def of_key(key: object, kind: JsonType) -> Misfit:
        """A map of Python's has a key that no object of JSON can have."""
        shown = printable(repr(key), longest=60)
        return Misfit(f"has the key {shown} of type {type_name(key)}, expected text: its type is {kind.ddl}")

    @staticmethod
    def of_null(name: str) -> Misfit:
        """A required field is missing or null."""
        return Misfit("is missing or null, expected a value: the schema requires one").inside(f".{name}")

    @staticmethod
    def of_size(value: float, kind: JsonType) -> Misfit:
        """A number does not fit in its type."""
        if isinstance(value, int) and kind.ddl not in ("float", "double") and abs(value) < 10**25:
            return Misfit(f"is {value}, which does not fit in its type {kind.ddl}")
        return Misfit(f"is too large for its type {kind.ddl}")

    @staticmethod
    def of_digits(value: int, kind: JsonType) -> Misfit:
        """A whole number has more digits than its type."""
        return Misfit(
            f"is {value}, which is beyond the whole numbers that its type {kind.ddl} has: write float(value), which rounds it, or"
            " give the schema the type bigint"
        )

    @staticmethod
    def of_value(value: object, expected: tuple[object, ...]) -> Misfit:
        """The value is none of those that a class takes."""
        return Misfit(f"is {repr(value)[:60]}, expected one of {', '.join(map(repr, expected))}")

    @staticmethod
    def of_no_number() -> Misfit:
        return Misfit("is not finite: NaN and infinite numbers have no form in JSON; write null or text for them")

    def inside(self, place: str) -> Misfit:
        self.places.append(place)
        return self

    def error(self, root: str) -> SerdeError:
        return SerdeError(f"json: {root}{''.join(reversed(self.places))} {self.problem}")


_SYNONYMS = {
    "string": "string", "boolean": "boolean", "byte": "tinyint", "tinyint": "tinyint", "short": "smallint",
    "smallint": "smallint", "int": "int", "integer": "int", "long": "bigint", "bigint": "bigint", "float": "float",
    "real": "float", "double": "double", "binary": "binary", "date": "date", "timestamp": "timestamp",
    "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz",
}  # fmt: skip
_DECIMALS = ("decimal", "dec", "numeric")
_TYPES = frozenset({"array", "map", *_SYNONYMS, *_DECIMALS})
_DEFAULT_DECIMAL = DecimalType(10, 0)
_MAX_PRECISION = 38
_INSTEAD = {
    "varchar": "use string", "char": "use string", "variant": "use string and F.parse_json", "interval": "use bigint",
    "time": "use string", "void": "leave the field out", "null": "leave the field out",
}  # fmt: skip
_TOKEN = re.compile(r"""\s*(?:`((?:[^`]|``)+)`|([A-Za-z0-9_]+)|([<>:,()])|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))""", re.DOTALL)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


# --- DDL -------------------------------------------------------------------------------------------------------------


def parse_schema(text: str) -> StructType:
    """The fields that DDL text lists: ``user string NOT NULL, tags array<string>`` or ``struct<user: string>``.

    Raises:
        TopologyError: it is no such text, or has a type that JSON has no form for.
    """
    if not isinstance(text, str):
        raise TopologyError(f"json: the schema must be DDL text such as 'user string, amount double', got {text!r}")
    tokens = _Tokens(text, list(_tokens(text)))
    if tokens.ahead(0) in _TYPES and tokens.ahead(1) in ("", "<", "("):
        raise tokens.error(
            f"a document is an object; a list, a map or a scalar is one of its fields: 'items {text.strip()}', or a document of "
            "Serdes.json() without a schema"
        )
    is_struct = tokens.ahead(0) == "struct" and tokens.ahead(1) == "<"
    parsed = _type(tokens) if is_struct else _fields(tokens, "")
    if tokens.ahead(0):
        raise tokens.error(f"unexpected {tokens.ahead(0)!r}")
    if not isinstance(parsed, StructType):  # struct<...> always gives one
        raise tokens.error("the schema must have fields")
    return parsed


def parse_type(text: str) -> JsonType:
    """The type that DDL text names: ``decimal(12,2)``, ``array<int>``; TopologyError as of ``parse_schema``."""
    tokens = _Tokens(text, list(_tokens(text)))
    found = _type(tokens)
    if tokens.ahead(0):
        raise tokens.error(f"unexpected {tokens.ahead(0)!r}")
    return found


class _Tokens:
    """The rest of the DDL text; quoted names carry a leading back-quote so that they are never keywords."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self.text, self.tokens = text, tokens

    def ahead(self, distance: int) -> str:
        token = self.tokens[distance] if distance < len(self.tokens) else ""
        return token if token.startswith("`") else token.lower()

    def take(self) -> str:
        return self.tokens.pop(0) if self.tokens else ""

    def expect(self, symbol: str) -> None:
        found = self.take()
        if found != symbol:
            raise self.error(f"expected {symbol!r}, found {found or 'the end'!r}")

    def error(self, problem: str) -> TopologyError:
        return TopologyError(
            f"json: can't read the schema {self.text!r}: {problem}; expected fields such as 'user string, tags"
            f" array<string>, scores map<string,double>' of the types {', '.join(sorted({*_SYNONYMS, 'decimal(p,s)'}))}"
        )


def _tokens(text: str) -> Iterator[str]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _Tokens(text, []).error(f"unexpected {text[position:end].lstrip()[:1]!r}")
        yield "`" + match[1].replace("``", "`") if match[1] else match[2] or match[3] or match[4]
        position = match.end()


def _fields(tokens: _Tokens, closing: str) -> StructType:
    fields: list[tuple[str, JsonType]] = []
    required: set[str] = set()
    while True:
        name = tokens.take()
        if not name or name[0] in "<>:,()'\"":
            raise tokens.error(f"expected the name of a field, found {name or 'the end'!r}")
        name = name.removeprefix("`")
        if name in [other for other, _ in fields]:
            raise tokens.error(f"the field {name!r} is there twice")
        if tokens.ahead(0) == ":":
            tokens.take()
        fields.append((name, _type(tokens)))
        if _is_required(tokens):
            required.add(name)
        if tokens.ahead(0) == closing:
            return StructType(tuple(fields), frozenset(required))
        tokens.expect(",")


def _is_required(tokens: _Tokens) -> bool:
    """True if NOT NULL follows a field's type; a comment is skipped."""
    is_required = (tokens.ahead(0), tokens.ahead(1)) == ("not", "null")
    if is_required:
        tokens.take()
        tokens.take()
    if tokens.ahead(0) == "comment":
        tokens.take()
        text = tokens.take()
        if text[:1] not in ("'", '"'):
            raise tokens.error(f"expected the comment's text in quotes, found {text or 'the end'!r}")
    return is_required


def _type(tokens: _Tokens) -> JsonType:
    name = tokens.take().lower()
    if name == "array":
        tokens.expect("<")
        element = _type(tokens)
        tokens.expect(">")
        return ArrayType(element)
    if name == "map":
        tokens.expect("<")
        if _type(tokens) != ScalarType("string"):
            raise tokens.error("the keys of a map must be strings, as JSON's are")
        tokens.expect(",")
        value = _type(tokens)
        tokens.expect(">")
        return MapType(value)
    if name == "struct":
        tokens.expect("<")
        fields = _fields(tokens, ">")
        tokens.expect(">")
        return fields
    if name in _DECIMALS:
        return _decimal(tokens)
    if name in _INSTEAD:
        raise tokens.error(f"JSON has no form for the type {name}: {_INSTEAD[name]}")
    if name not in _SYNONYMS:
        raise tokens.error(f"unknown type {name or 'the end'!r}")
    return ScalarType(_SYNONYMS[name])


def _decimal(tokens: _Tokens) -> DecimalType:
    if tokens.ahead(0) != "(":
        return _DEFAULT_DECIMAL
    tokens.take()
    precision, scale = _digits(tokens), 0
    if tokens.ahead(0) == ",":
        tokens.take()
        scale = _digits(tokens)
    tokens.expect(")")
    if not 1 <= precision <= _MAX_PRECISION or scale > precision:
        found = f"decimal({precision},{scale})"
        raise tokens.error(f"{found} is none: expected 1 to {_MAX_PRECISION} digits, and no more than these behind the point")
    return DecimalType(precision, scale)


def _digits(tokens: _Tokens) -> int:
    found = tokens.take()
    if not found.isdecimal() or len(found) > 2:
        raise tokens.error(f"expected a number of digits, found {found or 'the end'!r}")
    return int(found)


def quoted_name(name: str) -> str:
    """A name as DDL has it."""
    return name if _PLAIN_NAME.match(name) else in_backticks(name)


def in_backticks(name: str) -> str:
    """A name as DDL has it, whatever words are reserved."""
    return "`" + name.replace("`", "``") + "`"
