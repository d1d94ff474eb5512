"""per_record: plain Python functions where the DSL takes functions of PySpark Columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

from tidemill.dsl.arguments import refuse_coroutines, serdes_of_result
from tidemill.dsl.function_types import ColumnJoiner, ColumnJoinerWithKey
from tidemill.errors import TopologyError
from tidemill.topology.batch_operations import PerBatch, PerRecordAsync
from tidemill.topology.functions import OfColumns, PerRecord
from tidemill.topology.values import Serde


def per_record(
    function: Callable[..., object], serde: Serde | tuple[Serde | None, Serde | None] | None = None
) -> PerRecord:
    """``function``, to be called in a Python worker with the decoded values of each record, where Columns would be expected.

    It takes what the operator's function takes and returns Python values: ``map`` a pair of key and value, ``flat_map`` pairs,
    ``flat_map_values`` values. ``serde`` says how its result is written, where the operators below do not say it: the serde of
    the value, of the key (``select_key``, ``group_by``), or a pair of both (``map``, ``flat_map``). Slower than a function of
    Columns, which runs in the JVM for whole batches. An exception in it stops the stream thread, with the node, the topic and the
    offset.

    Raises:
        TopologyError: ``function`` can't be called, or is a coroutine function; ``serde`` is none.
    """
    if not callable(function):
        raise TopologyError(f"per_record: expected a function, got {function!r} of type {type(function).__name__}")
    refuse_coroutines(function, "per_record")
    return PerRecord(function, serdes_of_result(serde, "per_record: serde"))


@overload
def of_columns(function: ColumnJoiner) -> OfColumns: ...
@overload
def of_columns(function: ColumnJoinerWithKey) -> OfColumns: ...


def of_columns(function: ColumnJoiner | ColumnJoinerWithKey) -> OfColumns:
    """``function``, to be called with PySpark Columns where an operator's functions get Python values otherwise.

    ``reduce`` takes such a function: ``reduce(of_columns(lambda total, amount: total + amount))``. It then runs in the JVM, on
    merges of several values too: it must be associative, give the type of the values, and nothing that is null.

    So do the joins of a stream: ``orders.join(users, of_columns(lambda order, user: user["name"]))``.
    A side that is missing is null.
    """
    if not callable(function):
        raise TopologyError(f"of_columns: expected a function, got {function!r} of type {type(function).__name__}")
    return OfColumns(function)


def value_serde_of(function: object) -> Serde | None:
    """The serde of the values that a function says to return."""
    return pair_serdes_of(function)[1]


def key_serde_of(function: object) -> Serde | None:
    """The serde of the keys that a function of keys, or of keys and values, says to return."""
    given = _given_to(function)
    return given[0] if isinstance(given, tuple) else given


def pair_serdes_of(function: object) -> tuple[Serde | None, Serde | None]:
    """The serdes of keys and values that a function says to return; a single one is that of the values."""
    given = _given_to(function)
    return given if isinstance(given, tuple) else (None, given)


def _given_to(function: object) -> Serde | tuple[Serde | None, Serde | None] | None:
    return function.serde if isinstance(function, (PerRecord, PerBatch, PerRecordAsync)) else None
