"""The source step: a batch that closes stores leaves the readers alone, so that what was fetched for the tasks that stay is not
fetched anew, and the driver knows of records before functions get them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tidemill.dsl.serdes import Serdes, StringSerde
from tidemill.ids import TopicPartition
from tidemill.steps.rows.intake import Intake
from tidemill.steps.rows.schema import MARKER
from tidemill.steps.source_step import source_rows
from tidemill.steps.step_spec import SourceSpec, SourceTopic
from tidemill.task.batch import BatchRequest, Marker, SourceProgress
from tidemill.task.message_pack import pack, unpack
from tidemill.testing.topics import RawRecord
from tidemill.testing.worker import Message

IN = TopicPartition("in", 0)


class Reader:
    """Holds an input and a changelog, and has met an offset out of range."""

    is_full = False
    has_read_sources = True

    def __init__(self) -> None:
        self.calls: list[str] = []

    def place(self, request: BatchRequest) -> None:
        self.calls.append("place")

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[Any]]]:
        self.calls.append("read")
        return iter(())

    def ends(self) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        return {IN: 7}, {TopicPartition("log", 0): 3}

    def global_ends(self) -> Mapping[TopicPartition, int]:
        return {}

    def truncated(self) -> dict[TopicPartition, int]:
        return {}

    def out_of_range(self) -> tuple[TopicPartition, ...]:
        return (IN,)

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        return {}


def marker_of(reader: Reader, request: BatchRequest) -> Any:
    *_, last = source_rows(reader, unpack(pack(request), BatchRequest), SourceSpec(topics={}, changelogs={}))
    [row] = last.to_pylist()
    assert row["node"] == MARKER
    return unpack(row["value"], Marker)


def test_a_batch_that_does_not_read_neither_moves_the_readers_nor_tells_of_them() -> None:
    reader = Reader()
    marker = marker_of(reader, BatchRequest(batch_id=1, inputs={}, reads=False))
    assert reader.calls == []
    assert (marker.starts, marker.ends, marker.changelog_ends, marker.out_of_range) == ({}, {}, {}, ())


def test_any_other_batch_places_them() -> None:
    reader = Reader()
    marker = marker_of(reader, BatchRequest(batch_id=1, inputs={IN: 7}))
    assert reader.calls == ["place", "read"]
    assert marker.ends == {IN: 7}


class ReaderOfTwo(Reader):
    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[Any]]]:
        yield False, [Message(RawRecord("in", None, b"v", 5), offset) for offset in (7, 8)]


class EndsItsProcess(StringSerde):
    """Or takes so long that the driver does."""

    def deserialize(self, data: bytes | None) -> str | None:
        raise KeyboardInterrupt


def test_the_driver_knows_of_records_before_a_serde_reads_them_which_may_take_too_long() -> None:
    told: list[SourceProgress] = []
    source = SourceTopic(tag=2, node="in", index=0, serdes=(Serdes.string(), EndsItsProcess()), value=Intake(EndsItsProcess()))
    spec = SourceSpec(topics={"in": source}, changelogs={})
    with pytest.raises(Exception, match="deserializer"):
        list(source_rows(ReaderOfTwo(), BatchRequest(batch_id=1, inputs={IN: 7}), spec, told.append))
    assert told == [SourceProgress(records=2, first=(IN, 7))]


def test_when_they_are_handed_over_it_knows_their_ends_too() -> None:
    told: list[SourceProgress] = []
    source = SourceTopic(tag=2, node="in", index=0, serdes=(Serdes.string(), Serdes.string()))
    spec = SourceSpec(topics={"in": source}, changelogs={})
    list(source_rows(ReaderOfTwo(), BatchRequest(batch_id=1, inputs={IN: 7}), spec, told.append))
    assert told[-1] == SourceProgress(records=2, first=(IN, 7), ends={IN: 9})
