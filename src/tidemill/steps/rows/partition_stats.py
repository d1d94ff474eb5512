"""What a micro-batch has read of each input partition: how many records, up to which one, and how old they are.

Decides that this is counted on whole chunks, in columns: a record costs nothing of its own. Records without a usable timestamp
(a negative one) count, and have no age.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from tidemill.ids import TopicPartition
from tidemill.task.batch import Arrived


def add_arrivals(
    known: dict[TopicPartition, Arrived], ends: dict[TopicPartition, int], topics: Sequence[str], distinct: Collection[str],
    rows: pa.RecordBatch,
) -> None:  # fmt: skip
    """Adds a chunk: the topic of each of its records, the different ones, and its rows with the control row at their end.
    ``ends``: behind the last record of each partition."""
    parts, times, offsets = (rows.column(name).to_numpy()[:-1] for name in ("part", "ts", "off"))
    if len(distinct) == 1:
        _add(known, ends, next(iter(distinct)), parts, times, offsets)
        return
    which = np.asarray(topics)
    for name in sorted(distinct):
        mine = which == name
        _add(known, ends, name, parts[mine], times[mine], offsets[mine])


def _add(
    known: dict[TopicPartition, Arrived], ends: dict[TopicPartition, int], topic: str, parts: np.ndarray, times: np.ndarray,
    offsets: np.ndarray,
) -> None:  # fmt: skip
    order = np.argsort(parts, kind="stable")
    numbers, begins = np.unique(parts[order], return_index=True)
    last = np.maximum.reduceat(offsets[order], begins).tolist()
    ends.update((TopicPartition(topic, number), at + 1) for number, at in zip(numbers.tolist(), last, strict=True))
    for number, mine in zip(numbers.tolist(), np.split(times[order], begins[1:]), strict=True):
        timed = mine[mine >= 0]
        found = Arrived(
            records=len(mine),
            timed=len(timed),
            oldest_ms=int(timed.min()) if len(timed) else 0,
            newest_ms=int(timed.max()) if len(timed) else 0,
            sum_ms=int(timed.sum()) if len(timed) else 0,
        )
        partition = TopicPartition(topic, number)
        before = known.get(partition)
        known[partition] = found if before is None else before.plus(found)
