"""Operations that Kafka Streams does not have: what Spark brings, and what the plan makes of others.

As in ``operations``: values, whose functions nothing here calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_Left = TypeVar("_Left")
_Right = TypeVar("_Right")


@dataclass(frozen=True, slots=True)
class ForeachBatch:
    """``function(dataframe, batch_id)`` in the driver, for all records of a micro-batch; nothing is forwarded."""

    function: Callable[..., object]


@dataclass(frozen=True, slots=True)
class DataFrameJoin:
    """A stream with a static DataFrame, or what ``frame(session)`` gives, as of its last refresh; functions of Columns.

    ``selector(key, value)`` gives what the columns ``on`` are compared with, one Column or several; None: the key.
    ``joiner(value, row)`` or, where ``takes_key``, ``joiner(key, value, row)``; None: a struct of value and row.
    ``refresh_ms`` None: read once.
    """

    frame: object
    on: tuple[str, ...]
    selector: Callable[..., object] | None = None
    joiner: Callable[..., object] | None = None
    takes_key: bool = False
    left: bool = False
    refresh_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HeldAggregates:
    """First node of a reduce with a function of Columns: forwards the stored value of each key, then the batch's records."""

    store: str


@dataclass(frozen=True, slots=True)
class MergedAggregates:
    """The same: keeps each key's merged value in ``store`` and passes it on."""

    store: str


@dataclass(frozen=True, slots=True)
class ChangedValues:
    """Forwards each change of a table as a pair of new and old value, for functions of Columns behind it."""


def both_sides(left: _Left, right: _Right) -> tuple[_Left, _Right]:
    """The joiner of a join that forwards pairs, for a function of Columns behind it."""
    return left, right


def makes_pairs(operation: object) -> bool:
    """True if the operation forwards pairs: the sides of a join, or new and old value."""
    return isinstance(operation, ChangedValues) or getattr(operation, "joiner", None) is both_sides
