"""The consumer protocol's bytes, and the rule of every cooperative hand-over."""

from __future__ import annotations

import struct

import pytest

from tidemill.errors import ConfigError, StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.protocol import (
    MemberAssignment,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    handed_over_too_early,
    own_assignment,
    read_subscription,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _numbers(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}i", *numbers)


SUBSCRIPTION = MemberSubscription(
    member_id="m", topics=("b", "a"), user_data=b"data", owned_partitions=(B0, A1, A0), generation=7, rack="r"
)
V0 = _numbers(2) + _text("a") + _text("b") + _numbers(4) + b"data"
V1 = V0 + _numbers(2) + _text("a") + _numbers(2, 0, 1) + _text("b") + _numbers(1, 0)
V2 = V1 + _numbers(7)
V3 = V2 + _text("r")


def test_a_subscription_is_written_as_version_3_in_sorted_order() -> None:
    assert encode_subscription(SUBSCRIPTION) == struct.pack(">h", 3) + V3


@pytest.mark.parametrize(
    ("version", "body", "owned", "generation", "rack"),
    [
        (0, V0, (), -1, None),
        (1, V1, (A0, A1, B0), -1, None),
        (2, V2, (A0, A1, B0), 7, None),
        (3, V3, (A0, A1, B0), 7, "r"),
        (4, V3 + b"something new", (A0, A1, B0), 7, "r"),
    ],
)
def test_every_version_of_a_subscription_is_read(
    version: int, body: bytes, owned: tuple[TopicPartition, ...], generation: int, rack: str | None
) -> None:
    assert decode_subscription("m", "i", struct.pack(">h", version) + body) == MemberSubscription(
        member_id="m",
        instance_id="i",
        topics=("a", "b"),
        user_data=b"data",
        owned_partitions=owned,
        generation=generation,
        rack=rack,
    )


def test_absent_user_data_is_read_as_empty() -> None:
    data = struct.pack(">h", 0) + _numbers(0) + _numbers(-1)
    assert decode_subscription("m", None, data).user_data == b""


def test_an_assignment_is_written_by_topic_and_read_back() -> None:
    assignment = MemberAssignment(partitions=(B0, A1, A0), user_data=b"x")
    expected = struct.pack(">h", 3) + _numbers(2) + _text("a") + _numbers(2, 0, 1) + _text("b") + _numbers(1, 0)
    assert encode_assignment(assignment) == expected + _numbers(1) + b"x"
    assert decode_assignment(encode_assignment(assignment)) == MemberAssignment(partitions=(A0, A1, B0), user_data=b"x")


def test_no_bytes_at_all_are_an_empty_assignment() -> None:
    assert decode_assignment(b"") == MemberAssignment()


def test_an_assignment_that_no_leader_has_made_is_refused() -> None:
    made_by_the_broker = struct.pack(">h", 3) + _numbers(0) + struct.pack(">i", -1)
    with pytest.raises(ConfigError, match=r"members with group\.protocol=consumer"):
        own_assignment(made_by_the_broker)
    assert own_assignment(b"") == MemberAssignment()
    assert own_assignment(encode_assignment(MemberAssignment())) == MemberAssignment()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\xff\xff", b"junk of some length"])
def test_what_is_no_subscription_names_the_member(data: bytes) -> None:
    with pytest.raises(StopError, match="group member m can't be read"):
        decode_subscription("m", None, data)


@pytest.mark.parametrize("topic", ["", ".", "a b", "a\n", "a\x1b[2J", "t" * 250, "\u00e9"])
def test_a_name_that_no_topic_can_have_is_refused_and_shown_in_printable_characters(topic: str) -> None:
    size = struct.pack(">h", len(topic.encode())) + topic.encode()
    for data in (
        struct.pack(">h", 0) + _numbers(1) + size + _numbers(0),
        struct.pack(">h", 1) + _numbers(0, 0, 1) + size + _numbers(1, 0),
    ):
        with pytest.raises(StopError, match="can't be the name of a topic: ") as caught:
            decode_subscription("m\n", None, data)
        assert str(caught.value).isprintable()
    with pytest.raises(StopError, match="can't be the name of a topic: "):
        decode_assignment(struct.pack(">h", 1) + _numbers(1) + size + _numbers(1, 0, 0))


def test_a_negative_partition_is_refused() -> None:
    owned = struct.pack(">h", 1) + _numbers(0, 0, 1) + _text("a") + _numbers(2, 3, -1)
    with pytest.raises(StopError, match="partition -1 of topic a, expected 0 or more"):
        decode_subscription("m", None, owned)


def test_a_claim_from_a_generation_that_is_yet_to_come_is_unreadable_for_a_leader() -> None:
    """It would count for ever: the latest generation's claim to a partition wins."""
    data = encode_subscription(SUBSCRIPTION)
    assert read_subscription("m", None, data, generation=8) == decode_subscription("m", None, data)
    assert read_subscription("m", None, data) == decode_subscription("m", None, data)
    for generation in (7, 3):
        told = read_subscription("m", None, data, generation=generation)
        assert (told.owned_partitions, told.topics) == ((), ())
        assert told.unreadable == f"it claims to own partitions since generation 7, expected one before {generation}"


def test_what_is_no_assignment_is_refused() -> None:
    with pytest.raises(StopError, match="assignment of the group's leader can't be read"):
        decode_assignment(b"\x00\x03\x7f")


def _members(**owned: tuple[TopicPartition, ...]) -> dict[str, MemberSubscription]:
    return {m: MemberSubscription(member_id=m, topics=("a", "b"), owned_partitions=ps) for m, ps in owned.items()}


def _given(**partitions: tuple[TopicPartition, ...]) -> dict[str, MemberAssignment]:
    return {m: MemberAssignment(partitions=ps) for m, ps in partitions.items()}


@pytest.mark.parametrize(
    ("owned", "given", "early"),
    [
        ({"x": (A0, A1), "y": ()}, {"x": (A0,), "y": ()}, ()),  # withheld
        ({"x": (A0,), "y": ()}, {"x": (A0,), "y": (A1,)}, ()),  # it was free
        ({"x": (A0, A1), "y": ()}, {"x": (A0,), "y": (A1,)}, (A1,)),
        ({"x": (A0, B0), "y": (A1,)}, {"x": (A1,), "y": (A0, B0)}, (A0, A1, B0)),
        ({"x": (A0,), "y": (A0,)}, {"x": (), "y": (A0,)}, ()),  # both claim it: y gains nothing
    ],
)
def test_a_partition_changes_hands_only_when_nobody_claims_it(
    owned: dict[str, tuple[TopicPartition, ...]],
    given: dict[str, tuple[TopicPartition, ...]],
    early: tuple[TopicPartition, ...],
) -> None:
    assert handed_over_too_early(_members(**owned), _given(**given)) == early
