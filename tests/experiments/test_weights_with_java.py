"""Weights of tasks in a group with Java Kafka Streams: a Java leader is not disturbed by loads in a subscription, and a Tidemill
leader gives a Java member tasks by the weights that Tidemill's members have measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from group_view import MemberView, members_of, stop_and_take_out
from instances import HERE, INPUT, OUTPUT, Instance, Scene, all_at_work, until
from java_streams import JavaStreams
from rounds import assignments
from traffic import VOCABULARY, Counts, Feed

from tidemill.assignment.task_load import value_of
from tidemill.ids import TaskId
from tidemill.membership.wire.task_loads import TAG, decode_loads
from tidemill.topology.partitioning import partition_of_key

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(600)]

APPLICATION, PARTITIONS, LIMIT_S = "streams-wordcount", 4, 240
TASKS = sorted(f"{part}_{number}" for part in (0, 1) for number in range(PARTITIONS))
HOT_WORD = VOCABULARY[0]
SKEWED = [HOT_WORD] * (9 * len(VOCABULARY)) + VOCABULARY
"""So that one task of the words has far more than all others together: with even counts its owner would always carry far more."""
HOT = TaskId(1, partition_of_key(HOT_WORD.encode(), PARTITIONS))
LONG_SESSION = {"session.timeout.ms": 60_000}
"""Nobody is thrown out, and led by another, because the machine is busy."""
AT_ONCE = {"acceptable.recovery.lag": 2**63 - 1, **LONG_SESSION}
WEIGHTED = {
    **AT_ONCE, "task.assignor.class": "balanced", "tidemill.task.weights": "true", "probing.rebalance.interval.ms": 3_000
}  # fmt: skip
JAVA, TIDEMILL, SECOND = (
    "4b61083e-57d0-457d-951f-d06556c148ca", "7156cef1-307e-49c0-a5bb-0f11d26a4933", "bbb83e43-b1af-4b2d-a60a-94a7091684d0"
)  # fmt: skip
PROBLEM = re.compile(r"\bat org\.apache\.kafka\.streams\.\S*[Aa]ssign\S*\(|to (PENDING_)?ERROR\b")
"""In a Java instance's log: an exception from where assignments are made and read, or the instance's end. Its clients name
there too what they try again on a busy machine, such as a transaction that is not over yet."""


def stands_out(loads: Mapping[TaskId, float]) -> bool:
    """The hot task among all."""
    return loads.get(HOT, 0) > 6 * max(load for task, load in loads.items() if task != HOT)


@dataclass
class Group:
    scene: Scene
    tidemill: Instance
    java: JavaStreams
    second: JavaStreams
    feed: Feed

    def members(self, *processes: str) -> dict[str, MemberView]:
        """What each said and was told; empty unless they are these and every task has one owner."""
        found = members_of(self.scene.servers, APPLICATION)
        held = sorted(task for member in found.values() for task in member.active)
        return found if found.keys() == set(processes) and held == TASKS else {}

    def loads(self, members: dict[str, MemberView]) -> dict[TaskId, float]:
        """Records per second of each task in Tidemill's last join, as far as they are measured."""
        text = members[TIDEMILL].said.client_tags.get(TAG) if members else None
        return {task: value_of(load.records) for task, load in decode_loads(text).items()} if text else {}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    folder = tmp_path_factory.mktemp("weights") / "scene"
    with (
        Scene(folder, topics={INPUT: PARTITIONS, OUTPUT: PARTITIONS}) as scene,
        JavaStreams(folder / "java", scene.servers, APPLICATION, process_id=JAVA, settings=AT_ONCE) as java,
        JavaStreams(folder / "java-2", scene.servers, APPLICATION, process_id=SECOND, settings=AT_ONCE) as second,
    ):
        feed = Feed(scene.servers, INPUT, partitions=PARTITIONS, seed=3, lines_per_s=60, vocabulary=SKEWED)
        feed.start()
        java.start()
        yield Group(scene, scene.own("tidemill", HERE / "java_wordcount.py", WEIGHTED, process_id=TIDEMILL), java, second, feed)
        feed.stop()


def test_a_java_leader_assigns_a_member_that_says_loads_as_before(group: Group) -> None:
    group.tidemill.start(wait=False)
    seen: dict[str, MemberView] = {}

    def has_said_loads() -> bool:
        seen.clear()
        seen.update(group.members(JAVA, TIDEMILL))
        return bool(group.loads(seen))

    until(has_said_loads, "loads in a join, and every task with one owner", LIMIT_S, pause_s=0.5)
    assert [len(member.active) for member in seen.values()] == [len(TASKS) // 2] * 2
    assert seen[JAVA].said.client_tags == {}
    assert "StreamThread" in assignments([group.java.log])[-1].leader
    assert PROBLEM.search(group.java.log) is None
    group.tidemill.wait_running()


def test_a_tidemill_leader_gives_a_java_member_more_tasks_where_its_own_are_hot(group: Group) -> None:
    """Java's tasks count as average ones."""
    stop_and_take_out(group.java, group.scene.servers, APPLICATION, JAVA)
    until(lambda: all_at_work([group.tidemill], len(TASKS)), "Tidemill to run all tasks", LIMIT_S)

    def are_measured() -> bool:
        """A task that is not counts as an average one, and what is even by that stays so."""
        loads = group.tidemill.look()["loads"]
        return loads.keys() == set(TASKS) and stands_out({TaskId.parse(task): load for task, load in loads.items()})

    until(are_measured, "the loads of all tasks", LIMIT_S, pause_s=0.5)
    group.second.start()
    seen: dict[str, MemberView] = {}

    def is_spread() -> bool:
        seen.clear()
        seen.update(group.members(SECOND, TIDEMILL))
        counts = {process: len(member.active) for process, member in seen.items()}
        hot = next((process for process, member in seen.items() if str(HOT) in member.active), None)
        return hot is not None and counts[hot] < len(TASKS) // 2

    until(is_spread, "fewer tasks for the member with the hot one", LIMIT_S, pause_s=0.5)
    assert assignments([group.tidemill.host.log])
    assert PROBLEM.search(group.second.log) is None
    assert stands_out(group.loads(seen))


def test_counts_are_exact_over_both_leaders(group: Group) -> None:
    counts = Counts(group.scene.servers, OUTPUT, partitions=PARTITIONS)
    try:
        group.feed.stop()
        counts.wait_total(group.feed.total, LIMIT_S)
        counts.settle()
        exact = counts.exactness(group.feed.expected)
        assert exact.is_exact, str(exact)
        assert exact.not_rising == 0
    finally:
        counts.close()
