"""The rows of a windowed store that its operators still see, kept in memory by key from batch to batch.

What a window or session store shows ends with its retention, often long before its segments are dropped, so it is few rows
that all reads of a batch go to. Decides when memory holds *all* of them, so that a key that is not there has none: from the
start where there are not too many, or once all that was there before is hidden. Otherwise a key is read when it is first met.
Invariant: the rows of a key are all that the store shows of it; each write to the store is made here too.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from struct import Struct

from tidemill.dsl.serdes import BooleanSerde, BytesSerde, DoubleSerde, FloatSerde, StringSerde, UUIDSerde, WholeNumberSerde
from tidemill.operators.segments import SEGMENTS_END, Segments, pack_time

LIMIT = 200_000
IMMUTABLE = (StringSerde, BytesSerde, WholeNumberSerde, DoubleSerde, FloatSerde, BooleanSerde, UUIDSerde)
"""Serdes of immutable values, which can be remembered; of others the bytes are."""
_SLACK = 20_000
Shown = tuple[int, int, object]
"""(time, number among rows of one time, the row or its meaning); they are kept in this order."""


class ShownRows:
    """``suffix``: what row keys end with, a time and a number. ``read``: what is kept of a row."""

    __slots__ = ("_after", "_count", "_limit", "_read", "_suffix", "_sweep_at", "by_key", "is_complete")

    def __init__(self, suffix: Struct, read: Callable[[bytes], object], limit: int = LIMIT) -> None:
        self._suffix, self._read, self._limit = suffix, read, limit
        self.by_key: dict[bytes, list[Shown]] = {}
        self.is_complete = False
        self._after = -1
        """Until the store hides all up to this time, a key that is not there may have rows."""
        self._count, self._sweep_at = 0, _SLACK

    def load(self, segments: Segments) -> None:
        """Reads what the store shows; to be called once, before the first batch."""
        self._after = segments.observed
        since = max(segments.oldest_shown, 0)
        rows = segments.rows.scan(pack_time(since // segments.interval), SEGMENTS_END)
        suffix, end, count = self._suffix.unpack_from, self._suffix.size, 0
        for row_key, row in islice(rows, self._limit + 1):
            count += 1
            time, number = suffix(row_key, len(row_key) - end)
            if time >= since:
                self.by_key.setdefault(row_key[8:-end], []).append((time, number, self._read(row)))
        if count > self._limit:
            self.by_key.clear()
            return
        for found in self.by_key.values():
            found.sort(key=shown_order)
        self.is_complete, self._count = True, count

    def of(self, key: bytes, segments: Segments) -> list[Shown]:
        """The rows of ``key``, and maybe some that are hidden by now. Changed by those who write to the store."""
        found = self.by_key.get(key)
        if found is None:
            found = [] if self.is_complete else self._scanned(key, segments)
            self.by_key[key] = found
            self._count += 1
        return found

    def _scanned(self, key: bytes, segments: Segments) -> list[Shown]:
        since = max(segments.oldest_shown, 0)
        low, length = pack_time(since), 8 + len(key) + self._suffix.size
        found = []
        for segment in range(since // segments.interval, segments.observed // segments.interval + 1):
            prefix = pack_time(segment) + key
            for row_key, row in segments.rows.scan(prefix + low, prefix + b"\x80"):
                if len(row_key) == length:
                    time, number = self._suffix.unpack_from(row_key, 8 + len(key))
                    found.append((time, number, self._read(row)))
        self._count += len(found)
        return found

    def added(self, count: int, segments: Segments) -> None:
        """Ends a batch that has added ``count`` rows."""
        self._count += count
        since = segments.oldest_shown
        if not self.is_complete and since > self._after and self._count <= self._limit:
            self.is_complete = True
        if self._count > self._sweep_at:
            self._sweep(since)
        if self._count > self._limit:
            # More than is kept in memory: from here on key by key. What is known of keys stays true, but it must not grow.
            if not self.is_complete:
                self.by_key.clear()
                self._count = 0
            self.is_complete, self._after = False, segments.observed

    def _sweep(self, since: int) -> None:
        """Forgets what is hidden by now, and keys that have nothing left."""
        still = ((key, found) for key, found in self.by_key.items() if found and found[-1][0] >= since)
        self.by_key = {key: [shown for shown in found if shown[0] >= since] for key, found in still}
        self._count = len(self.by_key) + sum(map(len, self.by_key.values()))
        self._sweep_at = 2 * self._count + _SLACK


def shown_order(shown: Shown) -> tuple[int, int]:
    """The sort key of rows of one key."""
    return shown[0], shown[1]
