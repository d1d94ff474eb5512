"""per_batch and per_record_async: functions that get many records at once, or wait for others, where the DSL takes functions.

Decides where they may be given (``map_values``, ``filter``, ``filter_not``, ``peek``, ``foreach`` of a stream) and in which form
a function of batches gets its records. Nothing here calls them.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from tidemill.dsl.arguments import function_of, python_function, serde_or_none, takes_key
from tidemill.errors import TopologyError
from tidemill.topology import operations as op
from tidemill.topology.batch_operations import (
    BatchForm,
    FilterInBatches,
    MapValuesInBatches,
    PeekInBatches,
    PerBatch,
    PerRecordAsync,
)
from tidemill.topology.durations import Duration, milliseconds
from tidemill.topology.operations import UserFunction
from tidemill.topology.values import Serde


def per_batch(
    function: Callable[..., object], serde: Serde | None = None, *, form: Literal["pandas", "pyarrow", "numpy"] | None = None
) -> PerBatch:
    """``function``, to be called in a Python worker with the values of all records of a micro-batch at once.

    In ``map_values`` it is ``function(values)`` or ``function(keys, values)`` and returns a value for each, in their order; in
    ``filter`` and ``filter_not`` ``function(keys, values)``, which returns a boolean for each; in ``peek`` and ``foreach`` the
    same, and what it returns counts for nothing. Records whose value is null are not among them: they stay null, and ``filter``
    drops them.

    Values of a struct (JSON) come as a ``pandas.DataFrame``, a ``pyarrow.Table`` or a dict of numpy arrays with a column for each
    field, other values as a Series, an Array or an array, and so do keys. ``form`` says which; else the annotation of the values
    does; else it is pandas.

    ``serde`` says how its result is written, where ``to(...)`` below does not say it. An exception in it is that of a record: the
    function is called again with halves of the batch until the record is found. A result of another length stops the stream
    thread.

    Raises:
        TopologyError: ``function`` can't be called, or the form is none of these.
    """
    _check_callable(function, "per_batch")
    known = [each.value for each in BatchForm]
    if form is not None and form not in known:
        raise TopologyError(f"per_batch: form is {form!r}, expected one of {', '.join(known)}")
    chosen = _annotated_form(function) if form is None else BatchForm(form)
    return PerBatch(function, serde_or_none(serde, "per_batch: serde"), chosen)


def per_record_async(
    function: Callable[..., Awaitable[object]], serde: Serde | None = None, *, max_in_flight: int = 16, timeout: Duration = 30_000
) -> PerRecordAsync:
    """``function``, a coroutine function, to be awaited in a Python worker with the decoded values of each record.

    It takes what a function of ``per_record`` takes in ``map_values``, ``filter``, ``filter_not``, ``peek`` and ``foreach``.
    Up to ``max_in_flight`` calls of a micro-batch wait at the same time; results keep the records' order, and the batch is
    committed when all are there. All calls of a worker run on one event loop, which lives as long as the worker: a client that
    the function keeps is used again. A call that takes longer than ``timeout`` (ms, or a timedelta) is cancelled and fails with
    ``TimeoutError``, an exception of that record.

    Raises:
        TopologyError: ``function`` is no coroutine function, or a limit is none.
    """
    _check_callable(function, "per_record_async")
    inner = getattr(function, "func", function)  # of a partial
    if not (inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))):  # noqa: B004
        raise TopologyError(
            f"per_record_async: expected a function defined with async def, got {_name(function)}; per_record takes others"
        )
    if not isinstance(max_in_flight, int) or isinstance(max_in_flight, bool) or max_in_flight < 1:
        raise TopologyError(f"per_record_async: max_in_flight is {max_in_flight!r}, expected a number of calls from 1 on")
    timeout_ms = milliseconds(timeout, "per_record_async: timeout")
    if timeout_ms == 0:
        raise TopologyError("per_record_async: timeout is 0 ms, expected a time that a call may take")
    return PerRecordAsync(function, serde_or_none(serde, "per_record_async: serde"), max_in_flight, timeout_ms)


def map_values_by(function: UserFunction | PerBatch | PerRecordAsync) -> op.MapValues | MapValuesInBatches:
    """The operation of ``map_values``."""
    if isinstance(function, (PerBatch, PerRecordAsync)):
        return MapValuesInBatches(function, takes_key(function.function, "map_values"))
    return op.MapValues(function, takes_key(function, "map_values"))


def filter_by(
    predicate: UserFunction | PerBatch | PerRecordAsync, operator: str, *, negate: bool
) -> op.Filter | FilterInBatches:
    """The operation of ``filter`` and ``filter_not``."""
    if isinstance(predicate, (PerBatch, PerRecordAsync)):
        function_of(predicate.function, ("key", "value"), operator)
        return FilterInBatches(predicate, negate)
    return op.Filter(function_of(predicate, ("key", "value"), operator), negate)


def look_by(
    function: UserFunction | PerBatch | PerRecordAsync, operator: str, plain: type[op.Peek] | type[op.Foreach]
) -> op.Peek | op.Foreach | PeekInBatches:
    """The operation of ``peek`` and ``foreach``."""
    if isinstance(function, (PerBatch, PerRecordAsync)):
        function_of(function.function, ("key", "value"), operator)
        return PeekInBatches(function)
    return plain(python_function(function, ("key", "value"), operator))


def _annotated_form(function: Callable[..., Any]) -> BatchForm:
    """By the last argument's annotation, which is the values'; an annotation that is text is not evaluated."""
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
