"""Positions of a store's copies, as a lower bound for later reads (IQv2's Position and PositionBound, KIP-796).

Decides the text form, which clients keep and send back, and the order of positions. Unlike Kafka Streams' it counts
offsets of the store's changelog, which active and standbys have in common, and not of the topics that the store is made from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tidemill.errors import QueryError
from tidemill.spellings import Spelled

_TEXT = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Position(Spelled):
    """Offsets of a store's changelog, by partition: nothing that was read comes from behind them.

    A read with ``position=`` is answered by copies that are at least as far; merged with the position of each answer, no answer
    is older than one before it (monotonic reads). ``str`` gives the text that ``parse`` and HTTP take: ``0:57,2:103``.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Position:
        """QueryError if the text is no position."""
        if not _TEXT.fullmatch(text):
            raise QueryError(f"position is {text[:80]!r}, expected partition:offset with commas between, such as 0:57,2:103")
        return cls().merged(*(cls({int(p): int(at)}) for p, at in (part.split(":") for part in text.split(","))))

    def merged(self, *others: Position) -> Position:
        """The later offset of each partition."""
        found = dict(self.offsets)
        for other in others:
            for partition, offset in other.offsets.items():
                found[partition] = max(offset, found.get(partition, 0))
        return Position(found)

    def of(self, partitions: Collection[int]) -> Position:
        """The position in these partitions only."""
        return Position({partition: offset for partition, offset in self.offsets.items() if partition in partitions})

    def __str__(self) -> str:
        return ",".join(f"{partition}:{offset}" for partition, offset in sorted(self.offsets.items()))
