"""One chunk of a scan over a store, forward or backward, as LMDB has it.

A chunk never ends inside a group of long keys (``keys``), so that the group can be sorted; where the next one begins is ``keys``'
matter, as is the order of what comes out. The transaction is the caller's, who ends it after each chunk.
"""

from __future__ import annotations

import lmdb

from tidemill.state.keys import are_of_one_group


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
    """As ``chunk_forward``, from before `end` down to `first`."""
    entries: list[tuple[bytes, bytes]] = []
    at_end = end is not None and cursor.set_range(end)
    if cursor.prev() if at_end else cursor.last():
        for key, value in cursor.iterprev():
            if key < first or (len(entries) >= size and not are_of_one_group(entries[-1][0], key)):
                break
            entries.append((key, value))
    return entries
