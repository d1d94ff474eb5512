"""Avro schemas as types: the Spark type of each, its text with all names in full, and one of several types in a text.

Decides the types: records are structs, unions with null the other type, enums text, ``fixed`` binary. Logical types of time are
read as the numbers they are written as (ms or us since 1970, days), so that they mean the same in the JVM and in Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache

from tidemill.errors import ConfigError, TopologyError
from tidemill.schema_registry.avro_bounds import NAMED, RECORDS, AvroSchema, ComplexSchema, NamedSchemas
from tidemill.topology.values import Value

_SCALARS = {
    "string": "string", "bytes": "binary", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "boolean": "boolean",
}  # fmt: skip


def ddl_of(schema: str) -> str:
    """The Spark type of an Avro schema, as DDL text.

    Raises:
        TopologyError: it has none, or is no schema.
        ConfigError: the packages for it are not installed.
    """

    def found() -> str:
        ddl = _ddl(parsed(schema), {}, ())
        _check_with_fastavro(schema)
        return ddl

    return _of_text(schema, found)


def type_named(schema: str, name: str) -> str:
    """The schema of one of the types in ``schema``, by its full name or the last part of it; those that it uses stand in full
    where it uses them first, wherever they are in ``schema``.

    Raises:
        TopologyError: there is none, or are several, or it is no schema.
    """

    def found() -> str:
        types: NamedSchemas = {}
        _gather(parsed(schema), types)
        named = [name] if name in types else [full for full in types if full.rpartition(".")[2] == name]
        if len(named) != 1:
            several = f"several types named {name!r}; give the full name" if named else f"no type {name!r}"
            raise TopologyError(f"avro: the schema has {several}; its types are {', '.join(named or types) or 'without names'}")
        return json.dumps(_in_full(named[0], types, set()))

    return _of_text(schema, found)


def _of_text(schema: str, found: Callable[[], str]) -> str:
    """The result of ``found``, which reads the schema's text.

    Raises:
        TopologyError: the schema is no text, or can't be read; with what to write.
        ConfigError: the packages for it are not installed.
    """
    if not isinstance(schema, str):
        given = type(schema).__name__
        raise TopologyError(f"avro: expected the schema's JSON text, got a {given}; read the file, or write json.dumps(...)")
    try:
        return found()
    except TopologyError:
        raise
    except ImportError as missing:
        raise ConfigError(f"avro: {missing}; pip install tidemill[registry]") from None
    except json.JSONDecodeError as error:
        raise TopologyError(f"avro: the schema is not JSON text: {error}; of a file give what is in it") from None
    except Exception as error:
        raise TopologyError(f"avro: the schema can't be read: {type(error).__name__}: {error}") from None


@cache
def parsed(schema: str) -> AvroSchema:
    return _with_full_names(json.loads(schema), "")


@cache
def named_in(schema: str) -> NamedSchemas:
    """The types with a name, wherever in the schema they are."""
    found: NamedSchemas = {}
    _ddl(parsed(schema), found, ())
    return found


def subject_of(schema: str) -> str:
    """The name under which the registry has it (RecordNameStrategy)."""
    found = _not_null(parsed(schema))
    return str(found.get("name") or found.get("type")) if isinstance(found, dict) else str(found)


def record_of(schema: str) -> str:
    """The full name of the record that it is; empty if it is another type."""
    found = _not_null(parsed(schema))
    return found["name"] if isinstance(found, dict) and found.get("type") in RECORDS else ""


def _not_null(schema: AvroSchema) -> AvroSchema:
    return next((branch for branch in schema if branch != "null"), "null") if isinstance(schema, list) else schema


@cache
def of_fastavro(schema: str) -> Value:
    from fastavro import parse_schema

    return parse_schema(json.loads(schema))


def _check_with_fastavro(schema: str) -> None:
    """An exception for what it refuses, which would else be found when records are read."""
    from fastavro.schema import expand_schema

    expand_schema(of_fastavro(schema))


def _with_full_names(schema: AvroSchema, space: str) -> AvroSchema:
    """A schema in which every name, and every mention of one, has its namespace: its own, or that of what it is in."""
    if isinstance(schema, str):
        return schema if schema == "null" or schema in _SCALARS else _full(schema, space)
    if isinstance(schema, list):
        return [_with_full_names(branch, space) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    named = schema.copy()
    if schema.get("type") in NAMED:
        name = _full(str(schema.get("name")), str(schema.get("namespace", space)))
        named["name"], space = name, name.rpartition(".")[0]
    return _inner(named, lambda part: _with_full_names(part, space))


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _inner(schema: ComplexSchema, change: Callable[[AvroSchema], AvroSchema]) -> ComplexSchema:
    """A schema with others in place of those in it."""
    found, kind = schema.copy(), schema.get("type")
    if kind in RECORDS:
        found["fields"] = [{**each, "type": change(each["type"])} for each in schema.get("fields", ())]
    elif kind == "array":
        found["items"] = change(schema["items"])
    elif kind == "map":
        found["values"] = change(schema["values"])
    elif kind not in NAMED:
        found["type"] = change(schema["type"])
    return found


def _gather(schema: AvroSchema, types: NamedSchemas) -> AvroSchema:
    """Adds the types with a name; TopologyError for two with one."""
    if isinstance(schema, list):
        return [_gather(branch, types) for branch in schema]
    if isinstance(schema, str):
        return schema
    if schema.get("type") in NAMED and types.setdefault(schema["name"], schema) != schema:
        raise TopologyError(f"avro: the schema has two different types named {schema['name']}; give one of them another name")
    return _inner(schema, lambda part: _gather(part, types))


def _in_full(schema: AvroSchema, types: NamedSchemas, written: set[str]) -> AvroSchema:
    """A schema in which each type stands where it is used first, and its name afterwards (``written``)."""
    if isinstance(schema, list):
        return [_in_full(branch, types, written) for branch in schema]
    if isinstance(schema, str):
        if schema not in types or schema in written:
            return schema
        return _in_full(types[schema], types, written)
    if schema.get("type") in NAMED:
        if schema["name"] in written:
            return schema["name"]
        written.add(schema["name"])
    return _inner(schema, lambda part: _in_full(part, types, written))


def _ddl(schema: AvroSchema | None, named: NamedSchemas, inside: tuple[str, ...]) -> str:
    if isinstance(schema, str):
        if schema in _SCALARS:
            return _SCALARS[schema]
        if schema in named:
            return _ddl(named[schema], named, inside)
        raise TopologyError(
            f"avro: unknown type {schema!r}; expected one of {', '.join(_SCALARS)} or a type named before: write its schema "
            "in full instead of its name where it is used first"
        )
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        names = [str(one.get("name")) for one in others if isinstance(one, Mapping) and one.get("type") in NAMED]
        if len(others) == len(names) > 1:
            raise TopologyError(
                f"avro: a list of the types {', '.join(names)}, as some .avsc files are, has no Spark type; give the name of the "
                f"topic's, such as avro(schema, name={names[-1]!r})"
            )
        if len(others) != 1:
            raise TopologyError(f"avro: the union {json.dumps(schema)} has no Spark type; only unions of null and one type have")
        return _ddl(others[0], named, inside)
    if not isinstance(schema, Mapping):
        raise TopologyError(f"avro: {schema!r} is not a schema")
    return _complex_ddl(schema, named, inside)


def _complex_ddl(schema: ComplexSchema, named: NamedSchemas, inside: tuple[str, ...]) -> str:
    kind, name = schema.get("type"), schema.get("name")
    if isinstance(kind, (dict, list)):
        raise TopologyError(f"avro: {json.dumps(schema)} has a schema as its type, expected the name of one; write the inner one")
    if name and name in inside:
        raise TopologyError(f"avro: the record {name} contains itself, and so has no Spark type")
    if name:
        named[name] = schema
    if schema.get("logicalType") == "decimal":
        raise TopologyError(
            f"avro: the decimal {json.dumps(schema)} has no Spark type here: leave its logicalType out of the program's schema, "
            "which then reads and writes the number's bytes (int.from_bytes(value, 'big', signed=True), in units of "
            f"10^-{schema.get('scale', 0)}), or, in a topic of your own, use a string or a double"
        )
    if kind in RECORDS:
        names = [f["name"] for f in schema.get("fields", ())]
        if not names:
            raise TopologyError(f"avro: the record {name} has no fields, and so no Spark type")
        if len(set(names)) < len(names):
            raise TopologyError(f"avro: the record {name} has two fields of one name: {', '.join(names)}")
        fields = [f"`{f['name']}`:{_ddl(f['type'], named, (*inside, str(name)))}" for f in schema["fields"]]
        return f"struct<{','.join(fields)}>"
    if kind == "enum":
        return "string"
    if kind == "fixed":
        return "binary"
    if kind == "array":
        return f"array<{_ddl(schema['items'], named, inside)}>"
    if kind == "map":
        return f"map<string,{_ddl(schema['values'], named, inside)}>"
    return _ddl(kind, named, inside)
