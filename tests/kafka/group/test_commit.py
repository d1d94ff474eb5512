"""What a refused commit means while a join is under way: a stand-in for the coordinator answers as a broker does then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest

from tidemill.errors import BatchLostError, CommitRefusedError, RejoinError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.coordinator import MembershipLostError, NotThereError
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.member_config import GroupMemberConfig
from tidemill.kafka.group.metadata import Membership, OffsetAndMetadata
from tidemill.kafka.group.protocol import GroupAssignment, MemberAssignment, MemberSubscription
from tidemill.membership.member_state import Assigned, MembershipLost

ONE = TopicPartition("t", 1)


class _Nothing:
    """A protocol that is never asked."""

    topics: Sequence[str] = ()

    def wait_until_taken_up(self) -> None: ...

    def user_data(self) -> bytes:
        return b""

    def owned_partitions(self) -> Sequence[TopicPartition]:
        return ()

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        raise AssertionError


class _Broker:
    """Refuses each commit as of an unknown generation."""

    def commit(self, membership: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise MembershipLostError("IllegalGenerationError", keeps_member_id=True)


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> GroupMember:
    """Assigned in generation 1."""
    config = GroupMemberConfig(client_settings={"bootstrap_servers": "localhost:1"}, group_id="g", client_id="c")
    made = GroupMember(config, _Nothing())
    monkeypatch.setattr(made, "_coordinator", _Broker())
    state = made._state
    sent = state.join_sent(state.begin_join()[1])
    assert sent is not None
    joined = state.joined(sent, generation=1, member_id="m")
    assert joined is not None
    state.assigned(joined, MemberAssignment(partitions=(ONE,)))
    assert isinstance(made.events.get(), Assigned)
    return made


def test_a_commit_that_meets_the_next_generation_before_the_member_does_costs_no_membership(member: GroupMember) -> None:
    """The group has counted the generation, and the answer to JoinGroup is still on its way."""
    member._state.request_rejoin("test")
    member._state.join_sent(member._state.begin_join()[1])
    with pytest.raises(RejoinError):
        member.commit({ONE: OffsetAndMetadata(1)})
    assert member.events.empty()
    assert member.membership.incarnation == 0


def test_a_commit_of_an_unknown_generation_means_a_lost_membership_if_no_join_is_under_way(member: GroupMember) -> None:
    with pytest.raises(CommitRefusedError):
        member.commit({ONE: OffsetAndMetadata(1)})
    assert isinstance(member.events.get(), MembershipLost)
    assert member.membership.incarnation == 1


class _Forgetful:
    """Answers as a broker that does not know the partition; the clock goes on by 1 s with each answer."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def commit(self, membership: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.now_s += 1
        raise NotThereError("UnknownTopicOrPartitionError")


def test_a_commit_of_a_partition_that_is_gone_holds_up_no_assignment_without_it(
    member: GroupMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = _Forgetful()
    clock = SimpleNamespace(monotonic=lambda: broker.now_s, sleep=lambda _: None)
    monkeypatch.setattr("tidemill.deadline.time", clock)
    monkeypatch.setattr("tidemill.kafka.group.member.time", clock)
    monkeypatch.setattr(member, "_coordinator", broker)
    with pytest.raises(BatchLostError, match="UnknownTopicOrPartitionError"):
        member.commit({ONE: OffsetAndMetadata(1)})
    assert broker.now_s == 3


def test_a_join_serves_what_is_asked_for_while_it_waits_for_the_assignment_before(
    member: GroupMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member._protocol, "wait_until_taken_up", lambda: member.request_rejoin("tasks are given up"))
    monkeypatch.setattr(member, "_join_and_sync", lambda before, reason: True)
    member.request_rejoin("the group rebalances")
    assert member._join()
    assert not member._state.wait_to_join(0), "no second join for it"
