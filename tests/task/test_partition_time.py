"""The text in which a commit keeps its partition's time: Kafka Streams' own, both ways."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.ids import TopicPartition
from tidemill.operators.record import UNKNOWN_TIME
from tidemill.task.partition_time import (
    PartitionTime,
    from_metadata,
    keeping,
    kept_by_processors,
    metadata_of,
)

longs = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=30).map(lambda text: text.encode(errors="replace").decode())

FROM_JAVA = {
    "Av//////////": PartitionTime(),
    "AgAAAAAAAAAA": PartitionTime(0),
    "AgAAAYzErjwA": PartitionTime(1_704_106_802_176),
    "An//////////": PartitionTime(2**63 - 1),
    "AgAAAAAAAAPoAAAAAQAAAAZjb3VudHMAAAAAAAAD5w==": PartitionTime(1_000, (("counts", 999),)),
    "AgAAAAAAAAPoAAAAAgAAAAFh//////////8AAAADY8OpAAAAAAAAAAE=": PartitionTime(1_000, (("a", -1), ("cé", 1))),
}
"""What TopicPartitionMetadata.encode gives."""


@pytest.mark.parametrize("text", FROM_JAVA)
def test_what_java_has_written_is_read(text: str) -> None:
    assert from_metadata(text) == (FROM_JAVA[text], "")


@pytest.mark.parametrize("text", FROM_JAVA)
def test_the_text_is_javas_to_the_byte(text: str) -> None:
    assert metadata_of(FROM_JAVA[text]) == text


def test_version_1_has_the_time_alone_and_a_commit_without_text_has_none() -> None:
    assert from_metadata("AQAAAAAAAAPo") == (PartitionTime(1_000), "")
    assert from_metadata("") == (PartitionTime(), "")


@given(ms=st.integers(-1, 2**63 - 1), processors=st.dictionaries(names, longs, max_size=10))
def test_what_is_written_is_read_again(ms: int, processors: dict[str, int]) -> None:
    time = PartitionTime(ms, tuple(sorted(processors.items())))
    assert from_metadata(metadata_of(time)) == (time, "")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "text", ["seven", "not base64!", "Ág==", encoded(b"\x02"), encoded(b"\x02" + bytes(7)), encoded(b"\x03" + bytes(8))]
)
def test_what_can_not_be_read_is_an_unknown_time_and_said(text: str) -> None:
    time, problem = from_metadata(text)
    assert time == PartitionTime(UNKNOWN_TIME)
    assert problem


@pytest.mark.parametrize("rest", [b"\x00", b"\xff" * 4, b"\x00\x00\x00\x02", b"\x00\x00\x00\x01\xff\xff\xff\xff", b"\x7f" * 12,
                                  b"\x00\x00\x00\x01\x00\x00\x00\x01\xff" + bytes(8)])  # fmt: skip
def test_a_time_before_entries_that_can_not_be_read_is_kept_as_java_does(rest: bytes) -> None:
    time, problem = from_metadata(encoded(b"\x02" + (1_000).to_bytes(8, "big") + rest))
    assert time == PartitionTime(1_000)
    assert "processors" in problem


@pytest.mark.parametrize(("length", "is_kept"), [(3_044, True), (3_045, False)])
def test_what_would_be_too_long_for_the_brokers_in_the_next_commit_is_left_out(length: int, is_kept: bool) -> None:
    """The longest that Java can have committed has one character more than fits into a transaction."""
    entries = (("n" * length, 7),)
    text = metadata_of(PartitionTime(1_000, entries))
    time, problem = from_metadata(text.rstrip("="))
    assert (time, problem == "") == (PartitionTime(1_000, entries if is_kept else ()), is_kept)
    assert len(metadata_of(time)) <= 4_095


@given(data=st.binary(max_size=60))
def test_no_bytes_break_it(data: bytes) -> None:
    for read in (from_metadata(encoded(b"\x02" + bytes(8) + data)), from_metadata(encoded(data))):
        assert tuple(map(type, read)) == (PartitionTime, str)


def test_processors_of_a_task_keep_the_highest_value_of_its_partitions_with_each_of_them() -> None:
    one, other, foreign = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("a", 1)
    times = {one: PartitionTime(5, (("kept", 7), ("windows", 3))), foreign: PartitionTime(6)}
    after = keeping(times, [one, other], {"windows": 2, "sessions": 9})
    assert after == {
        one: PartitionTime(5, (("kept", 7), ("sessions", 9), ("windows", 3))),
        other: PartitionTime(UNKNOWN_TIME, (("sessions", 9), ("windows", 2))),
        foreign: PartitionTime(6),
    }
    assert kept_by_processors(after.values()) == {"kept": 7, "sessions": 9, "windows": 3}
    assert keeping(times, [one, other], {}) == times
