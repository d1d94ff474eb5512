"""Writers' Avro schemas that bound the size of decoded values by the number of bytes.

Decides that an array's items must take bytes, since a count alone would make as many items as it says, and that a record which
contains itself is read from few bytes only, since each level takes stack. The reader's own schema is no bound: what it lacks is
read past with the writer's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

MAX_NESTED_BYTES = 4_000
"""Limit of a value whose schema contains itself: its levels are no more than its bytes."""
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
    """``endless_array``: the items of an array that take no bytes, as JSON; empty if there are none."""

    endless_array: str
    contains_itself: bool
    takes_no_bytes: bool = False
    is_raw: bool = False
    """True of ``bytes`` and nothing else, which are written without their length."""

    def why_not(self, size: int) -> str:
        """Why ``size`` bytes are not read; empty if they are."""
        if self.endless_array:
            items = self.endless_array[:80]
            return f"the writer's schema has an array of {items}, which takes no bytes: nothing bounds how many there are"
        if self.contains_itself and size > MAX_NESTED_BYTES:
            return f"the writer's schema contains itself, of which at most {MAX_NESTED_BYTES} bytes are read, found {size}"
        return ""


def bounds_of(schema: str, referenced: Iterable[str] = ()) -> AvroBounds:
    """The bounds of a writer's schema; ``referenced``: the schemas that it refers to by name, their own references first."""
    named: NamedSchemas = {}
    parsed = json.loads(schema) if schema.lstrip()[:1] in ('"', "{", "[") else schema
    for one in (*map(json.loads, referenced), parsed):
        _name(one, "", named)
    arrays: list[tuple[AvroSchema, str]] = []
    contains_itself = _walk(parsed, "", named, (), arrays)
    endless = next((items for items, space in arrays if not _takes_bytes(items, space, named, ())), None)
    kind = parsed.get("type") if isinstance(parsed, dict) else parsed
    return AvroBounds(
        "" if endless is None else json.dumps(endless),
        contains_itself,
        takes_no_bytes=not _takes_bytes(parsed, "", named, ()),
        is_raw=kind == "bytes",
    )


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
        if "name" in schema:
            full, inside = _full_name(schema, space)
            named.setdefault(full, schema)
        for inner in _parts(schema):
            _name(inner, inside, named)


def _parts(schema: ComplexSchema) -> Iterator[AvroSchema]:
    yield from (field["type"] for field in schema.get("fields", ()))
    yield from (schema[part] for part in ("items", "values") if part in schema)
    if isinstance(schema.get("type"), (dict, list)):
        yield schema["type"]


def _found(name: str, space: str, named: NamedSchemas) -> AvroSchema | None:
    return named.get(f"{space}.{name}" if space and "." not in name else name, named.get(name))


def _walk(
    schema: AvroSchema, space: str, named: NamedSchemas, inside: tuple[str, ...], arrays: list[tuple[AvroSchema, str]]
) -> bool:
    """True if it contains itself; gathers the items of its arrays, each with the namespace around it."""
    if isinstance(schema, list):
        found = [_walk(branch, space, named, inside, arrays) for branch in schema]
        return any(found)
    if isinstance(schema, str):
        known = None if schema in _PRIMITIVES else _found(schema, space, named)
        return False if known is None else _walk(known, space, named, inside, arrays)
    if "name" in schema:
        full, space = _full_name(schema, space)
        if full in inside:
            return True
        inside = (*inside, full)
    if "items" in schema:
        arrays.append((schema["items"], space))
    found = [_walk(part, space, named, inside, arrays) for part in _parts(schema)]
    return any(found)


def _takes_bytes(schema: AvroSchema, space: str, named: NamedSchemas, inside: tuple[str, ...]) -> bool:
    if isinstance(schema, list):
        return True  # which branch it is
    if isinstance(schema, str):
        known = None if schema in _PRIMITIVES else _found(schema, space, named)
        return schema != "null" if known is None else _takes_bytes(known, space, named, inside)
    if "fields" in schema:
        full, space = _full_name(schema, space)
        if full in inside:
            return True
        return any(_takes_bytes(field["type"], space, named, (*inside, full)) for field in schema["fields"])
    if schema["type"] == "fixed":
        return bool(schema["size"])
    return True if schema["type"] in ("array", "map", "enum") else _takes_bytes(schema["type"], space, named, inside)
