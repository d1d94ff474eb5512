"""The rows of the keys that were used last, kept at hand by key: they spare window and session stores most of their scans.

Holds bytes only, so that changing a value that was read changes nothing here. The store reports every write;
when there are too many rows, all are dropped and read again when needed. Of a key that has many of them only those of the times
that are asked for are read from then on: a few such keys are too many, and would be read as a whole again and again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from tidemill.operators.segments import LONG_MAX, Segments, pack_time

LIMIT = 200_000
MANY = 1_000
"""Rows of a key, from which on it is not read as a whole again."""


class RecentRows:
    """Rows by key; of each key all that live, as (suffix, row), where the suffix begins with the time and sorts."""

    __slots__ = ("_by_key", "_count", "_limit", "_of_many", "_segments", "_suffix")

    def __init__(self, segments: Segments, suffix: int, limit: int = LIMIT) -> None:
        self._segments, self._suffix, self._limit = segments, suffix, limit
        self._by_key: dict[bytes, list[tuple[bytes, bytes]]] = {}
        self._count = 0
        self._of_many: set[bytes] = set()

    def between(self, key: bytes, first: int, last: int) -> Sequence[tuple[bytes, bytes]]:
        """The rows of ``key`` that live, of the times ``first .. last``."""
        if key in self._of_many:
            return list(self._segments.of_key(key, self._suffix, first, last))
        found = self.of(key)
        end = len(found) if last >= LONG_MAX else bisect_left(found, (pack_time(last + 1),))
        return found[bisect_left(found, (pack_time(first),)) : end]

    def since(self, key: bytes, first: int) -> Iterator[tuple[bytes, bytes]]:
        """The rows of ``key`` that live, of the time ``first`` and later; to be read before anything is written."""
        if key in self._of_many:
            return self._segments.of_key(key, self._suffix, first)
        found = self.of(key)
        return (found[at] for at in range(bisect_left(found, (pack_time(first),)), len(found)))

    def of(self, key: bytes) -> Sequence[tuple[bytes, bytes]]:
        """The rows of ``key`` that live, in their order; to be read before anything is written."""
        found = self._by_key.get(key)
        if found is None:
            found = self._read(key)
        elif found and found[0][0] < self._segments.floor:
            expired = bisect_left(found, (self._segments.floor,))
            del found[:expired]
            self._count -= expired
        return found

    def put(self, key: bytes, suffix: bytes, row: bytes | None) -> None:
        """Says that a row was written, None = deleted."""
        found = self._by_key.get(key)
        if found is None:
            return
        at = bisect_left(found, (suffix,))
        exists = at < len(found) and found[at][0] == suffix
        if row is None:
            if exists:
                del found[at]
                self._count -= 1
        elif exists:
            found[at] = suffix, row
        else:
            insort(found, (suffix, row))
            self._count += 1

    def clear(self) -> None:
        """Forgets everything."""
        self._by_key.clear()
        self._count = 0

    def _read(self, key: bytes) -> list[tuple[bytes, bytes]]:
        if self._count > self._limit:
            self._of_many.update(known for known, rows in self._by_key.items() if len(rows) > MANY)
            self.clear()
        found = self._by_key[key] = list(self._segments.of_key(key, self._suffix))
        self._count += len(found) + 1
        return found
