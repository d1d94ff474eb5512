"""Keys and values as a program has them, Python values, and the serdes that read and write them.

Decides nothing about them. Keys and values are not ``object``, since functions of the program declare the types that they get.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol

from tidemill.spellings import spelled

Key = Any
"""A record's key, decoded; None where it is null."""

Value = Any
"""A record's value, decoded; None where it is null."""

TableRow = tuple[Value, int]
"""A table's row of a key: (value, timestamp in ms since the epoch)."""


@spelled
class ValueAndTimestamp(NamedTuple):
    """A value and the timestamp of the record that made it, in ms."""

    value: Value
    timestamp_ms: int


_IMMUTABLE = (int, float, str, bytes, type(None))


def is_immutable(value: Value) -> bool:
    """True if no function of the program can change the value in place, so that an old one needs no copy."""
    return isinstance(value, _IMMUTABLE)


class Serde(Protocol):
    """A serializer and deserializer of keys or values; the implementations are in ``tidemill.dsl.serdes``.

    ``None`` is Kafka's null: every serde writes it as None and reads None as it.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name for configuration and messages: ``string``, ``long`` ..."""

    @property
    @abstractmethod
    def sql_type(self) -> str:
        """The Spark type of the values, as DDL text."""

    @abstractmethod
    def serialize(self, value: Value) -> bytes | None:
        """The bytes of a value; SerdeError where the value is not of the serde's type."""

    @abstractmethod
    def deserialize(self, data: bytes | None) -> Value:
        """The value of the bytes; SerdeError where they can't be read."""
