"""The partition time, which is the highest timestamp that was taken of an input, and the text in which a commit keeps it.

The text is Kafka Streams' own (TopicPartitionMetadata), so an instance in Java can continue where one of Tidemill has stopped,
and the other way round. It is the base64 of a version byte, the time as eight bytes and, from version 2 on, what processors of
the DSL keep:

    1 | time
    2 | time | number of entries (int) | length of the name (int), the name in UTF-8, value (long) | ...

Decides what a text means. One that can't be read means what Kafka takes it for: an unknown time, or a known one without the
entries behind it. The processors are those that emit on window close: a store's name, and up to which close time its windows were
emitted, which no changelog says. If several partitions of a task have an entry for one store, the highest counts. Entries of
other processors are carried from commit to commit.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tidemill.ids import TopicPartition
from tidemill.operators.record import UNKNOWN_TIME

_LATEST_VERSION = 2
_VERSION_AND_TIME = struct.Struct(">bq")
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_MOST_TEXT = 4_095
"""Brokers take 4096 characters unless they are set otherwise (``offset.metadata.max.bytes``), one of which is the zero byte that
confluent-kafka adds."""


class PartitionTime(NamedTuple):
    """``processors``: names and values that processors keep with a task's commits."""

    ms: int = UNKNOWN_TIME
    processors: tuple[tuple[str, int], ...] = ()


Times = Mapping[TopicPartition, PartitionTime]
"""Partition times of a task's inputs; one that is absent is unknown."""


def kept_by_processors(times: Iterable[PartitionTime]) -> dict[str, int]:
    """What the processors of a task keep with the times of its partitions."""
    found = dict[str, int]()
    for time in times:
        for name, value in time.processors:
            found[name] = max(found.get(name, value), value)
    return found


def keeping(times: Times, inputs: Collection[TopicPartition], kept: Mapping[str, int]) -> Times:
    """The times when the processors of the task that reads ``inputs`` keep these values, too."""
    if not kept:
        return times
    after = dict(times)
    for tp in inputs:
        time = after.get(tp, PartitionTime())
        merged = kept_by_processors([time, PartitionTime(processors=tuple(kept.items()))])
        after[tp] = time._replace(processors=tuple(sorted(merged.items())))
    return after


def metadata_of(time: PartitionTime) -> str:
    """The text for a commit."""
    data = _VERSION_AND_TIME.pack(_LATEST_VERSION, time.ms)
    if time.processors:
        data += _INT.pack(len(time.processors))
        for name, value in time.processors:
            encoded = name.encode()
            data += _INT.pack(len(encoded)) + encoded + _LONG.pack(value)
    return base64.b64encode(data).decode()


def from_metadata(text: str) -> tuple[PartitionTime, str]:
    """The time in a commit's text, and the problem with the text; both are empty for a commit without one."""
    if not text:
        return PartitionTime(), ""
    try:
        # Java needs no padding to read a text.
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        version, ms = _VERSION_AND_TIME.unpack_from(data)
    except (ValueError, struct.error) as problem:
        return PartitionTime(), f"it is not a partition time in base64: {problem}"
    if version not in (1, _LATEST_VERSION):
        return PartitionTime(), f"it is of version {version}, expected 1 or {_LATEST_VERSION}"
    known = PartitionTime(max(ms, UNKNOWN_TIME))
    rest = data[_VERSION_AND_TIME.size :]
    if version == 1 or not rest:
        return known, ""
    try:
        found = known._replace(processors=_entries(rest))
    except (ValueError, struct.error) as problem:
        return known, f"what processors keep there can't be read: {problem}"
    length = len(metadata_of(found))
    if length > _MOST_TEXT:
        return known, f"what processors keep there has {length} characters, of which {_MOST_TEXT} can be committed again"
    return found, ""


def _entries(data: bytes) -> tuple[tuple[str, int], ...]:
    (count,) = _INT.unpack_from(data)
    if count < 0:
        raise ValueError(f"{count} entries")
    at, found = _INT.size, dict[str, int]()
    for _ in range(count):
        (length,) = _INT.unpack_from(data, at)
        at += _INT.size
        if length < 0:
            raise ValueError(f"a name of {length} bytes")
        name = data[at : at + length].decode()
        (found[name],) = _LONG.unpack_from(data, at + length)
        at += length + _LONG.size
    return tuple(sorted(found.items()))
