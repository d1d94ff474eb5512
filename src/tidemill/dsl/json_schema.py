"""The schema of a JSON serde: Spark DDL text, read without Spark, and the JSON that belongs to it.

Decides which types a schema may have and how values of them stand in JSON (as Spark's ``to_json`` and ``from_json``:
no spaces, null fields left out, binary as base64). Stricter than Spark in one thing: a field of another type than the
schema's is an error, not a null.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
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

_SYNONYMS = {
    "string": "string", "boolean": "boolean", "byte": "tinyint", "tinyint": "tinyint", "short": "smallint",
    "smallint": "smallint", "int": "int", "integer": "int", "long": "bigint", "bigint": "bigint", "float": "float",
    "real": "float", "double": "double", "binary": "binary",
}
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
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


# --- values ----------------------------------------------------------------------------------------------------------


def write_json(value: Any, kind: StructType) -> bytes:
    """The JSON text of a dict, in the order of the schema's fields."""
    written = _to_json(value, kind, "value")
    try:
        text = json.dumps(written, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise SerdeError("json: NaN and infinite numbers have no form in JSON; write null or text for them") from None
    return text.encode("utf-8", "replace")


def read_json(data: bytes, kind: StructType) -> dict[str, Any]:
    """The dict that JSON text holds; every field of the schema is a key of it."""
    try:
        parsed = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, no JSON, a number of too many digits, nested too deep
        raise SerdeError(f"json: {len(data)} bytes are not JSON text in UTF-8 ({error})") from None
    if parsed is None:
        raise SerdeError("json: found the text null, expected an object")
    read: dict[str, Any] = _from_json(parsed, kind, "value")
    return read


def _to_json(value: Any, kind: JsonType, path: str) -> Any:
    if value is None:
        return None
    match kind:
        case StructType(fields):
            given = value.asDict() if hasattr(value, "asDict") else value  # a pyspark Row
            if not isinstance(given, dict):
                raise _mismatch(path, value, kind)
            unknown = set(given) - {name for name, _ in fields}
            if unknown:
                field = min(map(str, unknown))
                raise SerdeError(f"json: {path} has the field {field!r}, which its schema {kind.ddl} lacks")
            written = ((name, _to_json(given.get(name), inner, f"{path}.{name}")) for name, inner in fields)
            return {name: inner for name, inner in written if inner is not None}
        case ArrayType(element):
            if not isinstance(value, (list, tuple)):
                raise _mismatch(path, value, kind)
            return [_to_json(item, element, f"{path}[{n}]") for n, item in enumerate(value)]
        case MapType(inner):
            if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
                raise _mismatch(path, value, kind)
            return {name: _to_json(item, inner, f"{path}[{name!r}]") for name, item in value.items()}
        case ScalarType("binary"):
            if not isinstance(value, (bytes, bytearray)):
                raise _mismatch(path, value, kind)
            return base64.b64encode(value).decode("ascii")
        case ScalarType(ddl):
            return _scalar(value, ddl, path)


def _from_json(value: Any, kind: JsonType, path: str) -> Any:
    if value is None:
        return None
    match kind:
        case StructType(fields):
            if not isinstance(value, dict):
                raise _mismatch(path, value, kind)
            return {name: _from_json(value.get(name), inner, f"{path}.{name}") for name, inner in fields}
        case ArrayType(element):
            if not isinstance(value, list):
                raise _mismatch(path, value, kind)
            return [_from_json(item, element, f"{path}[{n}]") for n, item in enumerate(value)]
        case MapType(inner):
            if not isinstance(value, dict):
                raise _mismatch(path, value, kind)
            return {name: _from_json(item, inner, f"{path}[{name!r}]") for name, item in value.items()}
        case ScalarType("binary"):
            try:
                return base64.b64decode(value, validate=True)
            except (TypeError, ValueError, binascii.Error):
                raise SerdeError(f"json: {path} is not base64 text, as its type binary needs") from None
        case ScalarType(ddl):
            return _scalar(value, ddl, path)


def _scalar(value: Any, ddl: str, path: str) -> Any:
    if ddl in _BITS:
        if isinstance(value, int) and not isinstance(value, bool):
            if not -(1 << _BITS[ddl] - 1) <= value < 1 << _BITS[ddl] - 1:
                raise SerdeError(f"json: {path} is {value}, which does not fit in its type {ddl}")
            return value
    elif ddl in ("float", "double"):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                raise SerdeError(f"json: {path} is too large for its type {ddl}") from None
    elif isinstance(value, {"string": str, "boolean": bool}[ddl]):
        return value
    raise _mismatch(path, value, ScalarType(ddl))


def _mismatch(path: str, value: Any, kind: JsonType) -> SerdeError:
    return SerdeError(f"json: {path} is of type {type(value).__name__}, expected {kind.ddl} as in the schema")
