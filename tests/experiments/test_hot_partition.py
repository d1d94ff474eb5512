"""Weights of tasks in a real group: a hot partition is measured, the load travels to the leader, which spreads the tasks."""

from __future__ import annotations

import json
import struct
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from group_view import members_of
from instances import LIMIT_S, Instance, Scene, until

from tidemill.assignment.task_load import TaskLoad, value_of
from tidemill.ids import TaskId
from tidemill.membership.wire.task_loads import TAG, decode_loads

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]

HOT = TaskId(0, 0)
PARTITIONS, HOT_TIMES, COLD_PER_S = 8, 24, 20
KEYS, SENT_BEFORE = 1_000, 3_000
"""Of each partition: its keys, and its records before the instances start, more than ``acceptable.recovery.lag``."""
SETTINGS = {
    "application.id": "hot-partition",
    "task.assignor.class": "balanced",
    "tidemill.task.weights": "true",
    "acceptable.recovery.lag": 500,
    "probing.rebalance.interval.ms": 3_000,
    "tidemill.http.listen": "127.0.0.1:0",
}
PROGRAM = '''
from tidemill import Serdes, StreamsBuilder

config = {"application.id": "hot-partition", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()
counts = builder.stream("keys", key=Serdes.string(), value=Serdes.string()).group_by_key().count(store="counts")
counts.to_stream().to("counts", key=Serdes.string(), value=Serdes.long())
'''
_TICK_S = 0.05


class SkewedFeed:
    """Keys of their own for each partition."""

    def __init__(self, servers: str) -> None:
        self.expected: Counter[str] = Counter()
        one_at_a_time = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0, **one_at_a_time})
        self._ends, self._hot_times = threading.Event(), HOT_TIMES
        self._numbers: Counter[int] = Counter()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def send(self, partition: int, records: int) -> None:
        for _ in range(records):
            key = f"p{partition}-{self._numbers[partition] % KEYS}"
            self._numbers[partition] += 1
            self.expected[key] += 1
            self._producer.produce("keys", b"", key, partition)
        self._producer.poll(0)

    def start(self) -> None:
        self._thread.start()

    def get_hotter(self) -> None:
        """So much that the mean of all that was measured before changes soon."""
        self._hot_times = 10 * HOT_TIMES

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()
        self._producer.flush(LIMIT_S)

    def _run(self) -> None:
        each = round(COLD_PER_S * _TICK_S)
        while not self._ends.wait(_TICK_S):
            for partition in range(PARTITIONS):
                self.send(partition, each if partition else each * self._hot_times)


def begin(scene: Scene, settings: Mapping[str, object]) -> tuple[SkewedFeed, list[Instance]]:
    """A feed that is under way, and two instances that are not started."""
    program = scene.folder / "keys.py"
    program.write_text(PROGRAM)
    feed = SkewedFeed(scene.servers)
    for partition in range(PARTITIONS):
        feed.send(partition, SENT_BEFORE)
    feed.start()
    return feed, [scene.own(name, program, settings) for name in ("one", "two")]


def held(pair: list[Instance]) -> list[list[str]]:
    """Running tasks of each, that with the hot one first; empty while a task has none or two owners."""
    found = [[task for task, phase in one.look()["tasks"].items() if phase == "running"] for one in pair]
    is_whole = sorted(task for tasks in found for task in tasks) == [f"0_{number}" for number in range(PARTITIONS)]
    return sorted(found, key=lambda tasks: "0_0" not in tasks) if is_whole else []


def decisions(instance: Instance) -> list[dict[str, Any]]:
    """Of the newest rebalance, as far as this instance hears of it."""
    try:
        with urllib.request.urlopen(f"http://{instance.look()['server']}/decisions", timeout=LIMIT_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)["decisions"]
            return found
    except urllib.error.HTTPError:  # whoever has led it does not answer in time
        return []


def counted(servers: str, total: int) -> dict[str, int]:
    """The latest count of each key, once as many records are counted."""
    settings = {"bootstrap.servers": servers, "group.id": "reads without a group", "isolation.level": "read_committed"}
    reader = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    reader.assign([TopicPartition("counts", number, 0) for number in range(PARTITIONS)])
    latest: dict[str, int] = {}

    def has_all() -> bool:
        for message in reader.consume(10_000, 0.5):
            key, value = message.key(), message.value()
            if message.error() is None and key is not None and value is not None:
                latest[key.decode()] = struct.unpack(">q", value)[0]
        return sum(latest.values()) >= total

    until(has_all, f"{total:,} counted records", LIMIT_S)
    reader.close()
    return latest


@dataclass
class Group:
    scene: Scene
    feed: SkewedFeed
    pair: list[Instance]

    def said(self) -> dict[TaskId, TaskLoad]:
        """Loads in the members' last joins."""
        members = members_of(self.scene.servers, str(SETTINGS["application.id"])).values()
        told = [member.said.client_tags[TAG] for member in members if TAG in member.said.client_tags]
        return {task: load for text in told for task, load in decode_loads(text).items()}


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with Scene(tmp_path_factory.mktemp("hot") / "scene", topics={"keys": PARTITIONS, "counts": PARTITIONS}) as scene:
        feed, pair = begin(scene, SETTINGS)
        for instance in pair:
            instance.start(wait=False)
        yield Group(scene, feed, pair)
        feed.stop()


def test_the_instance_with_the_hot_partition_gets_fewer_tasks_and_the_leader_says_why(group: Group) -> None:
    every_task = {TaskId(0, number) for number in range(PARTITIONS)}

    def is_spread() -> bool:
        """Within the bounds of the counts. A member that has measured far more than it said joins again."""
        loads = {task: value_of(load.records) for task, load in group.said().items()}
        return (
            [len(tasks) for tasks in held(group.pair)] in ([3, 5], [2, 6])
            and loads.keys() == every_task
            and loads.pop(HOT) > HOT_TIMES / 4 * max(loads.values())
        )

    until(is_spread, "tasks by weight", LIMIT_S, pause_s=0.5)

    def is_told() -> bool:
        return any(one["rule"] == "balanced by weight" and "it weighs" in one["reason"] for one in decisions(group.pair[0]))

    until(is_told, "the leader's reasons", LIMIT_S, pause_s=0.5)


def test_a_member_whose_load_has_changed_asks_for_a_rebalance(group: Group) -> None:
    """Before that, others may have: of a join that comes anyway, loads are a part."""
    spread_at_s = time.time()
    group.feed.get_hotter()

    def has_asked() -> bool:
        return any(instance.host.events("loads-changed", spread_at_s) for instance in group.pair)

    until(has_asked, "a rebalance for the load", LIMIT_S, pause_s=0.5)


def test_counts_are_exact_after_tasks_have_moved_for_their_weights(group: Group) -> None:
    group.feed.stop()
    assert counted(group.scene.servers, group.feed.expected.total()) == group.feed.expected
