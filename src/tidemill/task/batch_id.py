"""Identity of a micro-batch: the offsets of its input records, by which a ``foreach_batch`` function recognises repetitions.

After a crash batches are cut differently: from the same offsets but perhaps to other ends, with other partitions, on another
instance. So no batch number is stable; only the offsets of each partition are.
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
        """The ranges as (topic, partition, start, end), for JSON."""
        return [(*tp, *at) for tp, at in sorted(self.ranges.items())]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, int, int, int]]) -> BatchId:
        """The id that ``to_rows`` gave as these rows."""
        return cls({TopicPartition(topic, partition): OffsetRange(start, end) for topic, partition, start, end in rows})
