"""What functools and typing make of a program's functions and classes reaches the workers, wherever the program is."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle

from tidemill.spark.plan.reducers import register_reducers
from tidemill.spark.plan.sendable import problem_of_sending

PROGRAM = """
import functools, typing

CALLS = []

@functools.cache
def client():
    CALLS.append("made")
    return object()

@functools.lru_cache(maxsize=2, typed=True)
def factorial(n):
    return n * factorial(n - 1) if n else 1

@functools.singledispatch
def kind(value):
    return "any"

@kind.register
def _(value: str):
    return "text"

class Customer:
    def __init__(self, name):
        self.name = name

    @functools.cached_property
    def upper(self):
        CALLS.append("upper")
        return self.name.upper()

    @functools.lru_cache
    def twice(self):
        CALLS.append("twice")
        return self.name * 2

    @functools.singledispatchmethod
    def of(self, value):
        return "any"

    @of.register
    def _(self, value: int):
        return "number"

Number = typing.NewType("Number", int)
P = typing.ParamSpec("P")

def traced(function: typing.Callable[P, str]) -> typing.Callable[P, str]:
    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> str:
        return function(*arguments, **named)
    return call

@traced
def plain(value):
    return f"plain {value}"

def cached():
    return client() is client(), factorial(5), factorial.cache_parameters(), list(CALLS)

def dispatched():
    return kind("a"), kind(1), Customer("a").of(1), Customer("a").of("b")

def of_a_class():
    one = Customer("ada")
    return one.upper, one.upper, one.twice(), one.twice(), list(CALLS)

def typed():
    return Number(5), Number.__name__, Number.__supertype__, plain(1)

FUNCTIONS = [cached, dispatched, of_a_class, typed]
"""
AS_MAIN = f"""{PROGRAM}
import sys
from pyspark import cloudpickle
from tidemill.spark.plan.reducers import register_reducers
register_reducers()
sys.stdout.buffer.write(cloudpickle.dumps(FUNCTIONS))
"""
AS_APPLICATION = f"""
import sys, types
from tidemill.application_module import MODULE_NAME
module = sys.modules[MODULE_NAME] = types.ModuleType(MODULE_NAME)
exec({PROGRAM!r}, module.__dict__)
del sys.modules[MODULE_NAME]
from pyspark import cloudpickle
from tidemill.spark.plan.reducers import register_reducers
register_reducers()
sys.stdout.buffer.write(cloudpickle.dumps(module.FUNCTIONS))
"""


@pytest.mark.parametrize("script", [AS_MAIN, AS_APPLICATION], ids=["main program", "application file"])
def test_what_the_library_makes_of_functions_is_made_again_where_they_are_sent(script: str) -> None:
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=120)
    cached, dispatched, of_a_class, typed = (function() for function in pickle.loads(run.stdout))
    assert cached == (True, 120, {"maxsize": 2, "typed": True}, ["made"])
    assert dispatched == ("text", "any", "number", "any")
    assert of_a_class == ("ADA", "ADA", "adaada", "adaada", ["made", "upper", "twice"])
    assert typed == (5, "Number", int, "plain 1")


def test_a_program_with_a_cache_is_not_refused() -> None:
    program = ModuleType("program_that_no_worker_has")
    exec(PROGRAM, program.__dict__)
    assert problem_of_sending(program.cached) is None


def test_what_a_worker_can_import_is_the_module_s_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kept_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    program = import_module("kept_program")
    register_reducers()
    names = ("client", "factorial", "Number", "P", "kind")
    sent = cloudpickle.dumps([getattr(program, name) for name in names])
    assert len(sent) < 300
    assert pickle.loads(sent) == [getattr(program, name) for name in names]
    monkeypatch.delitem(sys.modules, "kept_program")
