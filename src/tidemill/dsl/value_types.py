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
