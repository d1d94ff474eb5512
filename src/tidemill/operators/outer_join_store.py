"""The store of records without a match of a left or outer stream-stream join, shared by the join's two sides.

    row, changelog key    timestamp 8 | 01 left, 00 right | key
    row, changelog value  01 | count 4 | (length 4 | 01 left, 00 right | value) for each value of that time, side and key

Decides bytes and order (by time, right before left, then by key) and keeps the clock that the two sides share. Leaves to
``stream_join`` when a record waits, is matched or is forwarded alone. After the rows comes the clock (key 0xff), which has no
changelog: a restored store's begins where its changelog's timestamps end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from tidemill.operators.context import NO_ORIGIN, WaitedRecord
from tidemill.operators.record import Headers, Record
from tidemill.operators.rows import Rows
from tidemill.topology.nodes import Store

NOTHING_WAITS = (1 << 63) - 1
"""The least time if no record waits: Long.MAX_VALUE, as in Kafka Streams."""
NOT_LOOKED_YET = -1
"""The least time after restoring: it must be read from the first row."""
_LEFT, _RIGHT = b"\x01", b"\x00"
_META = b"\xff"
_LONG = Struct(">q")
_LENGTH = Struct(">i")
_LIST_HEAD = Struct(">bi")
_META_FORMAT = Struct(">qqq")


@dataclass(slots=True)
class SharedClock:
    """The clock of a join, which both sides share (TimeTracker).

    ``stream_time``: the highest timestamp of both sides. ``min_time``: the least timestamp that may wait, as last seen.
    ``next_look``: the wall clock before which closed windows are not looked for.
    """

    stream_time: int = -1
    min_time: int = NOTHING_WAITS
    next_look: int = 0


class UnmatchedValues(NamedTuple):
    """Values of one time, side and key that have found no match."""

    timestamp: int
    is_left: bool
    key: object
    values: list[object]


class OuterJoinStore:
    """The waiting records of one join in one task. ``value_serde`` writes left values, ``other_value_serde`` right ones."""

    def __init__(self, store: Store, rows: Rows) -> None:
        assert store.key_serde is not None
        assert store.value_serde is not None
        self._rows = rows
        self._write_key, self._read_key = store.key_serde.serialize, store.key_serde.deserialize
        right_serde = store.other_value_serde or store.value_serde
        self._write_left, self._read_left = store.value_serde.serialize, store.value_serde.deserialize
        self._write_right, self._read_right = right_serde.serialize, right_serde.deserialize
        kept = rows.get(_META)
        self._kept: tuple[int, int, int] | None = None if kept is None else _META_FORMAT.unpack(kept)
        self.clock = SharedClock() if self._kept is None else SharedClock(*self._kept)
        self.floor = 0
        """Nothing older waits: where to begin to look, past what this batch has deleted."""
        last = next(rows.scan(None, _META, reverse=True), None)
        self._newest = -1 if last is None else _LONG.unpack_from(last[0])[0]
        """Nothing newer waits: of what is newer no row need be looked for."""

    def add(self, timestamp: int, is_left: bool, key: object, value: object) -> None:
        """Lets a record wait; its timestamp is also the changelog record's."""
        self.floor = min(self.floor, timestamp)
        row_key = _row_key(timestamp, is_left, self._write_key(key) or b"")
        item = _LEFT + (self._write_left(value) or b"") if is_left else _RIGHT + (self._write_right(value) or b"")
        entry = _LENGTH.pack(len(item)) + item
        before = self._rows.get(row_key) if timestamp <= self._newest else None
        self._newest = max(self._newest, timestamp)
        if before is None:
            row = _LIST_HEAD.pack(1, 1) + entry
        else:
            row = _LIST_HEAD.pack(1, _LIST_HEAD.unpack_from(before)[1] + 1) + before[_LIST_HEAD.size :] + entry
        self._rows.put(row_key, row)
        self._rows.log(row_key, row, timestamp)

    def discard(self, timestamp: int, is_left: bool, key: bytes, now: int) -> None:
        """Forgets the values of a time, side and key (bytes), if any wait, for they have found a match. ``now`` as in delete."""
        row_key = _row_key(timestamp, is_left, key)
        if self._rows.get(row_key) is not None:
            self.delete(row_key, now)

    def delete(self, row_key: bytes, now: int) -> None:
        """Forgets a row that ``rows`` gave; ``now`` is the timestamp of the record being processed."""
        self._rows.put(row_key, None)
        self._rows.log(row_key, None, now)

    def rows(self) -> Iterator[tuple[int, bool, bytes, bytes]]:
        """(timestamp, is left, row key, row) of what waits: by time, right before left, then by the key's bytes."""
        for row_key, row in self._rows.scan(_LONG.pack(self.floor), _META):
            yield _LONG.unpack_from(row_key)[0], row_key[8] == 1, row_key, row

    def read(self, row_key: bytes, row: bytes) -> UnmatchedValues:
        """The values of a row, in the order in which they came."""
        is_left = row_key[8] == 1
        values = self._values(row, self._read_left if is_left else self._read_right)
        return UnmatchedValues(_LONG.unpack_from(row_key)[0], is_left, self._read_key(row_key[9:]), values)

    @staticmethod
    def count(row: bytes) -> int:
        """How many values a row has."""
        return int(_LIST_HEAD.unpack_from(row)[1])

    def waited(self, row_key: bytes, row: bytes, at: int) -> WaitedRecord:
        """The value at this place of a row's; headers and origin are not kept."""
        found = self.read(row_key, row)
        record = Record(found.key, found.values[at], found.timestamp, ())
        return WaitedRecord(record, NO_ORIGIN, (row_key[9:], _parts(row)[at]))

    def least_time(self) -> int:
        """The least timestamp that waits."""
        first = next(self.rows(), None)
        return NOTHING_WAITS if first is None else first[0]

    def restore(self, key: bytes, value: bytes | None, timestamp: int, _headers: Headers = ()) -> None:
        """Applies a record of the changelog; ValueError or struct.error where it is none."""
        if value is not None:
            _parts(value)
        self.floor = 0
        self._newest = max(self._newest, _LONG.unpack_from(key)[0])
        self._rows.put(key, value)
        clock = self.clock
        clock.stream_time = max(clock.stream_time, timestamp)
        clock.min_time = NOT_LOOKED_YET
        self.flush()

    def flush(self) -> None:
        """Writes the clock if it has moved; to be called at the end of a batch."""
        now = (self.clock.stream_time, self.clock.min_time, self.clock.next_look)
        if now != self._kept:
            self._kept = now
            self._rows.put(_META, _META_FORMAT.pack(*now))

    @staticmethod
    def _values(row: bytes, read: Callable[[bytes], object]) -> list[object]:
        return [read(part) for part in _parts(row)]


def _row_key(timestamp: int, is_left: bool, key: bytes) -> bytes:
    return _LONG.pack(timestamp) + (_LEFT if is_left else _RIGHT) + key


def _parts(row: bytes) -> list[bytes]:
    """The values of a row, each without the byte that says its side. ValueError for a row that no store writes: values that its
    count leaves out would be lost, and a length that leads backwards would never end."""
    form, count = _LIST_HEAD.unpack_from(row)
    if form != 1 or count < 1:
        raise ValueError(f"a list of {count} values of the form {form}, expected 1 or more of the form 1")
    parts, at = [], _LIST_HEAD.size
    for _ in range(count):
        length = _LENGTH.unpack_from(row, at)[0]
        at += 4
        if not 1 <= length <= len(row) - at:
            raise ValueError(f"a length of {length} where {len(row) - at} bytes are left")
        parts.append(row[at + 1 : at + length])
        at += length
    if at != len(row):
        raise ValueError(f"{len(row) - at} bytes behind its {count} values")
    return parts
