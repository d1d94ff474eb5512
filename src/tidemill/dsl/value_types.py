"""Types of values in the errors of serdes: a type's name, and what a function writes to have a value that the serde takes."""

from __future__ import annotations

from typing import Any


def type_name(value: Any) -> str:
    """The name of its type, with the module of one that is not Python's own: numpy's bool is another one."""
    found = type(value)
    return found.__qualname__ if found.__module__ == "builtins" else f"{found.__module__}.{found.__qualname__}"


def as_python(value: Any) -> str:
    """The code that makes a Python value of a numpy value; empty for other values."""
    if type(value).__module__ != "numpy":
        return ""
    return "value.tolist()" if getattr(value, "ndim", 0) else "value.item()"


def as_json(value: Any) -> str:
    """The code that makes a value with a form in JSON, in place of one without."""
    if isinstance(value, (set, frozenset, range)):
        return "list(value)"
    if hasattr(value, "isoformat"):
        return "value.isoformat()"
    return as_python(value) or "text or a number"


def written_as(value: Any, sql_type: str) -> str:
    """The code that makes a value of a Spark type of one of another type; empty where there is no usual one."""
    if found := as_python(value):
        return found
    name, kind = type(value).__name__, sql_type.partition("<")[0].partition("(")[0]
    if name in ("NAType", "NaTType"):
        return "None"
    if kind == "map" and isinstance(value, (list, tuple)) and all(isinstance(each, tuple) and len(each) == 2 for each in value):
        return "dict(value), or of pyarrow to_pylist(maps_as_pydicts='strict')"
    if kind == "array" and isinstance(value, (set, frozenset, range)):
        return "list(value)"
    return next((made for types, kinds, made in _CONVERSIONS if name in types and kind in kinds), "")


_WHOLE = ("tinyint", "smallint", "int", "bigint")
_CONVERSIONS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("datetime", "Timestamp"), ("date",), "value.date()"),
    (("str",), ("date",), "date.fromisoformat(value)"),
    (("str",), ("timestamp", "timestamp_ntz"), "datetime.fromisoformat(value)"),
    (("date",), ("timestamp",), "datetime.combine(value, time(), timezone.utc)"),
    (("date",), ("timestamp_ntz",), "datetime.combine(value, time())"),
    (("int",), ("timestamp",), "datetime.fromtimestamp(value, timezone.utc), of ms value / 1000"),
    (("float",), _WHOLE, 'int(value), of a column of pandas astype("Int64")'),
    (("Decimal", "str", "bool"), _WHOLE, "int(value)"),
    (("Decimal", "str", "bool"), ("double", "float"), "float(value)"),
    (("float",), ("decimal",), "Decimal(str(value))"),
    (("str",), ("decimal",), "Decimal(value)"),
    (("int", "float", "Decimal"), ("string",), "str(value)"),
    (("date", "datetime", "Timestamp"), ("string",), "value.isoformat()"),
    (("bytes", "bytearray"), ("string",), "value.decode()"),
    (("str",), ("binary",), "value.encode()"),
)
"""Names of types, Spark types, and the code that converts one of the first to one of the second."""
