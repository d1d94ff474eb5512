"""Columns without a JVM: PySpark's own classes over objects that record what is asked of them.

PySpark's Column is a thin Python class over an object of the JVM. Here it gets one that takes every call and remembers it, so a
function of Columns runs as it will, refusals of PySpark's Python included, while nothing is computed and no session is started.
A Column that outlives this (a memo of the user's) is no trap: on the first use with a real JVM its calls are made there.

Decides what can't be recorded: a session, which would have to be started. ``Undecided`` then, and no mistake is reported.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from pyspark import SparkContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.udf import UserDefinedFunction
from pyspark.sql.utils import is_remote

from tidemill.columns.without_pandas import import_test_helpers

_ARITHMETIC = {"plus": "+", "minus": "-", "multiply": "*", "divide": "/", "mod": "%"}
_NUMBERS_IN_LETTERS = {"nan", "inf", "infinity"}
_COLUMN_AS_TEXT = "Column<'"


class Undecided(Exception):  # noqa: N818  # no error of anybody: an answer
    """A function can't be judged without a session."""


class TextOfColumnError(TypeError):
    """The text of a Column, ``Column<'value'>``, was handed to Spark."""


class TextInArithmeticError(TypeError):
    """Text that is no number was added to a Column, multiplied with one ...; ``sign`` says which."""

    def __init__(self, sign: str) -> None:
        super().__init__(sign)
        self.sign = sign


def is_text_of_column(value: object) -> bool:
    """True of text that was made of a Column, by an f-string or ``str``."""
    return isinstance(value, str) and _COLUMN_AS_TEXT in value


def has_text_of_column(value: object) -> bool:
    """True also of an object of the JVM, such as the constant that ``F.lit`` made, whose own text has such text in it. What is
    recorded was looked at when it was."""
    return not isinstance(value, Recorded) and is_text_of_column(str(value).replace("\\'", "'"))


class Recorded:
    """An object of the JVM that is not there yet: an attribute (``name``) or a call (``arguments``) of another, or a root."""

    __slots__ = ("_arguments", "_name", "_owner", "_real")

    def __init__(
        self, owner: Recorded | Callable[[], object], name: str | None = None, arguments: tuple[object, ...] | None = None
    ) -> None:
        self._owner, self._name, self._arguments = owner, name, arguments
        self._real: Any = None

    def __getattr__(self, name: str) -> Recorded:
        if name.startswith("__") or name == "Java":  # what Python and py4j ask to learn what an object is
            raise AttributeError(name)
        return Recorded(self, name)

    def __call__(self, *arguments: object) -> Recorded | str:
        if self._name == "toString":
            return _text(self._owner)
        _check(self, arguments)
        return Recorded(self, None, arguments)

    def _get_object_id(self) -> object:
        """py4j's question for the id of an argument: made on the JVM that is there now."""
        return self._made()._get_object_id()

    def _made(self) -> Any:
        if self._real is None:
            if not isinstance(self._owner, Recorded):
                self._real = self._owner()
            elif self._name is not None:
                self._real = getattr(self._owner._made(), self._name)
            else:
                self._real = self._owner._made()(*(self._arguments or ()))
        return self._real


def _check(called: Recorded, arguments: tuple[object, ...]) -> None:
    if called._name != "as" and any(map(has_text_of_column, arguments)):
        raise TextOfColumnError
    sign = _ARITHMETIC.get(called._name or "")
    if sign is not None and any(_is_no_number(side) for side in (_literal(called._owner), *map(_literal, arguments))):
        raise TextInArithmeticError(sign)


def _literal(value: object) -> object:
    """The argument of ``F.lit``, where ``value`` is such a call."""
    if not isinstance(value, Recorded) or not isinstance(value._owner, Recorded) or value._owner._name != "lit":
        return value
    return value._arguments[0] if value._arguments else value


def _is_no_number(value: object) -> bool:
    """Text that Spark can make no number or time of. What has a digit may be one."""
    if not isinstance(value, str) or any(character.isdigit() for character in value):
        return False
    return value.strip().lstrip("+-").lower() not in _NUMBERS_IN_LETTERS


def _text(value: object) -> str:
    if not isinstance(value, Recorded):
        return str(value)
    called = value._owner if value._arguments is not None else None
    if not isinstance(called, Recorded):
        return value._name or "..."
    arguments = value._arguments or ()
    if called._name in ("col", "lit") and len(arguments) == 1:
        return str(arguments[0])
    of_column = isinstance(called._owner, Recorded) and called._owner._arguments is not None
    return f"{called._name}({', '.join(map(_text, ([called._owner] if of_column else []) + list(arguments)))})"


class _Context:
    """The part of a SparkContext that PySpark's functions use."""

    def __init__(self) -> None:
        self._jvm = Recorded(lambda: SparkContext._active_spark_context._jvm)  # type: ignore[union-attr]


class _Session:
    """The part of a session that ``cast`` to a type object uses."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._jsparkSession = Recorded(lambda: session()._jsparkSession)


def _no_session(*_: object, **__: object) -> NoReturn:
    raise Undecided("it wants a Spark session")


def _udf_called(udf: Any, *arguments: Any, **named: Any) -> Column:
    """The Column of a call of a UDF, which is left as it is: it would remember what it is in the JVM."""
    return ClassicColumn(Recorded(lambda: udf(*arguments, **named)._jc))


def _recorded_col(name: str) -> Column:
    return ClassicColumn(_Context()._jvm.org.apache.spark.sql.functions.col(name))


@contextlib.contextmanager
def recorded_columns() -> Iterator[Callable[[str], Column]]:
    """Within it functions of Columns can be called; gives what makes the Column of a name.

    With a session in this process only these Columns record what is done with them, and functions of PySpark make real ones of
    them: the session may be in use by other threads. Without one no other thread can start one meanwhile.

    Raises:
        Undecided: the process has a session of Spark Connect.
    """
    if is_remote():
        raise Undecided("a session of Spark Connect")
    import_test_helpers()
    with SparkContext._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if SparkContext._active_spark_context is not None:
            yield _recorded_col
            return
        original = SparkSession._getActiveSessionOrCreate
        session = _Session(original)
        replaced = [
            (SparkContext, "_active_spark_context", _Context()),
            (SparkContext, "_ensure_initialized", _no_session),
            (SparkSession, "_getActiveSessionOrCreate", staticmethod(lambda **_: session)),
            (SparkSession, "getActiveSession", staticmethod(lambda: None)),
            (SparkSession.Builder, "getOrCreate", _no_session),
            (UserDefinedFunction, "__call__", _udf_called),
        ]
        before = [(owner, name, owner.__dict__[name]) for owner, name, _ in replaced]
        try:
            for owner, name, stand_in in replaced:
                setattr(owner, name, stand_in)
            yield F.col
        finally:
            for owner, name, attribute in before:
                setattr(owner, name, attribute)
