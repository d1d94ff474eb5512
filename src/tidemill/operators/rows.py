"""Rows of one store of one task as operators' stores see them: bytes, this batch's own writes included.

The contract between ``stores`` (what a row means) and what holds the rows: the overlay over a task's state in a worker,
a sorted dictionary in tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Rows(Protocol):
    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, row: bytes | None) -> None:
        """Writes a row, None deletes; seen by later reads, applied when the batch has been committed."""

    def scan(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``low <= key < high`` in the order of their keys' bytes, as they are now: rows put meanwhile are not seen."""

    def entries(self) -> int:
        """The number of rows, as they are now."""

    def log(
        self, key: bytes, value: bytes | None, timestamp: int | None, headers: tuple[tuple[str, bytes | None], ...] = ()
    ) -> None:
        """Sends a changelog record; nothing if the store is not logged. Its bytes are Kafka Streams', the row's are our own.

        ``timestamp`` None: the producer puts the time at which it sends, as for the buffers of suppress and joins.
        """


def require_key(key: bytes | None, kind: str) -> bytes:
    """The bytes of a key whose row is read or written; ValueError for null."""
    if key is None:
        raise ValueError(f"a {kind} store has no null keys")
    return key
