"""What a rebalance's leader asks of the brokers, and what it says where they answer something else than it needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tidemill.config.slices import GroupConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import PartitionCountError, RetriableError
from tidemill.ids import ProcessId, TopicPartition
from tidemill.kafka.admin.client import TopicSpec
from tidemill.membership.joined_group import Subscription
from tidemill.membership.topology_metadata import InternalTopicConfig, TopicsInfo, TopologyMetadata
from tidemill.membership.wire import SubscriptionInfo, encode_subscription
from tidemill.runtime.group import leading

HERE = "app-x-StreamThread-1-consumer-00000000-0000-0000-0000-00000000000a"
THERE = "app-x-StreamThread-1-consumer-00000000-0000-0000-0000-00000000000b"
CHANGELOG, REPARTITION = "app-counts-changelog", "app-counts-repartition"
PROCESS = ProcessId(1, 1)


class Brokers:
    """``changelog``: how many partitions the changelog has; ``lacks_topics``: internal ones are created; ``committed``: the
    group's offsets, None: nobody knows them."""

    def __init__(
        self,
        changelog: int = 2,
        hosts: dict[str, str] | None = None,
        *,
        lacks_topics: bool = False,
        committed: dict[TopicPartition, int] | None = None,
    ) -> None:
        self.changelog, self.hosts = changelog, hosts
        self.lacks_topics, self.committed = lacks_topics, committed

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float
    ) -> dict[TopicPartition, int]:
        if self.committed is None:
            raise RetriableError(f"group {group}: no answer after {timeout_s} s")
        return {tp: self.committed[tp] for tp in partitions if tp in self.committed}

    def create_topics(self, specs: Iterable[TopicSpec]) -> frozenset[str]:
        if self.lacks_topics:
            return frozenset(spec.name for spec in specs)
        for spec in specs:
            if spec.partitions != self.changelog:
                raise PartitionCountError(spec.name, found=self.changelog, expected=spec.partitions)
        return frozenset()

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def member_hosts(self, _settings: object, group: str, *, limit_s: float) -> dict[str, str]:
        if self.hosts is None:
            raise RetriableError(f"group {group}: no answer after {limit_s} s")
        return self.hosts


def lead(brokers: Brokers, *members: str, partitions: int = 2) -> Any:
    parts = (
        TopicsInfo(subtopology=0, source_topics=frozenset({"in"}), sink_topics=frozenset({REPARTITION})),
        TopicsInfo(subtopology=1, source_topics=frozenset({REPARTITION}), changelog_topics=frozenset({CHANGELOG})),
    )
    internal = {
        CHANGELOG: InternalTopicConfig(name=CHANGELOG, is_repartition=False),
        REPARTITION: InternalTopicConfig(name=REPARTITION, is_repartition=True),
    }
    topology = TopologyMetadata(subtopologies=parts, internal_topics=internal)
    config = StreamsConfig.read_slice(GroupConfig, {"application.id": "app"})
    leader = leading.Leader(config, brokers, PROCESS, topology, {}, {}, now_ms=lambda: 0)  # type: ignore[arg-type]
    told = Subscription(user_data=encode_subscription(SubscriptionInfo(process_id=PROCESS)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leading, "member_hosts", brokers.member_hosts)
        return leader.assign(members[0], {"in": partitions}, dict.fromkeys(members, told))


@pytest.fixture(autouse=True)
def no_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "fence_vanished", lambda *_arguments: None)


def test_a_topic_of_a_pattern_is_assigned_once_all_members_subscribe_to_it(caplog: pytest.LogCaptureFixture) -> None:
    """A member that has yet to find it has no plan that reads it. One that can't be read gets nothing, and holds nothing up."""
    caplog.set_level("INFO")
    part = TopicsInfo(subtopology=0, source_topics=frozenset({"in-a", "in-b"}))
    topology = TopologyMetadata(subtopologies=(part,), pattern_topics=frozenset({"in-a", "in-b"}))
    config = StreamsConfig.read_slice(GroupConfig, {"application.id": "app"})
    leader = leading.Leader(config, Brokers(), PROCESS, topology, {}, {}, now_ms=lambda: 0)  # type: ignore[arg-type]

    def assigned(other: Subscription) -> set[str]:
        own = Subscription(topics=("in-a", "in-b"), user_data=encode_subscription(SubscriptionInfo(process_id=PROCESS)))
        answer = leader.assign(HERE, {"in-a": 2, "in-b": 1}, {HERE: own, THERE: other})  # type: ignore[dict-item]
        return {str(partition) for part in answer.members.values() for partition in part.partitions}

    data = encode_subscription(SubscriptionInfo(process_id=ProcessId(2, 2)))
    assert assigned(Subscription(topics=("in-a",), user_data=data)) == {"in-a-0", "in-a-1"}
    assert "not assigned, since some members don't subscribe to them yet: ['in-b']" in caplog.text
    for subscription in (Subscription(topics=("in-a", "in-b"), user_data=data), Subscription(user_data=b"garbage")):
        assert assigned(subscription) == {"in-a-0", "in-a-1", "in-b-0"}


def test_a_topic_of_a_pattern_that_was_deleted_is_assigned_no_more_and_one_with_a_name_ends_the_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = (
        TopicsInfo(subtopology=0, source_topics=frozenset({"in-a", "in-b"})),
        TopicsInfo(subtopology=1, source_topics=frozenset({"named"})),
    )
    topology = TopologyMetadata(
        subtopologies=parts, pattern_topics=frozenset({"in-a", "in-b"}), copartition_groups=(frozenset({"in-a", "in-b"}),)
    )
    config = StreamsConfig.read_slice(GroupConfig, {"application.id": "app"})
    leader = leading.Leader(config, Brokers(), PROCESS, topology, {}, {}, now_ms=lambda: 0)  # type: ignore[arg-type]

    def assigned(**counts: int) -> set[str]:
        data = encode_subscription(SubscriptionInfo(process_id=PROCESS))
        own = Subscription(topics=("in-a", "in-b", "named"), user_data=data)
        on_brokers = {name.replace("_", "-"): count for name, count in counts.items()}
        answer = leader.assign(HERE, on_brokers, {HERE: own})  # type: ignore[dict-item]
        assert answer.partition_counts == on_brokers  # a topic that comes back is seen by its number
        return {str(partition) for part in answer.members.values() for partition in part.partitions}

    assert assigned(in_b=1, named=1) == {"in-b-0", "named-0"}
    assert "not assigned, since they do not exist any more: ['in-a']" in caplog.text
    assert assigned(in_a=2, in_b=2, named=1) == {"in-a-0", "in-a-1", "in-b-0", "in-b-1", "named-0"}
    assert assigned(named=1) == {"named-0"}
    assert assigned(in_a=1, in_b=1) == set()
    assert "Missing source topics: named" in caplog.text


def test_more_partitions_of_an_input_are_refused_and_nobody_is_told_to_delete_the_state() -> None:
    with pytest.raises(PartitionCountError) as refused:
        lead(Brokers(changelog=2), HERE, partitions=3)
    sentence = str(refused.value)
    assert sentence.startswith(f"topic {CHANGELOG} has 2 partitions, expected 3: partitions were added to it, or the topics")
    assert "don't delete it" in sentence
    assert "another application.id" in sentence
    assert "tidemill reset APP.py --execute --local-state" in sentence


def test_instances_of_one_process_id_are_named_with_their_hosts_and_both_are_assigned(caplog: pytest.LogCaptureFixture) -> None:
    answer = lead(Brokers(hosts={HERE: "/10.0.0.1", THERE: "/10.0.0.2"}), HERE, THERE)
    assert answer.members.keys() == {HERE, THERE}
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"event=process-id-shared hosts={{{HERE}: /10.0.0.1, {THERE}: /10.0.0.2}}" in warnings
    assert any(f"Process id {PROCESS} is that of more than one instance: {HERE} and {THERE} have it" in line for line in warnings)


def test_hosts_that_the_brokers_do_not_tell_cost_the_group_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert lead(Brokers(hosts=None), HERE, THERE).members.keys() == {HERE, THERE}
    assert "event=process-id-shared" in caplog.text


def test_one_instance_with_its_own_process_id_is_no_cause_to_ask_for_hosts(caplog: pytest.LogCaptureFixture) -> None:
    lead(Brokers(hosts=None), HERE)
    assert "process-id-shared" not in caplog.text


def test_an_internal_topic_that_is_missing_at_a_later_start_is_told_with_what_is_lost_if_it_was_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lead(Brokers(lacks_topics=True, committed={TopicPartition("in", 1): 7}), HERE)
    said = {line.split("topic=")[1].split()[0]: line for line in caplog.messages if "event=topic-was-missing" in line}
    assert said.keys() == {CHANGELOG, REPARTITION}
    assert "the records in it that were not processed yet are lost" in said[REPARTITION]
    assert "its store begins empty" in said[CHANGELOG]
    assert all("tidemill reset APP.py --execute --local-state" in line for line in said.values())


@pytest.mark.parametrize("committed", [{}, None], ids=["first start", "not known"])
def test_internal_topics_of_a_first_start_are_not_missing(
    committed: dict[TopicPartition, int] | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert lead(Brokers(lacks_topics=True, committed=committed), HERE).members.keys() == {HERE}
    assert "topic-was-missing" not in caplog.text
