"""The serde of changes in the repartition topics of grouped tables: Kafka Streams' bytes.

    new value | 01                                 only the new value
    old value | 00                                 only the old value
    length of new, varint | new | old | 02         both
    ... | is latest 1 | 03 old, 04 new, 05 both    as above, with whether a versioned table's change is its newest

The varint is zigzag, as in Kafka's records. The forms of the last line are read, and not written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidemill.errors import SerdeError
from tidemill.operators.record import Change
from tidemill.topology.values import Serde

_NEW, _BOTH = 1, 2
_WITH_LATEST = 3
"""Added to the three kinds where a byte says whether the change is the latest."""


@dataclass(frozen=True, slots=True)
class ChangeSerde:
    """Changes of values that ``inner`` writes; ``inner`` None: the application's default serde of values."""

    inner: Serde | None = None
    name: ClassVar[str] = "change"
    sql_type: ClassVar[str] = "binary"

    def with_inner(self, inner: Serde | None) -> ChangeSerde:
        """This serde with its own inner one, or else with ``inner`` (``KeyValueSerdes.settled``)."""
        return self if self.inner is not None else ChangeSerde(inner)

    def serialize(self, value: object) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, Change):
            raise SerdeError(f"change: can't write a value of type {type(value).__name__}, expected a change of a table")
        inner = self._known()
        new, old = inner.serialize(value.new), inner.serialize(value.old)
        if new is not None and old is not None:
            return _varint(len(new)) + new + old + b"\x02"
        if new is not None:
            return new + b"\x01"
        if old is not None:
            return old + b"\x00"
        raise SerdeError("change: a change with neither a new nor an old value can't be written; drop it before the topic")

    def deserialize(self, data: bytes | None) -> Change:
        data = bytes(data or b"")
        if not data or data[-1] >= 2 * _WITH_LATEST:
            raise SerdeError(
                f"change: found {data[-1:].hex() or 'no bytes'} at the end, expected 00 to 05; the topic holds other data"
            )
        read, kind, end, is_latest = self._known().deserialize, data[-1], len(data) - 1, True
        if kind >= _WITH_LATEST:
            kind, end = kind - _WITH_LATEST, end - 1
            is_latest = data[end] != 0
        if kind != _BOTH:
            value = read(data[:end])
            return Change(value, None, is_latest) if kind == _NEW else Change(None, value, is_latest)
        length, at = _read_varint(data)
        if not 0 <= length <= end - at:
            raise SerdeError(f"change: the new value should have {length} bytes, found {end - at}; the topic holds other data")
        return Change(read(data[at : at + length]), read(data[at + length : end]), is_latest)

    def _known(self) -> Serde:
        if self.inner is None:
            raise SerdeError("change: the serde of a grouped table's values is not known: give group_by value=")
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
    number = 0
    for at, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + 1
    raise SerdeError("change: found no end of a length in the first 5 bytes; the topic holds other data")
