"""`tidemill assign explain --bootstrap`: the sentences of a running group, and what is said where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from tests.cli.cli_process import LIMIT_S, ran_here
from tests.kafka.group.group_application import Application, create_topic, joined
from tests.waiting import until
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import AssignmentConfig
from tidemill.cli.assign_live_group import _topology_metadata
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import AssignmentError, EnvironmentProblem
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka.admin.groups import LiveGroup, LiveMember
from tidemill.kafka.group.protocol import GroupAssignment, MemberAssignment, MemberSubscription
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.leader import LeaderConfig, PreparedRebalance, complete, prepare
from tidemill.membership.observed_topology import observed_topology_metadata
from tidemill.membership.topic_plan import ClusterMetadata
from tidemill.membership.topology_metadata import InternalTopicConfig, TopicsInfo, TopologyMetadata
from tidemill.membership.wire import AssignmentInfo, SubscriptionInfo, encode_subscription

P1, P2 = ProcessId.parse("10000000-0000-4000-8000-000000000001"), ProcessId.parse("20000000-0000-4000-8000-000000000002")
TASKS = [TaskId(0, 0), TaskId(0, 1)]


def _explain(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("tidemill")), "assign", "explain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def test_a_leader_that_named_tasks_for_other_partitions_than_it_assigned_is_said_so() -> None:
    said = MemberSubscription(member_id="m", topics=(), user_data=encode_subscription(SubscriptionInfo(process_id=P1)))
    member = LiveMember(client_id="c", subscription=said, assignment=MemberAssignment())
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "none:1"})
    group = LiveGroup(members={"m": member}, partition_counts={})
    with pytest.raises(EnvironmentProblem, match="assigned 0 partitions to member m and names tasks for 1 of them"):
        _topology_metadata(config, None, group, {"m": AssignmentInfo(active_tasks=(TaskId(0, 0),))})


@dataclass
class StreamsMember(Application):
    """A member that says what a stream thread says, and that leads as an instance leads."""

    process: ProcessId = P1
    said: Mapping[TaskId, int] = field(default_factory=dict)
    store: str = ""

    def user_data(self) -> bytes:
        return encode_subscription(SubscriptionInfo(process_id=self.process, task_offset_sums=self.said))

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> GroupAssignment:
        (topic,) = self.topics
        facts = TopologyMetadata(
            subtopologies=(
                TopicsInfo(
                    subtopology=0, source_topics=frozenset({topic}), changelog_topics=frozenset({self.store})
                ),
            ),
            internal_topics={self.store: InternalTopicConfig(name=self.store, is_repartition=False)},
        )
        config = LeaderConfig(
            leader_process_id=P1,
            assignor=HighAvailabilityTaskAssignor(),
            settings=AssignmentConfig(acceptable_recovery_lag=10),
        )
        prepared = prepare(members, ClusterMetadata(partition_counts=partition_counts), facts, config)
        assert isinstance(prepared, PreparedRebalance)
        ends = dict.fromkeys(prepared.changelog_partitions(), 100)
        done = complete(prepared, FetchedOffsets(end_offsets=ends), 0)
        return GroupAssignment(
            members={
                name: MemberAssignment(partitions=told.partitions, user_data=told.user_data)
                for name, told in done.members.items()
            },
            partition_counts=dict(partition_counts),
        )


@pytest.mark.broker
def test_a_running_group_is_explained_as_a_recorded_one_is(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    name, topic = unique_name("explained"), unique_name("words")
    store = f"{name}-counts-changelog"
    create_topic(bootstrap_servers, topic, 2)
    create_topic(bootstrap_servers, store, 2)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for partition in (0, 1):
        for _ in range(100):
            producer.produce(store, b"1", key=b"k", partition=partition)
    assert producer.flush(LIMIT_S) == 0
    first = StreamsMember(topics=[topic], process=P1, store=store)
    old = joined(bootstrap_servers, first, name, "old")
    assert until(lambda: len(first.owned) == 2)
    first.said = dict.fromkeys(TASKS, -2)
    second = StreamsMember(topics=[topic], process=P2, store=store)
    new = joined(bootstrap_servers, second, name, "new")
    try:
        assert until(lambda: len(second.assigned) > 0 and len(first.assigned) > 1)
        asked = ("--bootstrap-server", bootstrap_servers, "--group", name)
        done = _explain(*asked, "--set", "acceptable.recovery.lag=10")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{name} at {bootstrap_servers}, 2 members (Kafka 4.3, HighAvailabilityTaskAssignor)\n")
        assert "clients: 10000000 = old, 20000000 = new\n" in done.stdout
        assert "acceptable.recovery.lag=10, max.warmup.replicas=2" in done.stdout
        assert "Positions are those of the members' last joins" in done.stdout
        assert "In the group task" not in done.stdout
        (warm,) = (line.split() for line in done.stdout.splitlines() if line.startswith("0_1 ") and "warm-up" in line)
        assert warm[:3] == ["0_1", "warm-up", "20000000"]
        shown = json.loads(_explain(*asked, "--set", "acceptable.recovery.lag=10", "--task", "0_1", "--json").stdout)
        lags = {told["client"]: told["lag"] for decision in shown["decisions"] for told in decision["candidates"]}
        assert lags == {str(P1): -2, str(P2): 100}
        # With another setting the assignor would have moved the task: that the group has it elsewhere is said.
        done = _explain(*asked, "--set", "acceptable.recovery.lag=1000")
        assert f"In the group task 0_1 is active on {P1}: its leader had other settings or offsets." in done.stdout
    finally:
        new.close()
        old.close()
    # The broker removes an empty group without offsets, some time between now and ten minutes later.
    kept = ConsumerGroupTopicPartitions(name, [ClientPartition(topic, 0, 0)])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.alter_consumer_group_offsets([kept])[name].result(LIMIT_S)
    done = _explain(*asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"tidemill: consumer group '{name}' has no active members: start the application, then ask again\n"
    )


@pytest.mark.broker
def test_a_group_that_is_not_there_is_a_sentence(bootstrap_servers: str) -> None:
    done = _explain("--bootstrap", bootstrap_servers, "--application-id", "nobody-knows")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tidemill: consumer group 'nobody-knows' does not exist; is 'nobody-knows' the appl")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "expected a FILE to explain, or --group (and --bootstrap-server) of a running application"),
        (("--bootstrap-server", "host:9092"), "expected a FILE to explain, or --group"),
        (("x.toml", "--group", "a"), "--app, --set and --config are about a running group"),
        (("--bootstrap-server", "host", "--group", "a"), "--bootstrap-server is host, expected host:port"),
    ],
)
def test_a_question_that_can_not_be_asked_is_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = ran_here("assign", "explain", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr.replace("'", "")


def _reads(*topics: str) -> list[TopicPartition]:
    return [TopicPartition(topic, 0) for topic in topics]


def test_a_changelog_belongs_to_whoever_reads_the_repartition_topic_of_the_same_operator() -> None:
    counts = {"words": 3, "app-counts-repartition": 3, "app-counts-changelog": 3, "application-x-changelog": 3}
    partitions_of = {TaskId(0, 0): _reads("words"), TaskId(1, 0): _reads("app-counts-repartition")}
    facts = observed_topology_metadata("app", partitions_of, frozenset(), counts)
    assert [sorted(part.changelog_topics) for part in facts.subtopologies] == [[], ["app-counts-changelog"]]
    assert set(facts.internal_topics) == {"app-counts-changelog"}


def test_a_changelog_belongs_to_the_only_one_of_as_many_tasks_or_with_state() -> None:
    counts = {"a": 3, "b": 2, "app-one-changelog": 2}
    partitions_of = {TaskId(0, 0): _reads("a"), TaskId(1, 0): _reads("b")}
    facts = observed_topology_metadata("app", partitions_of, frozenset(), counts)
    assert [len(part.changelog_topics) for part in facts.subtopologies] == [0, 1]
    counts["b"] = counts["app-one-changelog"] = 3
    facts = observed_topology_metadata("app", partitions_of, frozenset({TaskId(0, 2)}), counts)
    assert [len(part.changelog_topics) for part in facts.subtopologies] == [1, 0]
    with pytest.raises(AssignmentError, match=r"which sub-topology writes app-one-changelog \(0 or 1\): name .* --app"):
        observed_topology_metadata("app", partitions_of, frozenset(), counts)
