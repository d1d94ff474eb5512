"""Subscriptions of left rows and the answers to them: the two internal topics of a foreign-key join.

Values only: the operators process them, ``dsl.serdes_foreign_key`` has their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tidemill.topology.values import Key, Value


class Instruction(IntEnum):
    """A subscription's instruction to the right side; the numbers are those of Kafka Streams."""

    DELETE_NO_PROPAGATE = 0
    """Forget it, answer nothing."""
    DELETE_AND_PROPAGATE = 1
    """Forget it, and answer with null."""
    PROPAGATE_NULL_IF_NO_MATCH = 2
    """Keep it, and answer even if there is no row."""
    PROPAGATE_ONLY_IF_MATCH = 3
    """Keep it, and answer if there is a row."""


@dataclass(frozen=True, slots=True)
class SubscriptionWrapper:
    """A left row (``primary_key``, in ``partition``) and the foreign key that it is sent to. ``hash``: of the row's value."""

    hash: bytes | None
    instruction: Instruction
    primary_key: Key
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionResponse:
    """The right row for a subscription; ``hash`` is that of the subscription. ``partition`` is where it goes, and not written."""

    hash: bytes | None
    value: Value
    partition: int | None = None
