"""The partition time that a timestamp extractor is given: the request's, and what the batch has had before the record."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.test_exception_handlers import SilentError
from tidemill import Serdes
from tidemill.errors import RecordError
from tidemill.ids import TopicPartition
from tidemill.steps.rows.intake import Intake
from tidemill.steps.source_step import source_rows
from tidemill.steps.step_spec import SourceSpec, SourceTopic
from tidemill.task.batch import BatchRequest, Marker, times_after
from tidemill.task.message_pack import unpack
from tidemill.task.partition_time import PartitionTime, Times
from tidemill.testing.topics import RawRecord
from tidemill.testing.worker import GivenReader

IN = TopicPartition("in", 0)
TEXT = Serdes.string()


class Sources:
    """A source whose values are the timestamps of its records; keeps which partition times it was told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def extract(self, record: Any, partition_time: int) -> int:
        self.told.append(partition_time)
        return int(record.value)

    def batch(self, values: list[str], times: Times) -> Times:
        """The times after a batch."""
        source = SourceTopic(
            tag=0, node="source", index=0, key=Intake(Serdes.string()), value=Intake(Serdes.string()),
            serdes=(TEXT, TEXT), extractor=self.extract,
        )  # fmt: skip
        reader = GivenReader([RawRecord("in", None, value.encode(), 9_000) for value in values])
        request = BatchRequest(batch_id=1, inputs={IN: 0}, times=times)
        *_, marker = source_rows(reader, request, SourceSpec(topics={"in": source}, changelogs={}))
        return times_after(times, unpack(marker.column("value")[0].as_py(), Marker).partition_stats)


def test_extractors_are_given_the_highest_time_so_far_across_batches_and_workers() -> None:
    first = Sources()
    times = first.batch(["5", "3", "-1", "8"], {})
    assert first.told == [-1, 5, 5, 5]
    assert times == {IN: PartitionTime(8)}
    another = Sources()
    times = another.batch(["6", "9"], times)
    assert another.told == [8, 8]
    assert times == {IN: PartitionTime(9)}


def test_a_batch_without_records_leaves_times_as_they_are() -> None:
    known = {IN: PartitionTime(8, (("kept by Java", 7),))}
    assert Sources().batch([], known) == known
    assert Sources().batch(["-1"], known) == known


def test_records_that_cannot_be_read_leave_times_as_they_are() -> None:
    long = Serdes.long()
    source = SourceTopic(
        tag=0, node="source", index=0, key=Intake(TEXT), value=Intake(long), serdes=(TEXT, long)
    )  # fmt: skip
    reader = GivenReader([RawRecord("in", None, bytes(8), 5), RawRecord("in", None, b"bad", 9)])
    *_, marker = source_rows(reader, BatchRequest(batch_id=1, inputs={IN: 0}), SourceSpec(topics={"in": source}, changelogs={}))
    assert times_after({}, unpack(marker.column("value")[0].as_py(), Marker).partition_stats) == {IN: PartitionTime(5)}


def test_an_extractor_that_fails_is_told_with_its_source_and_the_record_whatever_it_has_raised() -> None:
    class Failing(Sources):
        def extract(self, record: Any, partition_time: int) -> int:
            raise SilentError

    with pytest.raises(RecordError, match=r"in-0 at offset 0: the timestamp extractor of source failed: SilentError: \(no text"):
        Failing().batch(["5"], {})
