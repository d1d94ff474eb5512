"""Records as bytes at the ends of a plan: as a consumer fetches them, and as columns for a producer.

Decides only the shapes. Steps take and make them without a client; what a consumer gives is checked by ``kafka.data.reader``,
how records are written is ``kafka.data.record_producer``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Headers = Sequence[tuple[str, bytes | None]]
"""Headers of a record in their order; a name may come more than once."""


class FetchedRecord(Protocol):
    """A record of a topic, with the methods of confluent-kafka's Message; its length is that of its value, in bytes."""

    def topic(self) -> str: ...

    def partition(self) -> int: ...

    def offset(self) -> int: ...

    def timestamp(self) -> tuple[int, int]:
        """Its type, and milliseconds since the epoch."""

    def key(self) -> bytes | None: ...

    def value(self) -> bytes | None: ...

    def headers(self) -> Headers | None: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records for one topic, as columns of equal length: keys and values as bytes, timestamps in ms since 1970.

    ``partitions`` None: the partitioner places all of them by their keys; -1 in it: this one. ``headers`` None: there are none.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    partitions: Sequence[int] | None = None
    headers: Sequence[Headers | None] | None = None

    def __len__(self) -> int:
        return len(self.keys)
