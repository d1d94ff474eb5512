"""Window stores: values by key and start of window, plain, with timestamps, or several of a key and time (joins).

    row        segment 8 | key | start 8 | sequence 4          value, or timestamp 8 | value
    changelog  key | start 8 | sequence 4                      value; the record's timestamp is the value's

The sequence is 0, or counts from 1 where duplicates are kept. ``segments`` decides what expires and what is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.operators.recent_rows import RecentRows
from tidemill.operators.record import Headers, require_times
from tidemill.operators.rows import Rows, require_key
from tidemill.operators.segments import LONG_MAX, SEGMENTS_END, Clock, Segments, pack_time, unpack_time
from tidemill.topology.nodes import Store
from tidemill.topology.values import Value
from tidemill.topology.windows import Windowed

_FIRST = b"\0\0\0\0"
_SUFFIX = 12


class WindowStore:
    """Values by key and start of window (org.apache.kafka.streams.state.WindowStore)."""

    timestamped = False

    def __init__(self, store: Store, rows: Rows) -> None:
        self.name = store.name
        self._end_of = store.window_end
        self._rows = rows
        self._log = rows.log
        self._duplicates, self._is_persistent = store.retain_duplicates, store.persistent
        self._reads_by_time = store.time_ordered or not store.persistent
        self._reads_keys_by_time = self._reads_by_time and not store.has_index_by_key
        self._with_headers = store.logs_headers
        assert store.key_serde is not None
        assert store.value_serde is not None
        self.encode_key, self.decode_key = store.key_serde.serialize, store.key_serde.deserialize
        self._encode, self._decode = store.value_serde.serialize, store.value_serde.deserialize
        self._segments = Segments(
            rows, store.keeps_ms, persistent=store.persistent, time_ordered=store.time_ordered, shows_one_more=store.time_ordered,
            reach=store.reaches_back_ms,
        )  # fmt: skip
        self._interval = self._segments.interval
        self._recent = RecentRows(self._segments, _SUFFIX)

    # --- writing --------------------------------------------------------------------------------------------------

    def put(self, key: object, value: object, start: int, timestamp: int, headers: Headers = ()) -> bool:
        """Keeps ``value``, None deletes. ``timestamp`` is the value's, or for None and without timestamps the record's.

        ``headers`` are the changelog record's. False: the window's segment has expired, nothing is kept, and the caller counts a
        dropped record.
        """
        return self.put_at(self._raw(key), value, start, timestamp, headers)

    def put_at(self, key: bytes, value: object, start: int, timestamp: int, headers: Headers = ()) -> bool:
        """``put`` for the bytes of a key."""
        segments = self._segments
        suffix = pack_time(start) + _FIRST
        if self._duplicates:
            segments.sequence = segments.sequence + 1 & 0x7FFFFFFF
            suffix = suffix[:8] + segments.sequence.to_bytes(4, "big")
            if value is None:
                self._log(key + suffix, None, timestamp, headers)
                return self._delete_nothing(start)
        data = None if value is None else self._encode(value)
        is_live = segments.advance(start)
        if is_live:
            self._keep(key, suffix, data, start, timestamp)
        self._log(key + suffix, data, timestamp, headers)
        return is_live

    def _delete_nothing(self, start: int) -> bool:
        """A deletion where duplicates are kept: only the changelog takes notice, and the time of a store in memory."""
        return self._is_persistent or self._segments.advance(start)

    def _keep(self, key: bytes, suffix: bytes, data: bytes | None, start: int, timestamp: int) -> None:
        if data is not None and self.timestamped:
            data = pack_time(timestamp) + data
        self._rows.put(pack_time(start // self._interval) + key + suffix, data)
        self._recent.put(key, suffix, data)
        if self._segments.time_ordered:
            entry = suffix[:8] + key + suffix[8:]
            if data is None:
                self._segments.forget(entry)
            else:
                self._segments.index(entry)

    # --- reading --------------------------------------------------------------------------------------------------

    def _value(self, row: bytes) -> Value:
        """The value of a row, or (value, timestamp)."""
        return self._decode(row)

    def fetch(self, key: object, start: int) -> Value:
        """The value of ``key`` in the window that begins at ``start``; None if there is none (any more). Of duplicates the last
        one that was put."""
        require_times(start)
        return self.fetch_at(self._raw(key), start)

    def fetch_at(self, key: bytes, start: int) -> Value:
        """``fetch`` for the bytes of a key."""
        if self._duplicates:
            last = self.range_at(key, start, start, reverse=True)
            return last[0][1] if last else None
        if start < self._segments.oldest_shown:
            return None
        row = self._rows.get(pack_time(start // self._interval) + key + pack_time(start) + _FIRST)
        return None if row is None else self._value(row)

    def fetch_range(self, key: object, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, Value]]:
        """(start, value) of the windows of ``key`` that begin at ``first .. last``, in their order."""
        require_times(first, last)
        return iter(self.range_at(self._raw(key), first, last, reverse=reverse))

    def range_at(self, key: bytes, first: int, last: int, *, reverse: bool = False) -> list[tuple[int, Value]]:
        """``fetch_range`` for the bytes of a key, at once."""
        low = max(first, self._segments.oldest_shown, 0)
        if last < low or low > LONG_MAX:
            return []
        found = self._recent.between(key, low, last)
        value = self._value
        return [(unpack_time(suffix)[0], value(row)) for suffix, row in (reversed(found) if reverse else found)]

    def read_range(self, key: object, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, Value]]:
        """``fetch_range`` without the rows that are kept at hand: reads no more of the key's windows than are asked for."""
        require_times(first, last)
        shown_from = max(first, self._segments.oldest_shown, 0)
        found = self._segments.of_key(self._raw(key), _SUFFIX, shown_from, last, reverse=reverse)
        return ((unpack_time(suffix)[0], self._value(row)) for suffix, row in found)

    def fetch_all(self, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[Windowed, Value]]:
        """The windows of all keys that begin at ``first .. last``: segment by segment, each by key; of a store in memory, or one
        that is ordered by time, by start, then by key, as Kafka Streams' own.
        """
        require_times(first, last)
        return self._decoded(self._between(first, last, reverse=reverse, by_time=self._reads_by_time))

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed, Value]]:
        """All windows that are still shown."""
        return self.fetch_all(0, LONG_MAX, reverse=reverse)

    def fetch_keys(
        self, low: object, high: object, first: int = 0, last: int = LONG_MAX, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, Value]]:
        """Like ``fetch_all``, for keys whose bytes are in ``low .. high``, both included; None: no bound. Of a store ordered by
        time that has an index by key, in the order of that: segment by segment, each by key.
        """
        require_times(first, last)
        at_least, at_most = self.encode_key(low) or b"", self.encode_key(high)
        found = self._between(first, last, reverse=reverse, by_time=self._reads_keys_by_time)
        return self._decoded(row for row in found if at_least <= row[0] and (at_most is None or row[0] <= at_most))

    def _between(self, first: int, last: int, *, reverse: bool, by_time: bool) -> Iterator[tuple[bytes, int, bytes]]:
        """(key's bytes, start, row) of windows that begin at ``first .. last``: by start, or segment by segment, each by key."""
        low = max(first, self._segments.oldest_shown, 0)
        if last < low:
            return iter(())
        end = SEGMENTS_END if last >= LONG_MAX else pack_time(last // self._interval + 1)
        found: Iterable[tuple[bytes, bytes]] = self._rows.scan(pack_time(low // self._interval), end, reverse=reverse)
        if by_time:
            found = sorted(found, key=_start_and_key, reverse=reverse)
        starts = ((row_key, unpack_time(row_key, len(row_key) - _SUFFIX)[0], row) for row_key, row in found)
        return ((row_key[8:-_SUFFIX], start, row) for row_key, start, row in starts if low <= start <= last)

    def _decoded(self, rows: Iterable[tuple[bytes, int, bytes]]) -> Iterator[tuple[Windowed, Value]]:
        return ((self.window(key, start), self._value(row)) for key, start, row in rows)

    def _raw(self, key: object) -> bytes:
        return require_key(self.encode_key(key), "window")

    def window(self, key: bytes, start: int) -> Windowed:
        return Windowed(self.decode_key(key), start, self._end_of(start))

    # --- for operators --------------------------------------------------------------------------------------------

    def clock(self, node: str, *, is_alone: bool = True) -> Clock:
        """The clock of the operator ``node``, kept with the store; ``is_alone`` as in ``Segments.clock``."""
        return self._segments.clock(node, is_alone=is_alone)

    def take_closed(self, first: int, last: int) -> Iterator[tuple[Windowed, Value]]:
        """The windows of a time-ordered store that start at ``first .. last`` and have not expired; each is given once, and read
        when it is asked for: all of a batch that closes many would need a lot of memory.

        A store in memory gives those of a store on disk, which shows one ms more: Kafka Streams' hides, with the default
        retention, a tumbling window just when the next one closes it, and never gives one.
        """
        segments = self._segments
        for entry in segments.indexed(max(first, segments.observed - segments.retention), last):
            start, key = unpack_time(entry)[0], entry[8:-4]
            segments.forget(entry)
            row = self._rows.get(pack_time(start // self._interval) + key + entry[:8] + entry[-4:])
            if row is not None:
                yield self.window(key, start), self._value(row)

    def restore(self, key: bytes, value: bytes | None, timestamp: int, _headers: Headers = ()) -> None:
        """Applies a record of the changelog."""
        segments = self._segments
        prefix, suffix = key[:-_SUFFIX], key[-_SUFFIX:]
        start = unpack_time(suffix)[0]
        segments.sequence = max(segments.sequence, int.from_bytes(suffix[8:], "big"))
        if value is None and self._duplicates:
            self._delete_nothing(start)
        elif segments.advance(start):
            self._keep(prefix, suffix, value, start, timestamp)
        segments.restored(timestamp)

    def flush(self) -> None:
        """To be called at the end of a batch."""
        self._segments.flush()


class TimestampedWindowStore(WindowStore):
    """A window store whose values are (value, timestamp): TimestampedWindowStore, what aggregations use."""

    timestamped = True

    def put_at(self, key: bytes, value: object, start: int, timestamp: int, headers: Headers = ()) -> bool:
        """``put`` for the bytes of a key. ``headers``, of the record being processed, are logged with deletions in a store of the
        format with headers."""
        return super().put_at(key, value, start, timestamp, headers if value is None and self._with_headers else ())

    def _value(self, row: bytes) -> Value:
        return self._decode(row[8:]), unpack_time(row)[0]


def _start_and_key(row: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    row_key = row[0]
    return row_key[-12:-4], row_key[8:-12] + row_key[-4:]
