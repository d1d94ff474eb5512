"""Kafka's text format of `.checkpoint`: which changelog record was the last one applied, per changelog partition.

    0                                  version; only 0 exists
    2                                  number of entries
    app-counts-store-changelog 0 41    topic partition offset

The offset is that of the last *applied* record, one less than the next to read (end offsets 2, 8, 6, 4 give 1, 7, 5, 3); -4 says
that the partition is known but nothing is. It is written for people and tools and never read: what counts is in the state.
``directory`` reads and writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.ids import TopicPartition

VERSION = 0
OFFSET_UNKNOWN = -4


def offset_of_position(position: int) -> int:
    """The checkpoint's offset of a store whose next record to read is `position`."""
    return position - 1 if position > 0 else OFFSET_UNKNOWN


def render(offsets: Mapping[TopicPartition, int]) -> str:
    """The file's text, entries sorted by topic and partition."""
    for partition, offset in offsets.items():
        if not _is_offset(offset):
            raise ValueError(f"{partition}: {offset} is not an offset (0 or more, or {OFFSET_UNKNOWN} for unknown)")
    lines = [f"{at.topic} {at.partition} {offsets[at]}" for at in sorted(offsets)]
    return "\n".join([str(VERSION), str(len(offsets)), *lines]) + "\n"


def _is_offset(offset: int) -> bool:
    return offset >= 0 or offset == OFFSET_UNKNOWN
