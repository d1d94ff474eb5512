"""Writers' Avro schemas that bound the size of decoded values by the number of bytes.

Decides three bounds. An array's items must take bytes, since else a count alone makes as many items as it says. A record has few
values that take none, since records of such records multiply them. And a record that contains itself is read from few bytes only,
since each level takes stack. Each named schema is looked at once, however often it occurs. The reader's own schema is
no bound: what it lacks is read past with the writer's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypedDict

MAX_NESTED_BYTES = 4_000
"""Limit of a value whose schema contains itself: its levels are no more than its bytes."""
MAX_WITHOUT_BYTES = 1_000
"""Limit of the values of a record, and of the records in it, that take no bytes (null, and records of nulls alone)."""
RECORDS = ("record", "error")
NAMED = (*RECORDS, "enum", "fixed")
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class _Default(TypedDict, total=False):
    default: Any


class AvroField(_Default):
    """A field of a record."""

    name: str
    type: AvroSchema


class ComplexSchema(TypedDict, total=False):
    """A schema that is a JSON object: a record, an array ..., or a type with a name or a logical type."""

    type: AvroSchema
    name: str
    namespace: str
    fields: list[AvroField]
    items: AvroSchema
    values: AvroSchema
    size: int
    logicalType: str  # Avro's own name


AvroSchema = str | list["AvroSchema"] | ComplexSchema
"""A schema as its JSON text is parsed: the name of a type, a union, or an object."""
NamedSchemas = dict[str, AvroSchema]
"""Schemas by their full names."""


@dataclass(frozen=True, slots=True)
class AvroBounds:
    """``endless_array``: the items of an array that take no bytes, as JSON; empty if there are none. ``without_bytes``: the most
    values of a record that take none."""

    endless_array: str
    contains_itself: bool
    without_bytes: int = 0
    takes_no_bytes: bool = False
    is_raw: bool = False
    """True of ``bytes`` and nothing else, which are written without their length."""

    def why_not(self, size: int) -> str:
        """Why ``size`` bytes are not read; empty if they are."""
        if self.endless_array:
            items = self.endless_array[:80]
            return f"the writer's schema has an array of {items}, which takes no bytes: nothing bounds how many there are"
        if self.without_bytes > MAX_WITHOUT_BYTES:
            return f"the writer's schema has a record of more than {MAX_WITHOUT_BYTES} values that take no bytes"
        if self.contains_itself and size > MAX_NESTED_BYTES:
            return f"the writer's schema contains itself, of which at most {MAX_NESTED_BYTES} bytes are read, found {size}"
        return ""


def bounds_of(schema: str, referenced: Iterable[str] = ()) -> AvroBounds:
    """The bounds of a writer's schema; ``referenced``: the schemas that it refers to by name, their own references first."""
    named: NamedSchemas = {}
    parsed = json.loads(schema) if schema.lstrip()[:1] in ('"', "{", "[") else schema
    for one in (*map(json.loads, referenced), parsed):
        _name(one, "", named)
    found = _Schemas(named)
    contains_itself = found.walk(parsed, "", ())
    endless = next((items for items, space in found.arrays if not found.takes_bytes(items, space)), None)
    kind = parsed.get("type") if isinstance(parsed, dict) else parsed
    return AvroBounds(
        "" if endless is None else json.dumps(endless),
        contains_itself,
        without_bytes=max((found.without_bytes(record, space) for record, space in found.records), default=0),
        takes_no_bytes=not found.takes_bytes(parsed, ""),
        is_raw=kind == "bytes",
    )


def _is_named(schema: ComplexSchema) -> bool:
    """A name of anything else means nothing."""
    return "name" in schema and schema.get("type") in NAMED


def _full_name(schema: ComplexSchema, space: str) -> tuple[str, str]:
    """The full name of a named type, and the namespace inside it."""
    name = schema["name"]
    space = name.rpartition(".")[0] if "." in name else schema.get("namespace", space)
    short = name.rpartition(".")[2]
    return (f"{space}.{short}" if space else short), space


def _name(schema: AvroSchema, space: str, named: NamedSchemas) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _name(branch, space, named)
    elif isinstance(schema, dict):
        inside = space
        if _is_named(schema):
            full, inside = _full_name(schema, space)
            named.setdefault(full, schema)
        for inner in _parts(schema):
            _name(inner, inside, named)


def _parts(schema: ComplexSchema) -> Iterator[AvroSchema]:
    yield from (field["type"] for field in schema.get("fields", ()))
    yield from (schema[part] for part in ("items", "values") if part in schema)
    if isinstance(schema.get("type"), (dict, list)):
        yield schema["type"]


@dataclass(slots=True)
class _Schemas:
    """A writer's named schemas, and what is known of those that were looked at, by their full names."""

    named: NamedSchemas
    arrays: list[tuple[AvroSchema, str]] = field(default_factory=list)
    """The items of all arrays, each with the namespace around it."""
    records: list[tuple[AvroSchema, str]] = field(default_factory=list)
    _contain_themselves: dict[str, bool] = field(default_factory=dict)
    _take_bytes: dict[str, bool] = field(default_factory=dict)
    _without_bytes: dict[str, int] = field(default_factory=dict)

    def walk(self, schema: AvroSchema, space: str, inside: tuple[str, ...]) -> bool:
        """True if it contains itself; gathers its arrays and records."""
        if isinstance(schema, list):
            found = [self.walk(branch, space, inside) for branch in schema]
            return any(found)
        if isinstance(schema, str):
            known = self._known(schema, space)
            return False if known is None else self.walk(known, space, inside)
        if "items" in schema:
            self.arrays.append((schema["items"], space))
        if not _is_named(schema):
            found = [self.walk(part, space, inside) for part in _parts(schema)]
            return any(found)
        full, within = _full_name(schema, space)
        if full in inside:
            return True
        if full not in self._contain_themselves:
            if "fields" in schema:
                self.records.append((schema, space))
            found = [self.walk(part, within, (*inside, full)) for part in _parts(schema)]
            self._contain_themselves[full] = any(found)
        return self._contain_themselves[full]

    def takes_bytes(self, schema: AvroSchema, space: str) -> bool:
        if isinstance(schema, list):
            return True  # which branch it is
        if isinstance(schema, str):
            known = self._known(schema, space)
            return schema != "null" if known is None else self.takes_bytes(known, space)
        if "fields" in schema:
            full, space = _full_name(schema, space)
            if full not in self._take_bytes:
                self._take_bytes[full] = True  # within itself
                self._take_bytes[full] = any(self.takes_bytes(part["type"], space) for part in schema["fields"])
            return self._take_bytes[full]
        if schema["type"] == "fixed":
            return bool(schema["size"])
        return True if schema["type"] in ("array", "map", "enum") else self.takes_bytes(schema["type"], space)

    def without_bytes(self, schema: AvroSchema, space: str) -> int:
        """How many of the values in one of this schema, itself included, take no bytes. Those in arrays, maps and unions come
        with bytes that say so, and are records of their own here."""
        if isinstance(schema, list):
            return 0
        if isinstance(schema, str):
            known = self._known(schema, space)
            return int(schema == "null") if known is None else self.without_bytes(known, space)
        own = int(not self.takes_bytes(schema, space))
        if "fields" in schema:
            full, space = _full_name(schema, space)
            if full not in self._without_bytes:
                self._without_bytes[full] = 0  # within itself
                self._without_bytes[full] = own + sum(self.without_bytes(part["type"], space) for part in schema["fields"])
            return self._without_bytes[full]
        if schema["type"] in ("array", "map", "enum", "fixed"):
            return own
        return self.without_bytes(schema["type"], space)

    def _known(self, name: str, space: str) -> AvroSchema | None:
        if name in _PRIMITIVES:
            return None
        return self.named.get(f"{space}.{name}" if space and "." not in name else name, self.named.get(name))
