"""Kafka's checkpoint text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.ids import TopicPartition
from tidemill.state.checkpoint import OFFSET_UNKNOWN, offset_of_position, parse, position_of_offset, render

CHANGELOG = "streams-wordcount-counts-store-changelog"


def test_the_file_is_kafkas_to_the_character() -> None:
    offsets = {TopicPartition(CHANGELOG, 10): 3, TopicPartition(CHANGELOG, 9): 7, TopicPartition("a", 0): OFFSET_UNKNOWN}
    assert render(offsets) == f"0\n3\na 0 -4\n{CHANGELOG} 9 7\n{CHANGELOG} 10 3\n"


def test_end_offsets_2_8_6_4_are_written_as_1_7_5_3() -> None:
    assert [offset_of_position(end) for end in (2, 8, 6, 4)] == [1, 7, 5, 3]


def test_a_store_that_has_applied_nothing_is_written_as_unknown() -> None:
    assert offset_of_position(0) == OFFSET_UNKNOWN
    assert position_of_offset(OFFSET_UNKNOWN) == 0


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1).map(offset_of_position),
    )
)
def test_what_was_rendered_is_parsed(offsets: dict[TopicPartition, int]) -> None:
    assert parse(render(offsets)) == offsets


@given(st.integers(0, 2**63))
def test_positions_survive_the_file(position: int) -> None:
    assert position_of_offset(offset_of_position(position)) == position


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 lines"),
        ("0\n", "1 lines"),
        ("1\n0\n", "version 1, where only 0"),
        ("x\n0\n", "line 1 has 'x'"),
        ("0\ntwo\n", "line 2 has 'two'"),
        ("0\n2\nt 0 1\n", "1 entries, where line 2 announces 2"),
        ("0\n1\nt 0 1\nt 1 1\n", "2 entries, where line 2 announces 1"),
        ("0\n1\nt 0\n", "line 3 is 't 0'"),
        ("0\n1\nt 0 1 2\n", "line 3 is 't 0 1 2'"),
        ("0\n1\nt p 1\n", "line 3 has 'p', where a partition"),
        ("0\n1\nt 0 o\n", "line 3 has 'o', where an offset"),
        ("0\n1\nt 0 -1\n", "negative"),
        ("0\n1\nt -1 0\n", "negative"),
        ("0\n2\nt 0 1\nt 0 1\n", "second time"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text)


def test_a_negative_offset_is_never_written() -> None:
    with pytest.raises(ValueError, match="t-0: -1 is not an offset"):
        render({TopicPartition("t", 0): -1})
