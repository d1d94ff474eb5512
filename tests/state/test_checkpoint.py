"""Kafka's checkpoint text."""

from __future__ import annotations

import pytest

from tidemill.ids import TopicPartition
from tidemill.state.checkpoint import OFFSET_UNKNOWN, offset_of_position, render

CHANGELOG = "streams-wordcount-counts-store-changelog"


def test_the_file_is_kafkas_to_the_character() -> None:
    offsets = {TopicPartition(CHANGELOG, 10): 3, TopicPartition(CHANGELOG, 9): 7, TopicPartition("a", 0): OFFSET_UNKNOWN}
    assert render(offsets) == f"0\n3\na 0 -4\n{CHANGELOG} 9 7\n{CHANGELOG} 10 3\n"


def test_end_offsets_2_8_6_4_are_written_as_1_7_5_3() -> None:
    assert [offset_of_position(end) for end in (2, 8, 6, 4)] == [1, 7, 5, 3]


def test_a_store_that_has_applied_nothing_is_written_as_unknown() -> None:
    assert offset_of_position(0) == OFFSET_UNKNOWN


def test_a_negative_offset_is_never_written() -> None:
    with pytest.raises(ValueError, match="t-0: -1 is not an offset"):
        render({TopicPartition("t", 0): -1})
