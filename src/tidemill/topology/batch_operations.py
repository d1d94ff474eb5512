"""Operations whose functions get all records of a micro-batch at once: vectorised functions, and async ones.

As in ``operations``: values, whose functions nothing here calls. They run in a step of their own, never record by record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class BatchForm(Enum):
    """The type in which a function of batches gets keys and values, named after its library."""

    PANDAS = "pandas"
    ARROW = "pyarrow"
    NUMPY = "numpy"


@dataclass(frozen=True, slots=True)
class PerBatch:
    """A function of the columns of many records. ``serde`` writes what it returns, where known."""

    function: Callable[..., Any]
    serde: Any = None
    """One, or a pair of those of keys and values."""
    form: BatchForm = BatchForm.PANDAS


@dataclass(frozen=True, slots=True)
class PerRecordAsync:
    """A coroutine function of one record, of which ``max_in_flight`` calls wait at the same time, each ``timeout_ms`` at most."""

    function: Callable[..., Any]
    serde: Any = None
    max_in_flight: int = 16
    timeout_ms: int = 30_000


BatchFunction = PerBatch | PerRecordAsync


@dataclass(frozen=True, slots=True)
class MapValuesInBatches:
    """``MapValues`` by such a function; ``takes_key``: it gets the keys, too."""

    function: BatchFunction
    takes_key: bool = False


@dataclass(frozen=True, slots=True)
class MapInBatches:
    """``Map`` by such a function of keys and values; it changes the keys."""

    function: BatchFunction


@dataclass(frozen=True, slots=True)
class SelectKeyInBatches:
    """``SelectKey`` by such a function of keys and values."""

    function: BatchFunction


@dataclass(frozen=True, slots=True)
class FlatMapInBatches:
    """``FlatMap`` by such a function of keys and values; it changes the keys."""

    function: BatchFunction


@dataclass(frozen=True, slots=True)
class FlatMapValuesInBatches:
    """``FlatMapValues`` by such a function; ``takes_key``: it gets the keys, too."""

    function: BatchFunction
    takes_key: bool = False


@dataclass(frozen=True, slots=True)
class FilterInBatches:
    """``Filter`` by such a function of keys and values."""

    predicate: BatchFunction
    negate: bool = False


@dataclass(frozen=True, slots=True)
class PeekInBatches:
    """``Peek`` and ``Foreach`` by such a function of keys and values, whose results count for nothing."""

    function: BatchFunction
