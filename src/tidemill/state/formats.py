"""How a record of a changelog becomes an entry of a store and back: Kafka Streams' layouts, big endian.

    store kind    in the store                    in the changelog
    plain         value                           value; the record's timestamp is that of the input, the store drops it
    timestamped   timestamp (8, signed) | value   value; the timestamp is the record's

A null value is a deletion on both sides; in a store it is never stored. Keys are the same on both sides. The functions take whole
lists, because a batch does; what a value means is the serde's matter.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum

TIMESTAMP_SIZE = 8


class StoreFormat(Enum):
    """What a store keeps beside the value."""

    PLAIN = "plain"
    TIMESTAMPED = "timestamped"


def stored_values(store_format: StoreFormat, values: Sequence[bytes | None], timestamps_ms: Sequence[int]) -> list[bytes | None]:
    """Changelog (or result) values as the store keeps them; None stays None."""
    if len(values) != len(timestamps_ms):
        raise ValueError(f"{len(values)} values, but {len(timestamps_ms)} timestamps")
    if store_format is StoreFormat.PLAIN:
        return list(values)
    packed = struct.pack(f">{len(timestamps_ms)}q", *timestamps_ms)
    starts = range(0, len(packed), TIMESTAMP_SIZE)
    return [None if value is None else packed[at : at + TIMESTAMP_SIZE] + value for at, value in zip(starts, values, strict=True)]


def logged_values(store_format: StoreFormat, stored: Sequence[bytes | None]) -> list[bytes | None]:
    """What the store keeps as the values of changelog records."""
    if store_format is StoreFormat.PLAIN:
        return list(stored)
    return [None if entry is None else _checked(entry)[TIMESTAMP_SIZE:] for entry in stored]


def timestamps_ms(stored: Sequence[bytes | None], *, missing: int = -1) -> list[int]:
    """The timestamps of a timestamped store's entries; `missing` for None."""
    if None not in stored:
        heads = b"".join(_checked(entry)[:TIMESTAMP_SIZE] for entry in stored if entry is not None)
        return list(struct.unpack(f">{len(stored)}q", heads))
    return [
        missing if entry is None else int.from_bytes(_checked(entry)[:TIMESTAMP_SIZE], "big", signed=True) for entry in stored
    ]


def _checked(entry: bytes) -> bytes:
    if len(entry) < TIMESTAMP_SIZE:
        raise ValueError(
            f"an entry of {len(entry)} bytes in a timestamped store, which needs at least {TIMESTAMP_SIZE}: "
            "was the store written by a topology with another kind of store under this name?"
        )
    return entry
