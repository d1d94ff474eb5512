"""Public functions say what they take: no parameter is a function of anything that gives anything."""

from __future__ import annotations

import collections.abc
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidemill
import tidemill.testing


class _NamesOf(dict[str, object]):
    """The names that a function's annotations may use; one that is imported for type checkers only stands for any class."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(vars(sys.modules["builtins"]) | vars(sys.modules[function.__module__]))

    def __missing__(self, name: str) -> object:
        if name.startswith("__"):  # pytest asks a frame's names for its own
            raise KeyError(name)
        return type(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})


def _callables(hint: Any) -> Iterator[Any]:
    """Each ``Callable`` in a type."""
    if collections.abc.Callable in (hint, typing.get_origin(hint)):
        yield hint
    for inner in typing.get_args(hint):
        for each in inner if isinstance(inner, list) else (inner,):
            yield from _callables(each)


def _functions_of(name: str, exported: object) -> Iterator[tuple[str, Callable[..., object]]]:
    if inspect.isfunction(exported):
        yield name, exported
    for member, what in vars(exported).items() if isinstance(exported, type) else ():
        function = what.fget if isinstance(what, property) else getattr(what, "__func__", what)
        if inspect.isfunction(function) and (member == "__init__" or not member.startswith("_")):
            yield f"{name}.{member}", function


def _types_of_arguments() -> Iterator[tuple[str, Any]]:
    """(function, Callable) for each function that a public function or method takes or gives."""
    for module in (tidemill, tidemill.testing):
        for exported in module.__all__:
            for name, function in _functions_of(exported, getattr(module, exported)):
                for hint in typing.get_type_hints(function, localns=_NamesOf(function)).values():
                    yield from ((name, found) for found in _callables(hint))


def _is_vague(hint: Any) -> bool:
    arguments, result = typing.get_args(hint) or (..., Any)
    return arguments is ... and result is Any


def test_no_public_function_takes_a_function_of_anything() -> None:
    seen = list(_types_of_arguments())
    assert {name for name, _ in seen} >= {"KStream.map_values", "KTable.join", "StreamsBuilder.stream", "per_record"}
    assert [name for name, found in seen if _is_vague(found)] == []


@pytest.mark.parametrize("hint", [Callable[..., Any], Callable])
def test_a_function_of_anything_is_seen(hint: Any) -> None:
    def taking(function: hint | None) -> None: ...  # type: ignore[valid-type]

    [found] = _callables(typing.get_type_hints(taking, localns={"hint": hint})["function"])
    assert _is_vague(found)


def test_types_of_functions_are_kafkas() -> None:
    assert typing.get_args(tidemill.Reducer) == ([Any, Any], object)
    assert typing.get_args(tidemill.ValueMapperWithKey) == (["Column", "Column"], object)
