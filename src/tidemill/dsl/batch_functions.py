"""per_batch and per_record_async: functions that get many records at once, or wait for others, where the DSL takes functions.

Decides where they may be given (the stateless operators of a stream, ``split`` apart) and in which form a function of batches
gets its records. Nothing here calls them.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from tidemill.dsl.arguments import function_of, is_coroutine_function, python_function, serdes_of_result, takes_key
from tidemill.errors import TopologyError
from tidemill.topology import operations as op
from tidemill.topology.batch_operations import (
    BatchForm,
    FilterInBatches,
    FlatMapInBatches,
    FlatMapValuesInBatches,
    MapInBatches,
    MapValuesInBatches,
    PeekInBatches,
    PerBatch,
    PerRecordAsync,
    SelectKeyInBatches,
)
from tidemill.topology.durations import Duration, milliseconds
from tidemill.topology.functions import UserFunction
from tidemill.topology.values import Serde

P = TypeVar("P")
B = TypeVar("B")


def per_batch(
    function: Callable[..., object],
    serde: Serde | tuple[Serde | None, Serde | None] | None = None,
    *,
    form: Literal["pandas", "pyarrow", "numpy"] | None = None,
) -> PerBatch:
    """``function``, to be called in a Python worker with the keys and values of all records of a micro-batch at once.

    It returns something for each record, in their order:

    - ``map_values``, of ``function(values)`` or ``function(keys, values)``: a value;
    - ``flat_map_values``, of the same: a list of values, which may be empty or null;
    - ``filter`` and ``filter_not``, of ``function(keys, values)``, as all that follow: a boolean;
    - ``select_key``: a key;
    - ``map``: a key and a value, as a pair ``(keys, values)``;
    - ``flat_map``: a list of keys and a list of values of one length, as a pair of such lists;
    - ``peek`` and ``foreach``: what is returned counts for nothing.

    Keys and values come as a Series, an Array or an array; those of a struct (JSON) as a ``pandas.DataFrame``, a
    ``pyarrow.Table`` or a dict of numpy arrays, with a column for each field. ``form`` says which; else the annotation of the
    values does; else it is pandas. A result may have any of these forms, or be a Python list. Lists for each record are a Series
    of lists (``values.str.split(",")``), an Array of lists (``pyarrow.compute.split_pattern``), an array of lists or of two
    dimensions, or a Python list of lists.

    Records whose value is null are not among them: they stay null, ``filter`` drops them, and ``flat_map_values`` makes none of
    them. But ``map``, ``select_key`` and ``flat_map`` get them, since they have a key: null is None, or null in all columns. A
    row of nulls that ``map`` or ``select_key`` returns where it got a null is null.

    ``serde`` says how its result is written, where ``to(...)`` below does not say it: the serde of the value, of the key
    (``select_key``), or a pair of both (``map``, ``flat_map``). An exception in it is that of a record: the function is called
    again with halves of the batch until the record is found. A result of another length stops the stream thread.

    Raises:
        TopologyError: ``function`` can't be called, the form is none of these, or ``serde`` is none.
    """
    _check_callable(function, "per_batch")
    known = [each.value for each in BatchForm]
    if form is not None and form not in known:
        raise TopologyError(f"per_batch: form is {form!r}, expected one of {', '.join(known)}")
    chosen = _annotated_form(function) if form is None else BatchForm(form)
    return PerBatch(function, serdes_of_result(serde, "per_batch: serde"), chosen)


def per_record_async(
    function: Callable[..., Awaitable[object]],
    serde: Serde | tuple[Serde | None, Serde | None] | None = None,
    *,
    max_in_flight: int = 16,
    timeout: Duration = 30_000,
) -> PerRecordAsync:
    """``function``, a coroutine function, to be awaited in a Python worker with the decoded values of each record.

    It takes and returns what a function of ``per_record`` does, in the operators that take ``per_batch``: ``map`` a pair of key
    and value, ``flat_map`` an iterable of pairs, ``flat_map_values`` of values. ``serde`` is as there.
    Up to ``max_in_flight`` calls of a micro-batch wait at the same time; results keep the records' order, and the batch is
    committed when all are there. All calls of a worker run on one event loop, which lives as long as the worker: a client that
    the function keeps is used again. A call that takes longer than ``timeout`` (ms, or a timedelta) is cancelled and fails with
    ``TimeoutError``, an exception of that record.

    Raises:
        TopologyError: ``function`` is no coroutine function, a limit is none, or ``serde`` is none.
    """
    _check_callable(function, "per_record_async")
    inner = getattr(function, "func", function)  # of a partial
    if not is_coroutine_function(inner):
        raise TopologyError(
            f"per_record_async: expected a function defined with async def, got {_name(function)}; per_record takes others"
        )
    if not isinstance(max_in_flight, int) or isinstance(max_in_flight, bool) or max_in_flight < 1:
        raise TopologyError(f"per_record_async: max_in_flight is {max_in_flight!r}, expected a number of calls from 1 on")
    timeout_ms = milliseconds(timeout, "per_record_async: timeout")
    if timeout_ms == 0:
        raise TopologyError("per_record_async: timeout is 0 ms, expected a time that a call may take")
    return PerRecordAsync(function, serdes_of_result(serde, "per_record_async: serde"), max_in_flight, timeout_ms)


def map_by(function: UserFunction | PerBatch | PerRecordAsync) -> op.Map | MapInBatches:
    """The operation of ``map``."""
    return _of_pairs(function, "map", op.Map, MapInBatches)


def select_key_by(function: UserFunction | PerBatch | PerRecordAsync) -> op.SelectKey | SelectKeyInBatches:
    """The operation of ``select_key``."""
    return _of_pairs(function, "select_key", op.SelectKey, SelectKeyInBatches)


def flat_map_by(function: UserFunction | PerBatch | PerRecordAsync) -> op.FlatMap | FlatMapInBatches:
    """The operation of ``flat_map``."""
    return _of_pairs(function, "flat_map", op.FlatMap, FlatMapInBatches)


def _of_pairs(
    function: UserFunction | PerBatch | PerRecordAsync,
    operator: str,
    plain: Callable[[UserFunction], P],
    in_batches: Callable[[PerBatch | PerRecordAsync], B],
) -> P | B:
    """The operation of a function of keys and values."""
    if isinstance(function, (PerBatch, PerRecordAsync)):
        function_of(function.function, ("key", "value"), operator, is_awaited=True)
        return in_batches(function)
    return plain(function_of(function, ("key", "value"), operator))


def flat_map_values_by(function: UserFunction | PerBatch | PerRecordAsync) -> op.FlatMapValues | FlatMapValuesInBatches:
    """The operation of ``flat_map_values``."""
    if isinstance(function, (PerBatch, PerRecordAsync)):
        return FlatMapValuesInBatches(function, takes_key(function.function, "flat_map_values", is_awaited=True))
    return op.FlatMapValues(function, takes_key(function, "flat_map_values"))


def map_values_by(function: UserFunction | PerBatch | PerRecordAsync) -> op.MapValues | MapValuesInBatches:
    """The operation of ``map_values``."""
    if isinstance(function, (PerBatch, PerRecordAsync)):
        return MapValuesInBatches(function, takes_key(function.function, "map_values", is_awaited=True))
    return op.MapValues(function, takes_key(function, "map_values"))


def filter_by(
    predicate: UserFunction | PerBatch | PerRecordAsync, operator: str, *, negate: bool
) -> op.Filter | FilterInBatches:
    """The operation of ``filter`` and ``filter_not``."""
    if isinstance(predicate, (PerBatch, PerRecordAsync)):
        function_of(predicate.function, ("key", "value"), operator, is_awaited=True)
        return FilterInBatches(predicate, negate)
    return op.Filter(function_of(predicate, ("key", "value"), operator), negate)


def look_by(
    function: UserFunction | PerBatch | PerRecordAsync, operator: str, plain: type[op.Peek] | type[op.Foreach]
) -> op.Peek | op.Foreach | PeekInBatches:
    """The operation of ``peek`` and ``foreach``."""
    if isinstance(function, (PerBatch, PerRecordAsync)):
        function_of(function.function, ("key", "value"), operator, is_awaited=True)
        return PeekInBatches(function)
    return plain(python_function(function, ("key", "value"), operator))


def _annotated_form(function: Callable[..., Any]) -> BatchForm:
    """The form of the values, by the last argument's annotation; an annotation that is text is not evaluated."""
    inner = getattr(function, "func", function)  # of a partial
    scope = getattr(inner if inspect.isroutine(inner) else type(inner).__call__, "__globals__", {})
    try:
        *_, values = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some callables written in C do not say
        return BatchForm.PANDAS
    annotation = values.annotation
    if isinstance(annotation, str):
        name = re.split(r"\W", annotation, maxsplit=1)[0]
        annotation = scope.get(name, dict if name == "dict" else None)
    if annotation is dict or typing.get_origin(annotation) is dict:
        return BatchForm.NUMPY
    library = annotation.__name__ if inspect.ismodule(annotation) else str(getattr(annotation, "__module__", ""))
    return next((form for form in BatchForm if form.value == library.partition(".")[0]), BatchForm.PANDAS)


def _check_callable(function: object, what: str) -> None:
    if not callable(function):
        raise TopologyError(f"{what}: expected a function, got {function!r} of type {type(function).__name__}")


def _name(function: object) -> str:
    return str(getattr(function, "__name__", repr(function)))
