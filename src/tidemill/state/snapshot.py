"""Many reads of one task's state from one transaction: what a batch that works record by record reads from.

A transaction of its own for each read costs forty times the read. Invariant: a snapshot is closed before its state is written
or grows; while it is open, LMDB can't reuse what was freed meanwhile, so it lives no longer than a batch. Keys that are too
long for LMDB are ``keys``' matter, but a chunk of a scan never ends inside a group of them, so that the group can be sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import lmdb

from tidemill.errors import StateError
from tidemill.state import keys as store_keys
from tidemill.state import meta
from tidemill.state.keys import are_of_one_group
from tidemill.state.store import Positions, unknown_store

T = TypeVar("T")

_FIRST_CHUNK, _CHUNK = 64, 1000


class Snapshot:
    """The stores of a state as they were when it was made. Made by ``TaskState.snapshot`` only; for one thread."""

    def __init__(
        self, directory: Path, transaction: lmdb.Transaction[bytes], databases: Mapping[str, lmdb._Database],
        meta_database: lmdb._Database,
    ) -> None:  # fmt: skip
        self._directory, self._transaction, self._meta = directory, transaction, meta_database
        self._databases = _ByStore(directory, databases)
        cursors = {store: transaction.cursor(handle) for store, handle in databases.items()}
        self._cursors = _ByStore(directory, cursors)
        self._gets = _ByStore(directory, {store: cursor.get for store, cursor in cursors.items()})

    def positions(self) -> Positions:
        """Positions of the stores when the snapshot was made."""
        return meta.read_positions(self._transaction, self._meta)

    def get(self, store: str, key: bytes) -> bytes | None:
        if len(key) <= store_keys.SHORT_LIMIT:
            return self._gets[store](store_keys.PREFIX + key)
        encoded = store_keys.encode(key)
        value = self._gets[store](encoded)
        return None if value is None else store_keys.unwrap_value(encoded, value, self._directory)[1]

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(store, key) for key in keys]

    def entries(self, store: str) -> int:
        return self._transaction.stat(self._databases[store])["entries"]

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``low <= key < high`` in the order of their keys' bytes (unsigned)."""
        first = b"" if low is None else store_keys.scan_start(low)
        end = None if high is None else store_keys.scan_end(high)
        chunk = chunk_backward if reverse else chunk_forward
        entries = chunk(self._cursors[store], first, end, _FIRST_CHUNK)
        if not entries:
            return iter(())
        found = store_keys.decode_in_order(entries, self._directory, reverse=reverse)
        if len(entries) >= _FIRST_CHUNK:
            return self._scan_on(store, low, high, first, end, found, entries[-1][0], reverse)
        return iter(_within(found, low, high))

    def _scan_on(
        self, store: str, low: bytes | None, high: bytes | None, first: bytes, end: bytes | None,
        found: list[tuple[bytes, bytes]], last: bytes, reverse: bool,
    ) -> Iterator[tuple[bytes, bytes]]:
        chunk = chunk_backward if reverse else chunk_forward
        while True:
            yield from _within(found, low, high)
            if reverse:
                end = store_keys.resume_before(last)
            else:
                first = store_keys.resume_after(last)
            entries = chunk(self._cursors[store], first, end, _CHUNK)
            if not entries:
                return
            found, last = store_keys.decode_in_order(entries, self._directory, reverse=reverse), entries[-1][0]


class _ByStore(dict[str, T]):
    def __init__(self, directory: Path, found: Mapping[str, T]) -> None:
        super().__init__(found)
        self._directory = directory

    def __missing__(self, store: str) -> T:
        raise StateError(unknown_store(str(self._directory), store, tuple(self)))


def _within(found: list[tuple[bytes, bytes]], low: bytes | None, high: bytes | None) -> list[tuple[bytes, bytes]]:
    """Without what a scan over long keys has met outside its bounds; only its ends can hold such."""
    if found and ((low is not None and min(found[0][0], found[-1][0]) < low)
                  or (high is not None and max(found[0][0], found[-1][0]) >= high)):
        return [(key, row) for key, row in found if (low is None or key >= low) and (high is None or key < high)]
    return found


def chunk_forward(cursor: lmdb.Cursor[bytes], first: bytes, end: bytes | None, size: int) -> list[tuple[bytes, bytes]]:
    """Entries from `first` on and before `end`: `size`, and the rest of a group of long keys once begun; fewer at the end."""
    entries: list[tuple[bytes, bytes]] = []
    if cursor.set_range(first) if first else cursor.first():
        for key, value in cursor:
            if end is not None and key >= end:
                break
            if len(entries) >= size and not are_of_one_group(entries[-1][0], key):
                break
            entries.append((key, value))
    return entries


def chunk_backward(cursor: lmdb.Cursor[bytes], first: bytes, end: bytes | None, size: int) -> list[tuple[bytes, bytes]]:
    """Like ``chunk_forward``, backwards: from before ``end`` down to ``first``."""
    entries: list[tuple[bytes, bytes]] = []
    at_end = end is not None and cursor.set_range(end)
    if cursor.prev() if at_end else cursor.last():
        for key, value in cursor.iterprev():
            if key < first or (len(entries) >= size and not are_of_one_group(entries[-1][0], key)):
                break
            entries.append((key, value))
    return entries
