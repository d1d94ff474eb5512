"""Avro schemas as types: the Spark type of each, and its text with all names in full.

Decides the types: records are structs, unions with null the other type, enums text, ``fixed`` binary. Logical types of time are
read as the numbers they are written as (ms or us since 1970, days), so that they mean the same in the JVM and in Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    if not isinstance(schema, str):
        found = type(schema).__name__
        raise TopologyError(f"avro: expected the schema's JSON text, got a {found}; read the file, or write json.dumps(...)")
    try:
        ddl = _ddl(parsed(schema), {}, ())
        _check_with_fastavro(schema)
    except TopologyError:
        raise
    except ImportError as missing:
        raise ConfigError(f"avro: {missing}; pip install tidemill[registry]") from None
    except json.JSONDecodeError as error:
        raise TopologyError(f"avro: the schema is not JSON text: {error}; of a file give what is in it") from None
    except Exception as error:
        raise TopologyError(f"avro: the schema can't be read: {type(error).__name__}: {error}") from None
    return ddl


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
    found = parsed(schema)
    if isinstance(found, list):
        found = next(branch for branch in found if branch != "null")
    return str(found.get("name") or found.get("type")) if isinstance(found, dict) else str(found)


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
    kind, found = schema.get("type"), schema.copy()
    if kind in NAMED:
        name = _full(str(schema.get("name")), str(schema.get("namespace", space)))
        found["name"], space = name, name.rpartition(".")[0]
    if kind in RECORDS:
        found["fields"] = [{**each, "type": _with_full_names(each["type"], space)} for each in schema.get("fields", ())]
    elif kind == "array":
        found["items"] = _with_full_names(schema["items"], space)
    elif kind == "map":
        found["values"] = _with_full_names(schema["values"], space)
    elif kind not in NAMED:
        found["type"] = _with_full_names(schema["type"], space)
    return found


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


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
                f"avro: a list of the types {', '.join(names)}, as some .avsc files are, has no Spark type; give one schema, "
                "with the full ones of others where it uses them first"
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
        raise TopologyError(f"avro: the decimal {json.dumps(schema)} has no Spark type here; use a string or a double")
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
