"""Functions that share a variable, as those of a loop do: Python looks it up when they are called, so all get its last value.

Finds the functions of an operator and the variables that they use. Calls none of them.
"""

from __future__ import annotations

import dis
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType

from tidemill.errors import TopologyError

Variables = Mapping[str, tuple[object, object]]
"""By name, what holds a variable (a cell, or the globals of a module) and its value."""
_PACKAGE = __name__.partition(".")[0]
_LONGEST = 60


class GivenFunctions:
    """The functions that a program has given so far, with their variables as they were."""

    def __init__(self) -> None:
        self._variables: dict[CodeType, Variables] = {}

    def take(self, node: str, part: object, known: Collection[FunctionType] = ()) -> None:
        """Takes the functions of an operator, or of a part of one, but for those that are ``known``.

        Raises:
            TopologyError: one was given before, when a variable of it had another value.
        """
        for function in functions_of(part):
            if function not in known:
                before, now = self._variables.get(function.__code__, {}), variables_of(function)
                _refuse_last_value(node, function.__code__, before, now)
                self._variables[function.__code__] = now


def functions_of(part: object) -> Iterator[FunctionType]:
    """The functions of a program in an operator, or in a part of one."""
    if isinstance(part, FunctionType):
        yield part
    elif isinstance(part, tuple):
        for each in part:
            yield from functions_of(each)
    elif is_dataclass(part) and type(part).__module__.partition(".")[0] == _PACKAGE:
        for field in fields(part):
            yield from functions_of(getattr(part, field.name))


def variables_of(function: FunctionType) -> Variables:
    """The variables around a function that it uses, those that have a value."""
    found: dict[str, tuple[object, object]] = {}
    for name in _globals_in(function.__code__):
        if name in function.__globals__:
            found[name] = (function.__globals__, function.__globals__[name])
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it has no value yet, as a function that is defined below
            found[name] = (cell, cell.cell_contents)
    return found


def _globals_in(code: CodeType) -> set[str]:
    names = {str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return names.union(*(_globals_in(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _refuse_last_value(node: str, code: CodeType, before: Variables, now: Variables) -> None:
    for name, (holder, value) in now.items():
        held, was = before.get(name, (None, None))
        if held is holder and not _are_equal(was, value):
            raise TopologyError(
                f"{node} ({code.co_filename}, line {code.co_firstlineno}): the function uses {name}, which is"
                f" {_shown(value)} now and was {_shown(was)} when the same function was given to another operator."
                " Python looks a variable up when the function is called, so both would get its last value: keep the"
                f" value in a default argument, {name}={name}, as in lambda value, {name}={name}: ..."
            )


def _are_equal(one: object, other: object) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # of the program's values: a Column has no truth, an array several
        return False


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
