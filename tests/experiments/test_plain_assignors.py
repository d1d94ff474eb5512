"""How plain consumers share partitions: ranges, whoever had what; or what each has already, moving only what is free."""

from __future__ import annotations

from plain_consumer import PlainConsumer, _ranges, _sticky

from tidemill.ids import TopicPartition
from tidemill.kafka.group.protocol import GroupProtocol, MemberSubscription

PARTITIONS = [TopicPartition("t", number) for number in range(5)]


def _said(**owned: tuple[int, ...]) -> dict[str, MemberSubscription]:
    return {
        member: MemberSubscription(
            member_id=member, topics=("t",), owned_partitions=tuple(TopicPartition("t", number) for number in numbers)
        )
        for member, numbers in owned.items()
    }


def _numbers(given: dict[str, list[TopicPartition]]) -> dict[str, list[int]]:
    return {member: [partition.partition for partition in partitions] for member, partitions in given.items()}


def test_ranges_go_by_name_and_the_first_have_one_more() -> None:
    assert _numbers(_ranges(PARTITIONS, _said(b=(0, 1, 2, 3, 4), a=()))) == {"a": [0, 1, 2], "b": [3, 4]}


def test_what_has_to_move_is_withheld_while_its_owner_claims_it() -> None:
    assert _numbers(_sticky(PARTITIONS, _said(a=(), b=(0, 1, 2, 3, 4)))) == {"a": [], "b": [0, 1, 2]}


def test_what_is_free_goes_to_whoever_has_least_and_the_rest_stays() -> None:
    assert _numbers(_sticky(PARTITIONS, _said(a=(), b=(0, 1, 2)))) == {"a": [3, 4], "b": [0, 1, 2]}


def test_a_plain_consumer_answers_all_that_a_group_member_asks() -> None:
    questions = [name for name in vars(GroupProtocol) if not name.startswith("_")]
    assert "assign" in questions
    assert [name for name in questions if not hasattr(PlainConsumer, name)] == []
