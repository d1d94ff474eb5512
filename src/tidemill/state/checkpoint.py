"""Kafka's text format of `.checkpoint`: which changelog record was the last one applied, per changelog partition.

    0                                  version; only 0 exists
    2                                  number of entries
    app-counts-store-changelog 0 41    topic partition offset

The offset is that of the last *applied* record, one less than the next to read (end offsets 2, 8, 6, 4 give 1, 7, 5, 3); -4 says
that the partition is known but nothing is. Reading and writing files is ``directory``'s matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.ids import TopicPartition

VERSION = 0
OFFSET_UNKNOWN = -4


def offset_of_position(position: int) -> int:
    """The checkpoint's offset of a store whose next record to read is `position`."""
    return position - 1 if position > 0 else OFFSET_UNKNOWN


def position_of_offset(offset: int) -> int:
    """The next record to read after a checkpoint's `offset`; 0 if that is unknown."""
    return 0 if offset == OFFSET_UNKNOWN else offset + 1


def render(offsets: Mapping[TopicPartition, int]) -> str:
    """The file's text, entries sorted by topic and partition."""
    for partition, offset in offsets.items():
        if not _is_offset(offset):
            raise ValueError(f"{partition}: {offset} is not an offset (0 or more, or {OFFSET_UNKNOWN} for unknown)")
    lines = [f"{at.topic} {at.partition} {offsets[at]}" for at in sorted(offsets)]
    return "\n".join([str(VERSION), str(len(offsets)), *lines]) + "\n"


def parse(text: str) -> dict[TopicPartition, int]:
    """The file's entries. Raises ValueError that says which line is wrong and what was expected."""
    lines = text.splitlines()
    if len(lines) < 2:
        raise ValueError(f"{len(lines)} lines, where version and number of entries take two")
    version, count = (_number(line, number, "a number") for number, line in enumerate(lines[:2], 1))
    if version != VERSION:
        raise ValueError(f"version {version}, where only {VERSION} is known")
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines[2:], 3):
        fields = line.split()
        if len(fields) != 3:
            raise ValueError(f"line {number} is {line!r}, where `topic partition offset` was expected")
        partition = TopicPartition(fields[0], _number(fields[1], number, "a partition"))
        offset = _number(fields[2], number, "an offset")
        if partition.partition < 0 or not _is_offset(offset) or partition in offsets:
            raise ValueError(f"line {number} is {line!r}: a negative number, or a partition for the second time")
        offsets[partition] = offset
    if len(offsets) != count:
        raise ValueError(f"{len(offsets)} entries, where line 2 announces {count}")
    return offsets


def _is_offset(offset: int) -> bool:
    return offset >= 0 or offset == OFFSET_UNKNOWN


def _number(text: str, line: int, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"line {line} has {text!r}, where {what} was expected") from None
