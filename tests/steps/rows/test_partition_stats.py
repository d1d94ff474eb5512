"""How many records of each partition a batch has read, and how old they are."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidemill.ids import TaskId, TopicPartition
from tidemill.steps.rows.partition_stats import add_chunk, without_unreadable
from tidemill.steps.rows.schema import CHUNK, UNREADABLE
from tidemill.task.batch import BatchReport, Marker, Outcome, PartitionStats
from tidemill.task.message_pack import pack, unpack

records = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(-1, 2**41), st.booleans()), max_size=40)


@given(chunks=st.lists(records.filter(bool), max_size=4))
def test_chunks_add_up_to_what_counting_one_by_one_gives(chunks: list[list[tuple[str, int, int, bool]]]) -> None:
    found: dict[TopicPartition, PartitionStats] = {}
    ends: dict[TopicPartition, int] = {}
    read: Counter[TopicPartition] = Counter()
    for chunk in chunks:
        topics, partitions, stamps, is_readable = zip(*chunk, strict=True)
        offsets = []
        for tp in map(TopicPartition, topics, partitions):
            offsets.append(read[tp])
            read[tp] += 1
        columns = {"part": pa.array([*partitions, -1], pa.int32()), "ts": pa.array([*stamps, len(chunk)], pa.int64())}
        columns["node"] = pa.array([*(0 if readable else UNREADABLE for readable in is_readable), CHUNK], pa.int32())
        columns["off"] = pa.array([*offsets, 0], pa.int64())
        add_chunk(found, ends, topics, set(topics), pa.RecordBatch.from_pydict(columns))
    assert ends == dict(read)
    expected: dict[TopicPartition, list[int]] = {}
    for topic, partition, stamp, readable in (record for chunk in chunks for record in chunk):
        expected.setdefault(TopicPartition(topic, partition), []).append(stamp if readable else -1)
    assert {tp: arrived.records for tp, arrived in found.items()} == {tp: len(stamps) for tp, stamps in expected.items()}
    for tp, stamps in expected.items():
        timed = [stamp for stamp in stamps if stamp >= 0]
        arrived = found[tp]
        assert arrived.timed == len(timed)
        if timed:
            assert (arrived.oldest_ms, arrived.newest_ms, arrived.sum_ms) == (min(timed), max(timed), sum(timed))


def test_what_a_later_step_cannot_read_counts_without_its_timestamp_in_its_own_partition_alone() -> None:
    one, other, gone = (TopicPartition("in", number) for number in range(3))
    stats = {one: PartitionStats(4, 3, 10, 90, 120.0), other: PartitionStats(1, 1, 5, 5, 5.0)}
    stats[gone] = PartitionStats(1, 1, 7, 7, 7.0)
    assert without_unreadable(stats, {one, gone}, [(one, 10), (other, 5), (one, 20)]) == {
        one: PartitionStats(4, 2, 10, 20, 30.0), other: stats[other], gone: PartitionStats(1, 0, 0, 0, 0.0),
    }  # fmt: skip


def test_markers_and_reports_carry_what_arrived_and_what_was_written() -> None:
    arrived = {TopicPartition("in", 3): PartitionStats(5, 4, 10, 20, 60)}
    marker = Marker(batch_id=1, starts={}, ends={}, changelog_ends={}, chunks=1, rows=5, partition_stats=arrived)
    assert unpack(pack(marker), Marker) == marker
    report = BatchReport(batch_id=1, outcome=Outcome.COMMITTED, partition_stats=arrived, written={TaskId(1, 0): {"counts": 7}})
    assert unpack(pack(report), BatchReport) == report
