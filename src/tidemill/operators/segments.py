"""Rows that expire with time, in segments: the common part of window and session stores.

A row's key begins with the number of its segment (8 bytes), which its time decides: ``time // interval``. Decides what is live
and what may still be seen, with Kafka Streams' rules. Stream time is the highest time that was written. What lies in a segment
older than stream time - retention is refused and deleted. What is older than stream time - retention, to the millisecond, is not
shown; a store that is not persistent refuses it, too. The stores decide what a row means.

After the segments (no segment's number begins with 0xfe or 0xff) come rows that have no changelog: an index by time for
emit on window close, and the clocks. A restored store has no clocks: its operator's begins where its changelog's timestamps
end, and those of several operators (cogroup) before all time, as in Kafka Streams. The task's commits say up to where windows
were emitted (``task.partition_time``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct

from tidemill.operators.rows import Rows

LONG_MAX = (1 << 63) - 1
_MIN_INTERVAL_MS = 60_000
_INDEX = b"\xfe"
_META = b"\xff"
_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")
_META_FORMAT = Struct(">qqi")
pack_time, unpack_time = _LONG.pack, _LONG.unpack_from


@dataclass(slots=True)
class Clock:
    """One operator's clock: the highest timestamp it saw, and up to which close time it emitted (-1: none yet)."""

    stream_time: int = -1
    emitted: int = -1


def emitted_in(rows: Mapping[bytes, bytes | None]) -> int:
    """The close time up to which an operator has emitted, by the rows that a batch has written; -1: they don't say it."""
    found = (row for key, row in rows.items() if key[:1] == _META and key != _META)
    return max((_TWO_LONGS.unpack(row)[1] for row in found if row is not None), default=-1)


def interval_of(retention_ms: int) -> int:
    """Length of a segment, in ms. Two of them cover the retention, as in Kafka Streams (WindowStore.segmentInterval)."""
    return max(retention_ms // 2, _MIN_INTERVAL_MS)


class Segments:
    """The segments of one store of one task, from ``min_live`` on; ``floor`` is its first time, in bytes.

    ``time_ordered``: keeps an index by time. ``shows_one_more``: rows are shown for one ms more. ``reach``: rows are kept and
    shown for this time (ms) at least, while the segments' length follows from ``retention``.
    """

    __slots__ = (
        "_clocks", "_kept", "_kept_clocks", "_lag", "floor", "interval", "is_exact", "latest", "min_live", "observed",
        "retention", "rows", "sequence", "time_ordered",
    )

    def __init__(
        self, rows: Rows, retention: int, *, persistent: bool, time_ordered: bool, shows_one_more: bool = False, reach: int = 0
    ) -> None:
        self.rows = rows
        self.interval = interval_of(retention)
        retention = max(retention, reach)
        self.time_ordered = time_ordered
        self.retention = retention
        self.is_exact = not persistent
        self._lag = retention if shows_one_more and persistent else retention - 1
        kept = rows.get(_META)
        self._kept: tuple[int, int, int] = (-1, -1, 0) if kept is None else _META_FORMAT.unpack(kept)
        self.observed, self.latest, self.sequence = self._kept
        self.min_live = self._oldest_segment()
        self.floor = pack_time(self.min_live * self.interval)
        self._clocks: dict[str, Clock] = {}
        self._kept_clocks: dict[str, tuple[int, int]] = {}

    @property
    def oldest_shown(self) -> int:
        """Rows of earlier times are hidden."""
        return self.observed - self._lag

    def advance(self, time: int) -> bool:
        """Advances stream time to ``time``; old segments are deleted. False: ``time`` itself has expired."""
        if time > self.observed:
            self.observed = time
            oldest = self._oldest_segment()
            if oldest > self.min_live:
                self._delete_before(oldest)
        if self.is_exact:
            return time > self.observed - self.retention
        return time // self.interval >= self.min_live

    def _oldest_segment(self) -> int:
        return max(self.observed - self.retention, 0) // self.interval

    def _delete_before(self, oldest: int) -> None:
        rows = self.rows
        expired = [key for key, _ in rows.scan(pack_time(self.min_live), pack_time(oldest))]
        if self.time_ordered:
            expired += [key for key, _ in rows.scan(_INDEX, _INDEX + pack_time(oldest * self.interval))]
        for key in expired:
            rows.put(key, None)
        self.min_live, self.floor = oldest, pack_time(oldest * self.interval)

    def of_key(
        self, key: bytes, suffix: int, first: int = 0, last: int = LONG_MAX, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(suffix, row) of the live rows of ``key`` with times ``first .. last``, in their order, each read when it is asked for.
        ``suffix``: its length; it begins with the time."""
        low, high = max(first, self.min_live * self.interval), min(last, self.observed)
        at, length = 8 + len(key), 8 + len(key) + suffix
        segments = range(low // self.interval, high // self.interval + 1) if low <= high else range(0)
        for segment in reversed(segments) if reverse else segments:
            prefix = pack_time(segment) + key
            end = prefix + (pack_time(high + 1) if high < LONG_MAX else b"\x80")
            for row_key, row in self.rows.scan(prefix + pack_time(low), end, reverse=reverse):
                if len(row_key) == length:
                    yield row_key[at:], row

    # --- the index by time ----------------------------------------------------------------------------------------

    def index(self, entry: bytes) -> None:
        """Remembers a row until it is emitted; ``entry`` begins with its time."""
        self.rows.put(_INDEX + entry, b"")

    def forget(self, entry: bytes) -> None:
        self.rows.put(_INDEX + entry, None)

    def indexed(self, first: int, last: int) -> list[bytes]:
        """Entries of the times ``first .. last``, in their order."""
        if last < first:
            return []
        low, high = _INDEX + pack_time(max(first, 0)), _META if last >= LONG_MAX else _INDEX + pack_time(last + 1)
        return [key[1:] for key, _ in self.rows.scan(low, high)]

    # --- clocks ---------------------------------------------------------------------------------------------------

    def clock(self, node: str, *, is_alone: bool = True) -> Clock:
        """The clock of the operator ``node``, as of the last batch that counted; of a restored store, where its changelog's
        timestamps end. ``is_alone``: no other operator writes to the store, whose times those may be."""
        if node not in self._clocks:
            kept = self.rows.get(_META + node.encode())
            stream_time, emitted = (-1, -1) if kept is None else _TWO_LONGS.unpack(kept)
            self._kept_clocks[node] = (stream_time, emitted)
            self._clocks[node] = Clock(max(stream_time, self.latest) if is_alone else stream_time, emitted)
        return self._clocks[node]

    def restored(self, timestamp: int) -> None:
        """Takes note of a changelog record's timestamp."""
        if timestamp > self.latest:
            self.latest = timestamp
        self.flush()

    def flush(self) -> None:
        """Writes the clocks that have moved."""
        now = (self.observed, self.latest, self.sequence)
        if now != self._kept:
            self._kept = now
            self.rows.put(_META, _META_FORMAT.pack(*now))
        for node, clock in self._clocks.items():
            times = (clock.stream_time, clock.emitted)
            if times != self._kept_clocks[node]:
                self._kept_clocks[node] = times
                self.rows.put(_META + node.encode(), _TWO_LONGS.pack(*times))


SEGMENTS_END = _INDEX
"""The row key before which all segments lie."""
