"""What a leader may send, and which changes of partition counts call for another rebalance."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pytest

from tests.kafka.group.group_application import shared_out
from tidemill.errors import StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.coordinator import FoundTopic, GroupCoordinator, JoinAnswer
from tidemill.kafka.group.leader import GroupLeader
from tidemill.kafka.group.protocol import (
    GroupAssignment,
    MemberAssignment,
    MemberSubscription,
    decode_assignment,
    encode_subscription,
)


class Cluster(GroupCoordinator):
    """The topics that the brokers know at the moment."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.ids: dict[str, str] = {}

    def found_topics(self, topics: Iterable[str], theirs: Collection[str] = ()) -> dict[str, FoundTopic]:
        return {topic: FoundTopic(self.counts[topic], self.ids.get(topic, "")) for topic in topics if topic in self.counts}


class Assignor:
    """Creates the topics that it misses, with two partitions, and shares everything out."""

    topics = ("source", "repartition")

    def user_data(self) -> bytes:
        return b""

    def owned_partitions(self) -> tuple[TopicPartition, ...]:
        return ()

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> GroupAssignment:
        return shared_out({"repartition": 2, **partition_counts}, members)


class Forgetful(Assignor):
    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> GroupAssignment:
        first = min(members)
        return GroupAssignment(members={first: MemberAssignment()}, partition_counts=partition_counts)


def _joined(*members: str) -> JoinAnswer:
    said = encode_subscription(MemberSubscription(member_id="", topics=Assignor.topics))
    return JoinAnswer(
        generation=1,
        member_id=members[0],
        is_leader=True,
        must_assign=True,
        members=tuple((member, None, said) for member in members),
    )


def _leading(cluster: Cluster) -> GroupLeader:
    leader = GroupLeader(cluster, Assignor(), group_id="g", eager=False)
    leader.assign(_joined("x"))
    return leader


def test_every_member_gets_the_bytes_of_its_assignment() -> None:
    leader = GroupLeader(Cluster(source=1, repartition=2), Assignor(), group_id="g", eager=False)
    answers = {m: decode_assignment(data).partitions for m, data in leader.assign(_joined("x", "y")).items()}
    assert sorted(p for partitions in answers.values() for p in partitions) == [
        TopicPartition("repartition", 0),
        TopicPartition("repartition", 1),
        TopicPartition("source", 0),
    ]
    assert sorted(map(len, answers.values())) == [1, 2]


class Watchful(Assignor):
    """Leaves out who can't be read."""

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> GroupAssignment:
        out = frozenset(member for member, said in members.items() if said.unreadable)
        done = shared_out(partition_counts, {m: said for m, said in members.items() if m not in out})
        return replace(done, members={**done.members, **dict.fromkeys(out, MemberAssignment())}, left_out=out)


@pytest.mark.parametrize("said", [b"", b"\x00", b"\x00\x03\x7f\xff\xff\xff", b"junk of some length"])
def test_a_member_whose_bytes_are_none_of_a_subscription_does_not_end_the_leader(said: bytes) -> None:
    joined = _joined("x", "y")
    leader = GroupLeader(Cluster(source=2), Watchful(), group_id="g", eager=False)
    answers = leader.assign(replace(joined, members=(joined.members[0], ("y", None, said))))
    assert len(decode_assignment(answers["x"]).partitions) == 2
    assert decode_assignment(answers["y"]).partitions == ()


def test_a_claim_from_a_generation_that_is_yet_to_come_does_not_count() -> None:
    boasts = MemberSubscription(
        member_id="", topics=("source",), owned_partitions=(TopicPartition("source", 0),), generation=2**31 - 1
    )
    joined = _joined("x", "y")
    leader = GroupLeader(Cluster(source=2), Watchful(), group_id="g", eager=False)
    answers = leader.assign(replace(joined, members=(joined.members[0], ("y", None, encode_subscription(boasts)))))
    assert len(decode_assignment(answers["x"]).partitions) == 2
    assert decode_assignment(answers["y"]).partitions == ()


def test_an_answer_that_leaves_a_member_out_is_not_sent() -> None:
    leader = GroupLeader(Cluster(source=1), Forgetful(), group_id="g", eager=False)
    with pytest.raises(StopError, match=r"for the members \['x'\]; expected \['x', 'y'\]"):
        leader.assign(_joined("x", "y"))
    assert not leader.watches


def test_a_topic_that_the_assignor_created_and_no_broker_shows_yet_is_no_change() -> None:
    cluster = Cluster(source=1)
    leader = _leading(cluster)
    assert leader.awaits_a_topic
    assert leader.changes() == []
    cluster.counts["repartition"] = 2
    assert leader.changes() == []
    assert not leader.awaits_a_topic


def test_a_topic_of_a_pattern_that_was_deleted_is_not_looked_for_often_and_is_seen_when_it_comes_back() -> None:
    cluster = Cluster(source=1)
    leader = GroupLeader(cluster, Watchful(), group_id="g", eager=False)
    subscription = MemberSubscription(member_id="", topics=("deleted", "source"))
    leader.assign(replace(_joined("x"), members=(("x", None, encode_subscription(subscription)),)))
    assert leader.awaits_a_topic
    for _ in range(9):
        assert leader.changes() == []
    assert not leader.awaits_a_topic
    cluster.counts["deleted"] = 1
    assert leader.changes() == ["deleted missing -> 1"]


def test_a_topic_created_with_another_count_than_the_assignment_rests_on_is_a_change() -> None:
    cluster = Cluster(source=1)
    leader = _leading(cluster)
    cluster.counts["repartition"] = 3
    assert leader.changes() == ["repartition 2 -> 3"]


def test_a_topic_that_was_there_and_is_gone_is_a_change() -> None:
    cluster = Cluster(source=1, repartition=2)
    leader = _leading(cluster)
    del cluster.counts["source"]
    assert leader.changes() == ["source 1 -> missing"]


def test_a_created_topic_that_was_seen_once_and_is_gone_is_a_change() -> None:
    cluster = Cluster(source=1)
    leader = _leading(cluster)
    cluster.counts["repartition"] = 2
    assert leader.changes() == []
    del cluster.counts["repartition"]
    assert leader.changes() == ["repartition 2 -> missing"]


def test_a_created_topic_that_is_gone_before_it_was_seen_is_a_change_after_some_looks() -> None:
    leader = _leading(Cluster(source=1))
    looks = [leader.changes() for _ in range(7)]
    assert looks[:5] == [[]] * 5
    assert looks[5:] == [["repartition 2 -> missing"]] * 2


def test_a_topic_that_was_created_again_is_warned_of_once_and_is_no_change(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(source=1, repartition=2)
    cluster.ids = {"source": "first", "repartition": "first"}
    leader = _leading(cluster)
    assert leader.changes() == []
    cluster.ids["source"] = "second"
    assert (leader.changes(), leader.changes()) == ([], [])
    [warning] = caplog.messages
    assert "event=topic-created-again" in warning
    assert "topic=source" in warning
    assert "tidemill reset" in warning


def test_a_topic_that_was_created_again_before_a_rebalance_is_warned_of_too(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(source=1)
    cluster.ids = {"source": "first"}
    leader = _leading(cluster)
    cluster.ids["source"] = "second"
    leader.assign(_joined("x"))
    [warning] = caplog.messages
    assert "topic=source" in warning


def test_brokers_without_topic_ids_warn_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(source=1)
    leader = _leading(cluster)
    for topic_id in ("known now", "", "known now"):
        cluster.ids = {"source": topic_id}
        assert leader.changes() == []
    assert caplog.messages == []


def test_who_no_longer_leads_watches_nothing() -> None:
    cluster = Cluster(source=1, repartition=2)
    leader = _leading(cluster)
    leader.follow()
    cluster.counts["source"] = 9
    assert not leader.watches
    assert leader.changes() == []


def test_a_leader_that_came_back_watches_from_what_it_finds() -> None:
    cluster = Cluster(source=1, repartition=2)
    leader = GroupLeader(cluster, Assignor(), group_id="g", eager=False)
    leader.keep(Assignor.topics)
    assert leader.changes() == []
    cluster.counts["source"] = 2
    assert leader.changes() == ["source 1 -> 2"]
