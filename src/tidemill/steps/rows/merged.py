"""The records that have arrived for one part of the topology, of all its entries and partitions, in the order of processing.

Decides the order alone, by ``seq``; decoding is `decoded`'s, and who takes the records `graph_step`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tidemill.steps.rows.decoded import DecodedRows

T = TypeVar("T")


class Merged:
    """All rows that have arrived, as parallel lists in which entries come one after the other. ``all`` and ``of`` give places in
    these lists in the order of ``seq``: of two entries' records with one ``seq`` the first entry's comes first."""

    def __init__(self, arrived: Sequence[DecodedRows]) -> None:
        self.keys = _joined([a.keys for a in arrived])
        self.values = _joined([a.values for a in arrived])
        self.timestamps = _joined([a.timestamps for a in arrived])
        self.headers = _joined([a.headers for a in arrived])
        self.offsets = _joined([a.offsets for a in arrived])
        self.nodes = _joined([[a.entry.node] * len(a.keys) for a in arrived])
        self.topics = _joined([a.topics() for a in arrived])
        self._by_part: dict[int, npt.NDArray[np.int64]] = {}
        self._order: npt.NDArray[np.int64] = np.arange(0)
        self.sequences: list[int] = []
        self.parts: list[int] = []
        if not arrived:
            return
        parts = np.concatenate([a.parts for a in arrived])
        sequences = np.concatenate([a.sequences for a in arrived])
        self.sequences = sequences.tolist()
        order = np.argsort(sequences, kind="stable")
        self.parts, self._order = parts.tolist(), order
        for part in np.unique(parts):
            self._by_part[int(part)] = order[parts[order] == part]

    def all(self) -> list[int]:
        """Places of all rows."""
        found: list[int] = self._order.tolist()
        return found

    def of(self, partition: int) -> list[int]:
        """Places of one partition's rows."""
        found = self._by_part.get(partition)
        return [] if found is None else found.tolist()


def _joined(lists: Sequence[list[T]]) -> list[T]:
    if len(lists) == 1:
        return lists[0]
    return [item for one in lists for item in one]
