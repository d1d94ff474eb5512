"""Statistics of the records that a micro-batch has read of each input partition: number, last offset, timestamps.

Decides that this is counted on whole chunks, in columns: a record costs nothing of its own. Records without a usable timestamp
(a negative one), and those that can't be read, count and have no age: time moves on by what is processed alone, as in Kafka
Streams, whose ``RecordQueue`` passes over the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tidemill.ids import TopicPartition
from tidemill.operators.record import UNKNOWN_TIME
from tidemill.steps.rows.schema import UNREADABLE
from tidemill.task.batch import PartitionStats

_LATEST = np.iinfo(np.int64).max


def add_chunk(
    known: dict[TopicPartition, PartitionStats],
    ends: dict[TopicPartition, int],
    topics: Sequence[str],
    distinct: Collection[str],
    rows: pa.RecordBatch,
) -> None:
    """Adds a chunk: the topic of each of its records, the different ones, and its rows with the control row at their end.
    ``ends``: behind the last record of each partition."""
    nodes, parts, times, offsets = (rows.column(name).to_numpy()[:-1] for name in ("node", "part", "ts", "off"))
    times = np.where(nodes == UNREADABLE, UNKNOWN_TIME, times)
    if len(distinct) == 1:
        _add(known, ends, next(iter(distinct)), parts, times, offsets)
        return
    which = np.asarray(topics)
    for name in sorted(distinct):
        mine = which == name
        _add(known, ends, name, parts[mine], times[mine], offsets[mine])


def _add(
    known: dict[TopicPartition, PartitionStats],
    ends: dict[TopicPartition, int],
    topic: str,
    parts: np.ndarray,
    times: np.ndarray,
    offsets: np.ndarray,
) -> None:
    order = np.argsort(parts, kind="stable")
    numbers, begins, counts = np.unique(parts[order], return_index=True, return_counts=True)
    times = times[order]
    is_timed = times >= 0
    ages = np.where(is_timed, times, 0)
    of_each = (
        counts,
        np.add.reduceat(is_timed, begins, dtype=np.int64),
        np.minimum.reduceat(np.where(is_timed, times, _LATEST), begins),
        np.maximum.reduceat(ages, begins),
    )
    sums = np.add.reduceat(ages, begins, dtype=np.float64).tolist()
    last = np.maximum.reduceat(offsets[order], begins).tolist()
    for number, end, found, sum_ms in zip(numbers.tolist(), last, np.stack(of_each, axis=1).tolist(), sums, strict=True):
        partition = TopicPartition(topic, number)
        ends[partition] = end + 1
        records, timed, oldest_ms, newest_ms = found
        stats = PartitionStats(records, timed, oldest_ms if timed else 0, newest_ms, sum_ms)
        before = known.get(partition)
        known[partition] = stats if before is None else before.plus(stats)


def without_unreadable(
    stats: Mapping[TopicPartition, PartitionStats],
    unreadable: Collection[TopicPartition],
    readable: Iterable[tuple[TopicPartition, int]],
) -> dict[TopicPartition, PartitionStats]:
    """The statistics when a step has found records of these partitions unreadable, which had counted with their timestamps.
    ``readable``: partition and timestamp of each record that it could read."""
    after = {**stats, **{tp: PartitionStats(stats[tp].records, 0, 0, 0, 0.0) for tp in unreadable}}
    for tp, ms in readable:
        if tp in unreadable:
            after[tp] = after[tp].plus(PartitionStats(0, 1, ms, ms, float(ms)))
    return after
