"""Which input records a micro-batch holds: what ``foreach_batch`` gives a function, to recognise records that come again.

After a crash a batch is cut again, from the same begin but perhaps to another end, together with other partitions, and maybe on
another instance: no number of a batch would be the same. What stays is where each partition's records stand, so that is the
identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidemill.ids import TopicPartition


class OffsetRange(NamedTuple):
    """Offsets of an input partition, ``start`` included, ``end`` not. Markers count too, so ``end`` may be beyond its last
    record."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BatchId:
    """``ranges``: what the batch has read of each input partition of the node's sub-topology.

    A batch that comes again begins where it began before (under ``at_least_once`` where a batch before it did).
    """

    ranges: Mapping[TopicPartition, OffsetRange]

    def __str__(self) -> str:
        return ",".join(f"{tp.topic}-{tp.partition}:{at.start}-{at.end}" for tp, at in sorted(self.ranges.items()))

    def __hash__(self) -> int:
        return hash(str(self))

    def to_rows(self) -> list[tuple[str, int, int, int]]:
        """For JSON."""
        return [(*tp, *at) for tp, at in sorted(self.ranges.items())]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, int, int, int]]) -> BatchId:
        """The id of which ``to_rows`` gave these."""
        return cls({TopicPartition(topic, partition): OffsetRange(start, end) for topic, partition, start, end in rows})
