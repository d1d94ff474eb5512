"""Java Kafka Streams (Kafka's own WordCountDemo) and Tidemill in one group: both lead, both restore what the other wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from group_view import members_of, stop_and_take_out
from instances import INPUT, OUTPUT, Instance, Scene, all_at_work, until
from java_streams import JavaStreams
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition
from rounds import Assignment, assignments
from traffic import Counts, Feed

from tidemill.task.partition_time import from_metadata

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(600)]

APPLICATION, PARTITIONS = "streams-wordcount", 4
TASKS = 2 * PARTITIONS
AT_ONCE = {"acceptable.recovery.lag": 2**63 - 1}
"""Tasks move without a warm-up: Java's leader would look for one that has caught up after a minute."""
LONG_SESSION = {"session.timeout.ms": 60_000}
"""Nobody is thrown out, and led by another, because the machine is busy."""
LONG_TRANSACTIONS = {"producer.transaction.timeout.ms": 600_000}
LIMIT_S = 240

JAVA, TIDEMILL, SECOND = (
    "4b61083e-57d0-457d-951f-d06556c148ca", "7156cef1-307e-49c0-a5bb-0f11d26a4933", "bbb83e43-b1af-4b2d-a60a-94a7091684d0"
)  # fmt: skip


@dataclass
class _Group:
    scene: Scene
    tidemill: Instance
    java: JavaStreams
    second: JavaStreams
    feed: Feed
    counts: Counts

    def is_shared_with(self, java: str) -> bool:
        """Half of the stateful tasks are each one's, and Tidemill's run."""
        members = members_of(self.scene.servers, APPLICATION)
        running = [task for task, phase in self.tidemill.look()["tasks"].items() if task[0] == "1" and phase == "running"]
        return (
            members.keys() == {java, TIDEMILL}
            and all(member.of_subtopology(1) == PARTITIONS // 2 for member in members.values())
            and len(running) == PARTITIONS // 2
        )

    def all_is_counted_exactly(self) -> None:
        self.feed.stop()
        self.counts.wait_total(self.feed.total, LIMIT_S)
        self.counts.settle()
        exact = self.counts.exactness(self.feed.expected)
        assert exact.is_exact, str(exact)
        assert exact.not_rising == 0

    def partition_times(self) -> list[int]:
        """What was committed with the input's offsets."""
        with closing(KafkaAdminClient(bootstrap_servers=self.scene.servers)) as admin:
            committed = admin.list_group_offsets(APPLICATION)[APPLICATION]
        found = [from_metadata(committed[TopicPartition(INPUT, at)].metadata.removesuffix("\0")) for at in range(PARTITIONS)]
        assert [problem for _, problem in found] == [""] * PARTITIONS
        return [time.ms for time, _ in found]

    def shared_by_leader(self, leader: str) -> list[Assignment]:
        decided = assignments([self.java.log, self.second.log, self.tidemill.host.log])
        return [one for one in decided if leader in one.leader and len(one.active) == 2]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Group]:
    """A Java instance has counted words alone."""
    folder = tmp_path_factory.mktemp("mixed") / "scene"
    with Scene(folder, topics={INPUT: PARTITIONS, OUTPUT: PARTITIONS}) as scene:
        counts = Counts(scene.servers, OUTPUT, partitions=PARTITIONS)
        settings = AT_ONCE | LONG_TRANSACTIONS
        with (
            JavaStreams(
                folder / "java", scene.servers, APPLICATION, process_id=JAVA, settings=settings | LONG_SESSION
            ) as java,
            JavaStreams(folder / "java-2", scene.servers, APPLICATION, process_id=SECOND, settings=settings) as second,
        ):
            feed = Feed(scene.servers, INPUT, partitions=PARTITIONS, seed=1, lines_per_s=100)
            tidemill = scene.own("tidemill", EXPERIMENTS / "java_wordcount.py", AT_ONCE | LONG_SESSION, process_id=TIDEMILL)
            made = _Group(scene, tidemill, java, second, feed, counts)
            feed.send(1_000)
            java.start()
            made.all_is_counted_exactly()
            feed.start()
            yield made
            feed.stop()
            counts.close()


def test_a_java_leader_gives_tidemill_tasks_which_it_restores_from_what_java_wrote(group: _Group) -> None:
    by_java = group.partition_times()
    assert min(by_java) > 0
    group.tidemill.start(wait=False)
    until(lambda: group.is_shared_with(JAVA), "the tasks to be shared", LIMIT_S, pause_s=0.2)
    assert group.shared_by_leader(JAVA)

    def restored() -> list[int]:
        """Said a moment after a task runs."""
        return [int(event.fields["offsets"]) for event in group.tidemill.host.events("restored")]

    until(lambda: len(restored()) >= PARTITIONS // 2, "what was restored in the log", LIMIT_S)
    assert len(restored()) == PARTITIONS // 2
    assert min(restored()) > 0
    group.all_is_counted_exactly()
    assert all(now > before for now, before in zip(group.partition_times(), by_java, strict=True))
    assert group.tidemill.host.events("partition-time-unreadable") == []


def test_tidemill_carries_on_alone_when_the_java_instance_is_stopped(group: _Group) -> None:
    group.feed.start()
    stop_and_take_out(group.java, group.scene.servers, APPLICATION, JAVA)
    until(lambda: all_at_work([group.tidemill], TASKS), "Tidemill to run all tasks", LIMIT_S)
    group.all_is_counted_exactly()


def test_tidemill_as_leader_gives_a_java_instance_tasks_which_it_restores_from_what_both_wrote(group: _Group) -> None:
    group.feed.start()
    group.second.start()
    until(lambda: group.is_shared_with(SECOND), "the tasks to be shared", LIMIT_S, pause_s=0.2)
    assert group.shared_by_leader(TIDEMILL)
    group.all_is_counted_exactly()


def test_what_a_killed_java_instance_has_left_open_is_neither_counted_nor_waited_for(group: _Group) -> None:
    """Its session ends after 6 s; its transaction would hold the offsets back for 10 min if Tidemill's leader didn't end it."""
    group.feed.start()
    group.counts.wait_total(group.feed.total + 300, LIMIT_S)
    group.second.kill()
    until(lambda: all_at_work([group.tidemill], TASKS), "Tidemill to run all tasks", LIMIT_S)
    group.all_is_counted_exactly()
