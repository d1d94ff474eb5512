"""The serde of a table's changes in a repartition topic, as Kafka Streams writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.errors import SerdeError
from tidemill.operators.record import Change
from tidemill.topology.nodes import Serde

_OLD_ONLY, _NEW_ONLY, _BOTH = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ChangeSerde:
    """``Change`` as new | 01, old | 00, or length of new | new | old | 02 (the length as a zigzag varint).

    ``inner`` None: the serde of the values is the default one, to be filled in with ``with_inner``.
    """

    inner: Serde | None

    @property
    def name(self) -> str:
        return f"change of {'default' if self.inner is None else self.inner.name}"

    @property
    def sql_type(self) -> str:
        return "binary"

    def with_inner(self, inner: Serde | None) -> ChangeSerde:
        """This serde with its own inner one, or else with ``inner``."""
        return self if self.inner is not None else ChangeSerde(inner)

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        new, old = self._known().serialize(value.new), self._known().serialize(value.old)
        if new is not None and old is not None:
            return _varint(len(new)) + new + old + bytes((_BOTH,))
        if new is not None:
            return new + bytes((_NEW_ONLY,))
        if old is None:
            raise SerdeError(f"{self.name}: a change from nothing to nothing can't be written; drop it before the topic")
        return old + bytes((_OLD_ONLY,))

    def deserialize(self, data: bytes | None) -> Change | None:
        if not data:
            return None
        inner, kind, data = self._known(), data[-1], bytes(data[:-1])
        if kind == _NEW_ONLY:
            return Change(inner.deserialize(data), None)
        if kind == _OLD_ONLY:
            return Change(None, inner.deserialize(data))
        if kind != _BOTH:
            raise SerdeError(f"{self.name}: found kind {kind} at the end, expected 0, 1 or 2; the topic holds other data")
        length, at = _read_varint(data)
        return Change(inner.deserialize(data[at : at + length]), inner.deserialize(data[at + length :]))

    def _known(self) -> Serde:
        if self.inner is None:
            raise SerdeError("the serde of a grouped table's values is not known: give group_by key= and value=, or a default")
        return self.inner


def _varint(number: int) -> bytes:
    rest, found = number << 1, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _read_varint(data: bytes) -> tuple[int, int]:
    """The number at the start of ``data``, and where it ends."""
    number = shift = at = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
