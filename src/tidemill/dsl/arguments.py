"""Arguments of operators, checked: functions by their arguments, serdes, topics. Each refusal names the operator.

Looks at signatures only; no function of the user is called.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Sequence

from tidemill.config.values import KafkaExtractor, offset_reset
from tidemill.errors import TopologyError
from tidemill.topology.batch_operations import PerBatch, PerRecordAsync
from tidemill.topology.functions import JoinFunction, OfColumns, PerRecord, UserFunction
from tidemill.topology.naming import legal_name
from tidemill.topology.values import Serde

_SERDE_PARTS = ("name", "sql_type", "serialize", "deserialize")
_ROW_BY_ROW_UDFS = (100, 101)
"""PySpark's eval types of UDFs that get single values: pickled (SQL_BATCHED_UDF) and by Arrow."""

_OF_SEVERAL_RESULTS = ("flat_map", "flat_map_values")


def place_of_call() -> str:
    """File and line of the program's that called the operator, ``orders.py, line 12``; empty if no program did."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == __package__.partition(".")[0]:
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"


def function_of(
    function: UserFunction, expected: tuple[str, ...], operator: str, *, is_awaited: bool = False
) -> UserFunction:
    """``function`` if it can be called with these arguments, else TopologyError."""
    if not _accepts(_signature(function, expected, operator, is_awaited=is_awaited), len(expected)):
        raise _wrong_arguments(function, f"({', '.join(expected)})", operator)
    return function


def python_function(function: UserFunction, expected: tuple[str, ...], operator: str) -> UserFunction:
    """Like ``function_of``, for operators that call the function with Python values: a PySpark UDF gives the function inside it.

    A pandas or Arrow UDF, which works on whole batches, is refused.
    """
    if isinstance(function, PerRecord):
        function = function.function
    kind = getattr(function, "evalType", None)
    if kind is not None:
        if kind not in _ROW_BY_ROW_UDFS:
            raise TopologyError(
                f"{operator}: got a UDF of whole batches (eval type {kind}), expected a function that is called with one"
                " record at a time: give a plain Python function or an ordinary udf"
            )
        function = function.func  # type: ignore[attr-defined]
    return function_of(function, expected, operator)


def joiner_of(joiner: JoinFunction, operator: str) -> tuple[JoinFunction, bool]:
    """Like ``python_joiner``; also accepts a joiner of Columns."""
    return (joiner, _takes_three(joiner.function, operator)) if isinstance(joiner, OfColumns) else python_joiner(joiner, operator)


def python_joiner(joiner: UserFunction, operator: str) -> tuple[UserFunction, bool]:
    """A joiner of ``(left, right)`` or ``(key, left, right)``, called with Python values; and whether it takes the key."""
    takes_three = _takes_three(_inner(joiner), operator)
    return python_function(joiner, ("key", "left", "right") if takes_three else ("left", "right"), operator), takes_three


def takes_both_keys(joiner: JoinFunction, operator: str) -> bool:
    """True if a joiner with a global table is one of ``(stream key, selected key, left, right)`` (KIP-1340): it takes four
    arguments, and neither two nor three."""
    signature = _signature(_inner(joiner), ("left", "right"), operator)
    return _accepts(signature, 4) and not _accepts(signature, 2) and not _accepts(signature, 3)


def _inner(function: JoinFunction) -> UserFunction:
    """The function whose arguments count: that inside ``per_record``, ``of_columns`` or a UDF. A ``functools.partial`` has a
    ``func``, too, but is called as it is."""
    if isinstance(function, (PerRecord, OfColumns)):
        return function.function
    return function.func if hasattr(function, "evalType") else function  # type: ignore[attr-defined]


def _takes_three(inner: UserFunction, operator: str) -> bool:
    signature = _signature(inner, ("left", "right"), operator)
    takes_three = not _accepts(signature, 2)
    if takes_three and not _accepts(signature, 3):
        raise _wrong_arguments(inner, "(left, right) or (key, left, right)", operator)
    return takes_three


def python_value_function(function: UserFunction, operator: str) -> tuple[UserFunction, bool]:
    """A function of ``(value)`` or ``(key, value)``, called with Python values; and whether it takes the key."""
    with_key = takes_key(_inner(function), operator)
    return python_function(function, ("key", "value") if with_key else ("value",), operator), with_key


def supplier_of(supplier: UserFunction, operator: str) -> UserFunction:
    """``supplier`` if it can be called without arguments (a class is one), else TopologyError."""
    if not callable(supplier) and (hasattr(supplier, "process") or hasattr(supplier, "transform")):
        made = type(supplier).__name__
        raise TopologyError(
            f"{operator}: supplier: got a processor, expected what makes one, since each task has its own: give {made} itself, "
            f"or lambda: {made}(...)"
        )
    if not callable(supplier) and callable(getattr(supplier, "get", None)):
        brought = ", and its stores behind it" if hasattr(supplier, "stores") else ""
        raise TopologyError(
            f"{operator}: supplier: got an object with get(), expected what makes a processor: give its get{brought}"
        )
    return function_of(supplier, (), f"{operator}: supplier")


def takes_key(function: UserFunction, operator: str, *, is_awaited: bool = False) -> bool:
    """True if a function of values wants the key too: it needs two arguments, or can't take only one."""
    signature = _signature(function, ("value",), operator, is_awaited=is_awaited)
    if _accepts(signature, 1):
        return False
    if not _accepts(signature, 2):
        raise _wrong_arguments(function, "(value) or (key, value)", operator)
    return True


def names_of(given: Sequence[object], what: str) -> tuple[str, ...]:
    """Names, each once. TopologyError for what is none, such as a list of them."""
    wrong = [each for each in given if not isinstance(each, str)]
    if wrong:
        raise TopologyError(f"{what}: expected names, each as an argument of its own, got {wrong[0]!r}")
    return tuple(dict.fromkeys(str(each) for each in given))


def serde_or_none(serde: Serde | None, what: str) -> Serde | None:
    """``serde`` if it is one or None, else TopologyError."""
    missing = [part for part in _SERDE_PARTS if not hasattr(serde, part)]
    if serde is None or not missing:
        return serde
    if len(missing) < len(_SERDE_PARTS):
        raise TopologyError(f"{what}: {serde!r} is no serde: it has no {', '.join(missing)} (docs/serdes.md, custom serdes)")
    if callable(serde):
        found = getattr(serde, "__qualname__", type(serde).__name__)
        raise TopologyError(f"{what}: {found} is not a serde but {_makes(serde)}; give what it makes, such as Serdes.string()")
    raise TopologyError(f"{what}: {serde!r} is not a serde; give one of Serdes, such as Serdes.string()")


def serdes_of_result(
    serde: Serde | tuple[Serde | None, Serde | None] | None, what: str
) -> Serde | tuple[Serde | None, Serde | None] | None:
    """What a function says to return: the serde of a value or a key, or a pair of both; TopologyError for what is none."""
    if not isinstance(serde, tuple):
        return serde_or_none(serde, what)
    if len(serde) != 2:
        raise TopologyError(f"{what}: expected one serde, or a pair (key serde, value serde), got a tuple of {len(serde)}")
    return serde_or_none(serde[0], what), serde_or_none(serde[1], what)


def _makes(found: object) -> str:
    return "a class" if isinstance(found, type) else "a function"


def required_serde(serde: Serde | None, what: str) -> Serde:
    """``serde`` if it is one, else TopologyError."""
    found = serde_or_none(serde, what)
    if found is None:
        raise TopologyError(f"{what}: a serde is missing; give one of Serdes, such as Serdes.string()")
    return found


def topic_names(topics: str | Iterable[str], operator: str) -> tuple[str, ...]:
    """One topic or several, each once and legal; TopologyError if there are none, or for what is none."""
    if not isinstance(topics, Iterable) or isinstance(topics, (bytes, bytearray)):
        raise TopologyError(f"{operator}: expected a topic, or a list of topics, got {topics!r}")
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not names:
        raise TopologyError(f"{operator}: no topic given; give at least one")
    return tuple(legal_name(name, "a topic") for name in names)


def pattern_text(pattern: re.Pattern[str]) -> str:
    """The text of a pattern of topics; flags can't be sent to a broker and are refused."""
    if not isinstance(pattern.pattern, str) or pattern.flags & ~re.UNICODE:
        raise TopologyError(f"stream: the pattern {pattern.pattern!r} must be text without flags")
    return pattern.pattern


def timestamp_extractor_or_none(
    function: UserFunction | str | None, operator: str
) -> UserFunction | KafkaExtractor | None:
    """A function of ``(record, partition_time)`` that gives a time in ms, or the name of one of Kafka Streams' classes; None: the
    record's own time."""
    if function is None:
        return None
    if isinstance(function, str):
        name = function.strip().removeprefix("org.apache.kafka.streams.processor.")
        known = [each.value for each in KafkaExtractor]
        if name not in known:
            raise TopologyError(
                f"{operator}: timestamp_extractor: {function!r} is none of Kafka Streams' extractors; expected "
                f"{', '.join(known)}, or a function of (record, partition_time)"
            )
        return KafkaExtractor(name)
    return python_function(function, ("record", "partition_time"), f"{operator}: timestamp_extractor")


def offset_reset_or_none(text: str | None) -> str | None:
    """Reset policy without a committed offset: earliest, latest, none, by_duration:PT1H; None: as configured."""
    if text is None:
        return None
    try:
        offset_reset(text)
    except ValueError as expected:
        raise TopologyError(f"offset_reset is {text!r}, expected one of {expected}") from None
    return text


def is_coroutine_function(function: object) -> bool:
    """An object whose ``__call__`` is one, too."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def refuse_coroutines(function: object, operator: str) -> None:
    """Refuses a coroutine function: what it returns is true as a predicate, and nothing runs until that is awaited."""
    if is_coroutine_function(function):
        raise TopologyError(
            f"{operator}: {function!r} is defined with async def, and nothing awaits it here: give a plain function, or "
            "per_record_async(f) where a stream takes functions of batches (docs/how-to/functions-in-batches.md)"
        )


def _refuse_generators(function: object, operator: str) -> None:
    """Refuses a generator function: what it returns is true as a predicate, and nothing runs until its results are taken."""
    called = getattr(function, "__call__", None)  # noqa: B004
    if inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(called):
        raise TopologyError(
            f"{operator}: {function!r} has yield in it: calling it runs nothing. Give a function that returns its result, or use"
            " flat_map or flat_map_values, which take several"
        )


def _signature(
    function: object, expected: tuple[str, ...], operator: str, *, is_awaited: bool = False
) -> inspect.Signature | None:
    if isinstance(function, PerRecord):
        function = function.function
    if isinstance(function, OfColumns):
        raise TopologyError(
            f"{operator}: of_columns(...) is for reduce of a grouped stream and for the joins of a stream;"
            f" expected a function of ({', '.join(expected)}) as it is"
        )
    if isinstance(function, (PerBatch, PerRecordAsync)):
        raise TopologyError(
            f"{operator}: per_batch(...) and per_record_async(...) are for map, map_values, flat_map, flat_map_values,"
            " select_key, filter, filter_not, peek and foreach of a stream;"
            f" expected a function of ({', '.join(expected)})"
        )
    if not callable(function):
        raise TopologyError(
            f"{operator}: expected a function of ({', '.join(expected)}), got {function!r} of type"
            f" {type(function).__name__}"
        )
    if not is_awaited:
        refuse_coroutines(function, operator)
        if operator not in _OF_SEVERAL_RESULTS:
            _refuse_generators(function, operator)
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some callables written in C do not say
        return None


def _accepts(signature: inspect.Signature | None, count: int) -> bool:
    if signature is None:
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _wrong_arguments(function: UserFunction, expected: str, operator: str) -> TopologyError:
    if isinstance(function, PerRecord):
        function = function.function
    name = getattr(function, "__name__", repr(function))
    return TopologyError(
        f"{operator}: the function {name}{inspect.signature(function)} can't be called with {expected}; give it these"
        " arguments"
    )
