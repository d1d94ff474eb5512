"""Messages for failures of users' functions of Python values: what the function has raised, or what it did wrong."""

from __future__ import annotations

import re
import traceback

from tidemill.errors import SerdeError, TidemillError, TopologyError
from tidemill.operators.record import OF_A_DATETIME, TIMES_ARE_MS
from tidemill.printable import said_by
from tidemill.spellings import signature_of

_MADE_COLUMNS = (
    "it is called with Python values, not Columns, and has called a function of PySpark, which makes Columns: compute with "
    "Python there, or pass the function to an operator that takes Columns; to reduce as of_columns(f) (docs/how-to/columns.md)"
)
"""Instead of PySpark's own sentence: an assertion without any, or the advice to create a session."""

_CALLED_VALUE = re.compile("'(NoneType|bool|bytes|dict|float|int|list|str|tuple|RecordMetadata|TaskId)' object is not callable")

_MISFIT = re.compile(r"(\w+)\.(\w+)\(\) (?:takes|missing|got) .*argument.*", re.DOTALL)
"""Python's own sentence about a call: the class, and its method."""
_PLACES = {
    "key": "a pair is a tuple (key, value): write [0]",
    "value": "a pair is a tuple (key, value): write [1]",
}
_OF_HEADERS = ("add", "append", "extend", "insert", "lastHeader", "last_header", "remove", "toArray")
_UNSETTABLE = re.compile("can't set attribute|property '(key|value|timestamp|headers)' of '.*' object has no setter")
_COMPARED_TIME = re.compile("'[<>]=?' not supported between instances of .*'datetime.datetime'.*")
_VALUES = (bool, bytes, dict, float, int, list, str, type(None))
_OF_COLUMNS = (
    r"alias|asc|between|cast|contains|desc|dropFields|eqNullSafe|getField|getItem|ilike|isNaN|isNotNull|isNull|isin|like|"
    r"otherwise|over|rlike|substr|try_cast|withField"
)
"""Methods of PySpark's Columns."""
_answering: dict[str, type] = {}


def answer_calls_of(*classes: type) -> None:
    """Makes messages about calls of these classes with wrong arguments say which are expected. For classes that are called for
    each record: a wrapper around their methods, as ``Spelled`` has it, would cost too much."""
    _answering.update((each.__name__, each) for each in classes)


def says_where(problem: BaseException) -> bool:
    """True of the library's own errors, which name their place. What the user's functions and serdes raise must be given one; so
    must a SerdeError, and a TopologyError, with which the API refuses arguments that a function gave it."""
    return isinstance(problem, TidemillError) and not isinstance(problem, (SerdeError, TopologyError))


def function_failure(node: str, problem: BaseException, where: str = "") -> str:
    """Names the node, the exception's class and its text; ``where``: more about the place."""
    said = _MADE_COLUMNS if has_no_session(problem) else said_by(problem)
    return f"the function of {node} failed{where}: {type(problem).__name__}: {said}{instead_of(problem)}"


def instead_of(problem: BaseException) -> str:
    """What to write for ``value.name`` of a dict that has the key, for ``pair.key``, for ``record.value()``, since Java's objects
    are read so, for ``value.cast("int")``, and for a call with other arguments, as of Java's ``store.fetch(key, first, last)``;
    empty for other problems."""
    if isinstance(problem, AttributeError) and isinstance(problem.obj, dict) and problem.name in problem.obj:
        return f"; write [{problem.name!r}], or give the serde a class, as in Serdes.json(Class), for values with attributes"
    if isinstance(problem, AttributeError) and isinstance(problem.obj, tuple) and problem.name in _PLACES:
        return f"; {_PLACES[problem.name]}"
    if isinstance(problem, AttributeError) and isinstance(problem.obj, tuple) and problem.name in _OF_HEADERS:
        added = "record.with_headers([*record.headers, (name, value)]) is the record with one more"
        return f"; headers are a tuple of pairs, which stays as it is: {added}, record.header(name) reads one"
    if isinstance(problem, AttributeError) and _UNSETTABLE.fullmatch(said_by(problem)):
        return "; a record stays as it is: forward record.with_value(...), with_key, with_timestamp or with_headers"
    if isinstance(problem, AttributeError) and isinstance(problem.obj, _VALUES) and re.fullmatch(_OF_COLUMNS, problem.name or ""):
        called = "the function is called with Python values: compute with Python there"
        return f"; .{problem.name} is a method of Columns, but {called}"
    if isinstance(problem, TypeError) and (call := _MISFIT.fullmatch(said_by(problem))) and call[1] in _answering:
        return f"; expected {_taken_by(_answering[call[1]], call[2])}"
    if isinstance(problem, TypeError) and _COMPARED_TIME.fullmatch(said_by(problem)):
        return f"; {TIMES_ARE_MS}: {OF_A_DATETIME}"
    if isinstance(problem, TypeError) and _CALLED_VALUE.fullmatch(said_by(problem)):
        return "; what is a method in Java may be an attribute here: record.value, not record.value()"
    return ""


def _taken_by(cls: type, method: str) -> str:
    """The method's arguments, and those of methods for Java's overloads of it, whose names begin with its own."""
    if method == "__new__":
        return f"{cls.__name__}{signature_of(cls)}"
    longer = [each for each in vars(cls) if each.startswith(f"{method}_") and not each.endswith("_at")]  # those are of raw keys
    return ", or ".join(f"{name}{signature_of(getattr(cls, name))}" for name in (method, *longer))


def has_no_session(problem: BaseException) -> bool:
    """True if PySpark has raised it for want of a Spark session, which no worker has."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(problem.__traceback__)]
    is_told = isinstance(problem, AssertionError) or "SESSION_OR_CONTEXT_NOT_EXISTS" in said_by(problem)
    return is_told and bool(files) and re.search(r"[/\\]pyspark[/\\]sql[/\\]", files[-1]) is not None
