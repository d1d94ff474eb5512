"""Conversion between JSON documents of other instances and frozen dataclasses.

Decides which documents are taken: those in which every field is there and of its type. A field with a default may be missing,
members that are no field are left out, and whole numbers have at most 64 bits. A refusal says what was found, and where.
Types that a field may have: ``str``, ``bool``, ``int``, ``float``, ``TaskId`` (its text), ``X | None``, ``tuple[X, ...]``,
``Mapping[str, X]`` and dataclasses of such fields. A field ``from_`` is ``from`` in JSON.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import TypeVar, Union, get_args, get_origin, get_type_hints

from tidemill.ids import TaskId

_MOST = 1 << 63
_NO_JSON_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
T = TypeVar("T")


class UnreadableDocumentError(ValueError):
    """A document of another shape. The message says where, what was found and what was expected."""


def read_document(kind: type[T], found: object) -> T:
    """UnreadableDocumentError if ``found``, as ``json`` gives it, is no such document."""
    read = _read(kind, found, "")
    assert isinstance(read, kind)
    return read


def plain_document(value: object) -> dict[str, object]:
    """A dataclass as ``json`` takes it."""
    assert dataclasses.is_dataclass(value), value
    return {_name(field): to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def to_plain(value: object) -> object:
    """The value in types that ``json`` can write."""
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, TaskId)):
        return plain_document(value)
    if isinstance(value, Mapping):
        return {name: to_plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, TaskId):
        return [to_plain(inner) for inner in value]
    return str(value) if isinstance(value, TaskId) else value


def _read(kind: object, found: object, where: str) -> object:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        [inner] = [one for one in get_args(kind) if one is not type(None)]
        return None if found is None else _read(inner, found, where)
    if origin is tuple:
        inner = get_args(kind)[0]
        return tuple(_read(inner, one, f"{where}[{at}]") for at, one in enumerate(_of(list, found, where)))
    if origin is Mapping:
        inner = get_args(kind)[1]
        return {name: _read(inner, one, f"{where}.{name}") for name, one in _of(dict, found, where).items()}
    assert isinstance(kind, type), kind
    if kind is not TaskId and dataclasses.is_dataclass(kind):
        return _fields(kind, _of(dict, found, where), where)
    return _scalar(kind, found, where)


def _fields(kind: type, found: dict[str, object], where: str) -> object:
    values = {}
    for field, inner in _shape(kind):
        name = _name(field)
        if name in found:
            values[field.name] = _read(inner, found[name], f"{where}.{name}" if where else name)
        elif field.default is dataclasses.MISSING:
            raise UnreadableDocumentError(f"{where or 'the document'} has no {name}")
    return kind(**values)


@cache
def _shape(kind: type) -> tuple[tuple[dataclasses.Field[object], object], ...]:
    hints = get_type_hints(kind)
    return tuple((field, hints[field.name]) for field in dataclasses.fields(kind))


def _name(field: dataclasses.Field[object]) -> str:
    return field.name.removesuffix("_")


def _scalar(kind: type, found: object, where: str) -> object:
    if kind is TaskId:
        try:
            return TaskId.parse(_of(str, found, where))
        except ValueError:
            raise _refused(where, found, "a task's name such as 1_0") from None
    if kind is float:
        if isinstance(found, str) and found in _NO_JSON_NUMBERS:
            return _NO_JSON_NUMBERS[found]
        return found if isinstance(found, float) else _scalar(int, found, where)
    if kind is int and isinstance(found, int) and not isinstance(found, bool) and not -_MOST <= found < _MOST:
        raise _refused(where, "a number", "one of at most 64 bits")
    return _of(kind, found, where)


def _of(kind: type[T], found: object, where: str) -> T:
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise _refused(where, found, _EXPECTED[kind])
    return found


_EXPECTED: Mapping[type, str] = {str: "a text", bool: "true or false", int: "a whole number", list: "a list", dict: "an object"}


def _refused(where: str, found: object, expected: str) -> UnreadableDocumentError:
    if isinstance(found, (dict, list)):
        shown = "an object" if isinstance(found, dict) else "a list"
    else:
        shown = "null" if found is None else repr(found)[:40]
    return UnreadableDocumentError(f"{where or 'the document'} is {shown}, expected {expected}")
