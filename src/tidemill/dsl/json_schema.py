"""The schema of a JSON serde: Spark DDL text, read without Spark.

Decides which types a schema may have. Which JSON text values of them are read from is ``json_reading``'s, what they are written
as ``json_writing``'s; both say with ``Misfit`` that a value is not of its type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemill.errors import SerdeError, TopologyError


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A type without parts, by its DDL name."""

    ddl: str


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
    fields: tuple[tuple[str, JsonType], ...]

    @property
    def ddl(self) -> str:
        return f"struct<{','.join(f'{_quoted(name)}:{kind.ddl}' for name, kind in self.fields)}>"


JsonType = ScalarType | ArrayType | MapType | StructType


@dataclass(slots=True)
class Misfit(Exception):  # noqa: N818  # between readers, writers and their caller only
    """A value is not of its type. ``problem`` goes on after the place, which grows on the way out."""

    problem: str
    places: list[str] = field(default_factory=list)

    @staticmethod
    def of_type(value: Any, kind: JsonType) -> Misfit:
        return Misfit(f"is of type {type(value).__name__}, expected {kind.ddl} as in the schema")

    @staticmethod
    def of_size(value: float, kind: JsonType) -> Misfit:
        """Of a number."""
        if isinstance(value, int) and kind.ddl not in ("float", "double") and abs(value) < 10**25:
            return Misfit(f"is {value}, which does not fit in its type {kind.ddl}")
        return Misfit(f"is too large for its type {kind.ddl}")

    def inside(self, place: str) -> Misfit:
        self.places.append(place)
        return self

    def error(self, root: str) -> SerdeError:
        return SerdeError(f"json: {root}{''.join(reversed(self.places))} {self.problem}")

_SYNONYMS = {
    "string": "string", "boolean": "boolean", "byte": "tinyint", "tinyint": "tinyint", "short": "smallint",
    "smallint": "smallint", "int": "int", "integer": "int", "long": "bigint", "bigint": "bigint", "float": "float",
    "real": "float", "double": "double", "binary": "binary",
}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z0-9_]+)|([<>:,]))")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


# --- DDL -------------------------------------------------------------------------------------------------------------


def parse_schema(text: str) -> StructType:
    """The fields that DDL text lists: ``user string, tags array<string>`` or ``struct<user: string>``."""
    if not isinstance(text, str):
        raise TopologyError(f"json: the schema must be DDL text such as 'user string, amount double', got {text!r}")
    tokens = _Tokens(text, list(_tokens(text)))
    is_struct = tokens.ahead(0) == "struct" and tokens.ahead(1) == "<"
    parsed = _type(tokens) if is_struct else _fields(tokens, "")
    if tokens.ahead(0):
        raise tokens.error(f"unexpected {tokens.ahead(0)!r}")
    if not isinstance(parsed, StructType):  # struct<...> always gives one
        raise tokens.error("the schema must have fields")
    return parsed


class _Tokens:
    """What is left of the DDL text; quoted names carry a leading back-quote so that they are never keywords."""

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
            f" array<string>, scores map<string,double>' of the types {', '.join(sorted(_SYNONYMS))}"
        )


def _tokens(text: str) -> Iterator[str]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _Tokens(text, []).error(f"unexpected {text[position:end].lstrip()[:1]!r}")
        yield "`" + match[1].replace("``", "`") if match[1] else match[2] or match[3]
        position = match.end()


def _fields(tokens: _Tokens, closing: str) -> StructType:
    fields: list[tuple[str, JsonType]] = []
    while True:
        name = tokens.take()
        if not name or name in "<>:,":
            raise tokens.error(f"expected the name of a field, found {name or 'the end'!r}")
        name = name.removeprefix("`")
        if name in [other for other, _ in fields]:
            raise tokens.error(f"the field {name!r} is there twice")
        if tokens.ahead(0) == ":":
            tokens.take()
        fields.append((name, _type(tokens)))
        if tokens.ahead(0) == closing:
            return StructType(tuple(fields))
        tokens.expect(",")


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
    if name not in _SYNONYMS:
        raise tokens.error(f"unknown type {name or 'the end'!r}")
    return ScalarType(_SYNONYMS[name])


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.match(name) else "`" + name.replace("`", "``") + "`"
