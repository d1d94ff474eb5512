"""The buffer of suppress: the last change of each key, by the time at which the key came in.

A key that is held keeps its time while its change is replaced; what leaves is always the oldest, ties in the order of the
keys' bytes. The buffer lives in memory; rows and changelog get, once in a batch, the state of each key that has changed:

    row        "k" | key, as the changelog's value; "c": the clock
    changelog  key, value: context | prior | old | new | time 8, header v = 3; a tombstone, without header, for what has left
    context    timestamp 8 | offset 8 | topic (length 4) | partition 4 | header count 4 | (name, value: length 4 | bytes)*

A value is its length in 4 bytes and its bytes; -1 is null, -2 an old value that equals the prior one. Prior is the value before
the key came in: what the suppressed table still shows.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from struct import Struct
from typing import NamedTuple

from tidemill.errors import StateError
from tidemill.operators.context import RecordMetadata, WaitedRecord
from tidemill.operators.record import Change, Headers, Record
from tidemill.operators.rows import Rows
from tidemill.operators.segments import pack_time, unpack_time
from tidemill.topology.nodes import Store

VERSION = (("v", b"\x03"),)
_ROW, _ROWS_END, _CLOCK = b"k", b"l", b"c"
_INT = Struct(">i")
_NULL, _AS_PRIOR = -1, -2
_NO_HEADERS = -1
"""Their number in older records of Kafka Streams that have none."""
_KEY_OVERHEAD, _CONTEXT_OVERHEAD = 8, 20


class BufferedChange(NamedTuple):
    """The last change of a key, as bytes, and the record that brought it. ``time``: when the key came in."""

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    timestamp: int
    origin: RecordMetadata
    headers: Headers
    time: int


class SuppressBuffer:
    """The buffer of one suppress node of one task. ``stream_time``: the highest timestamp that the node has seen."""

    def __init__(self, store: Store, rows: Rows) -> None:
        assert store.key_serde is not None
        assert store.value_serde is not None
        self.name, self._rows = store.name, rows
        self._encode_key, self._decode_key = store.key_serde.serialize, store.key_serde.deserialize
        self._encode, self._decode = store.value_serde.serialize, store.value_serde.deserialize
        self._held: dict[bytes, BufferedChange] = {}
        self._order: list[tuple[int, bytes]] = []
        self._touched: dict[bytes, None] = {}
        self.stream_time = self._kept_time = -1
        self.bytes_held = 0
        self._is_loaded = False

    def load(self) -> None:
        """Reads the rows, once."""
        if self._is_loaded:
            return
        self._is_loaded = True
        for row_key, row in self._rows.scan(_ROW, _ROWS_END):
            key = row_key[1:]
            self._held[key] = held = read_buffered(row)
            self._order.append((held.time, key))
            self.bytes_held += _size(key, held)
            self.stream_time = max(self.stream_time, held.timestamp)
        heapify(self._order)
        kept = self._rows.get(_CLOCK)
        self._kept_time = -1 if kept is None else unpack_time(kept)[0]
        self.stream_time = max(self.stream_time, self._kept_time)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def oldest_time(self) -> int | None:
        """The time of the key that leaves next; None if nothing is held."""
        return self._order[0][0] if self._order else None

    def put(self, time: int, record: Record, origin: RecordMetadata) -> None:
        """Holds a change back; ``time`` counts if its key is not held yet."""
        key = self._encode_key(record.key) or b""
        change: Change = record.value
        old, new = self._encode(change.old), self._encode(change.new)
        before = self._held.get(key)
        prior, time = (old, time) if before is None else (before.prior, before.time)
        self._held[key] = held = BufferedChange(prior, old, new, record.timestamp, origin, record.headers, time)
        if before is None:
            heappush(self._order, (time, key))
        else:
            self.bytes_held -= _size(key, before)
        self.bytes_held += _size(key, held)
        self._touched[key] = None

    def came_until(self, time: int) -> None:
        """Keys that came later than ``time`` came then."""
        later = [key for at, key in self._order if at > time]
        if later:
            for key in later:
                self._held[key] = self._held[key]._replace(time=time)
                self._touched[key] = None
            self._order = [(min(at, time), key) for at, key in self._order]
            heapify(self._order)

    def oldest(self) -> WaitedRecord:
        """The change of the key that leaves next."""
        key = self._order[0][1]
        held = self._held[key]
        change = Change(self._decode(held.new), self._decode(held.old))
        return WaitedRecord(Record(self._decode_key(key), change, held.timestamp, held.headers), held.origin, (key, held.new))

    def drop_oldest(self) -> None:
        """Holds the key that leaves next no longer."""
        _time, key = heappop(self._order)
        self.bytes_held -= _size(key, self._held.pop(key))
        self._touched[key] = None

    def prior(self, key: object) -> tuple[bool, object]:
        """True if ``key`` is held, and the value that the suppressed table shows for it then."""
        held = self._held.get(self._encode_key(key) or b"")
        return (False, None) if held is None else (True, self._decode(held.prior))

    def all(self) -> list[tuple[object, Change, int]]:
        """(key, change, time) of everything held, in the order in which it will leave."""
        self.load()
        return [
            (self._decode_key(key), Change(self._decode(self._held[key].new), self._decode(self._held[key].old)), time)
            for time, key in sorted(self._order)
        ]

    def restore(self, key: bytes, value: bytes | None, _timestamp: int, headers: Headers = ()) -> None:
        """Applies a record of the changelog; StateError where it is of another version, ValueError or struct.error where it
        is none."""
        if value is not None and dict(headers).get("v") != b"\x03":
            found = dict(headers).get("v")
            raise StateError(
                f"{self.name}: a changelog record of version {'0' if found is None else found.hex()} was found, expected 3, which"
                " Kafka Streams 2.6 and later write; let that version run once over the old application's state, or reset it"
            )
        if value is not None:
            read_buffered(value)
        self._rows.put(_ROW + key, value)
        self._is_loaded = False
        self._held, self._order, self._touched, self.bytes_held = {}, [], {}, 0

    def flush(self) -> None:
        """Writes and logs what became of the keys touched since the last call."""
        if self.stream_time != self._kept_time:
            self._kept_time = self.stream_time
            self._rows.put(_CLOCK, pack_time(self.stream_time))
        for key in self._touched:
            held = self._held.get(key)
            if held is None:
                self._rows.put(_ROW + key, None)
                self._rows.log(key, None, None)
            else:
                data = _write(held)
                self._rows.put(_ROW + key, data)
                self._rows.log(key, data, None, VERSION)
        self._touched.clear()


def _size(key: bytes, held: BufferedChange) -> int:
    """The bytes that Kafka Streams takes a held change to need in memory: the measure of ``max_bytes``."""
    prior, old, new, _timestamp, origin, headers, _time = held
    size = _KEY_OVERHEAD + len(key) + _CONTEXT_OVERHEAD + len(origin.topic) + len(new or b"")
    size += len(prior or b"") + (0 if prior == old else len(old or b""))
    return size + sum(len(name) + len(value or b"") for name, value in headers) if headers else size


def _sized(data: bytes | None) -> bytes:
    return _INT.pack(_NULL) if data is None else _INT.pack(len(data)) + data


def write_context(timestamp: int, origin: RecordMetadata, headers: Headers) -> bytes:
    """The bytes of a record's context (ProcessorRecordContext.serialize)."""
    offset = -1 if origin.offset is None else origin.offset
    parts = [pack_time(timestamp), pack_time(offset), _sized(origin.topic.encode())]
    parts += [_INT.pack(origin.partition), _INT.pack(len(headers))]
    for name, value in headers:
        parts += [_sized(name.encode()), _sized(value)]
    return b"".join(parts)


def _write(held: BufferedChange) -> bytes:
    prior, old = held.prior, held.old
    old_part = _INT.pack(_AS_PRIOR) if old is not None and old == prior else _sized(old)
    context = write_context(held.timestamp, held.origin, held.headers)
    return context + _sized(prior) + old_part + _sized(held.new) + pack_time(held.time)


def read_context(data: bytes) -> tuple[int, RecordMetadata, Headers, int]:
    """(timestamp, origin, headers, where the bytes after it begin) of a context."""
    timestamp, offset = unpack_time(data)[0], unpack_time(data, 8)[0]
    topic, at = _take(data, 16)
    partition, count = _INT.unpack_from(data, at)[0], _INT.unpack_from(data, at + 4)[0]
    at += 8
    if count < _NO_HEADERS:
        raise ValueError(f"{count} headers")
    headers = []
    for _ in range(count):
        name, at = _take(data, at)
        value, at = _take(data, at)
        headers.append(((name or b"").decode(), value))
    return timestamp, RecordMetadata((topic or b"").decode(), partition, None if offset < 0 else offset), tuple(headers), at


def _take(data: bytes, at: int) -> tuple[bytes | None, int]:
    """A value with its length before it, and where the next one begins. ValueError for a length that can't be: a changelog
    is others' to write, and one that leads backwards would never end."""
    length = _INT.unpack_from(data, at)[0]
    at += 4
    if length == _NULL:
        return None, at
    if not 0 <= length <= len(data) - at:
        raise ValueError(f"a length of {length} where {len(data) - at} bytes are left")
    return data[at : at + length], at + length


def read_buffered(row: bytes) -> BufferedChange:
    """ValueError or struct.error for bytes that are no buffered change, whole."""
    timestamp, origin, headers, at = read_context(row)
    prior, at = _take(row, at)
    if _INT.unpack_from(row, at)[0] == _AS_PRIOR:
        old, at = prior, at + 4
    else:
        old, at = _take(row, at)
    new, at = _take(row, at)
    time, end = unpack_time(row, at)[0], at + 8
    if end != len(row):
        raise ValueError(f"{len(row) - end} bytes behind its time")
    if timestamp < 0:
        raise ValueError(f"the timestamp {timestamp}, which no record has")
    return BufferedChange(prior, old, new, timestamp, origin, headers, time)
