"""Instances that are drained, and a group that is restarted so: tasks go to copies that have caught up; counts stay exact."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.runtime.instance_process import LIMIT_S, InstanceProcess, until
from tests.runtime.words import PARTITIONS, Counts, Feed, create_topics, differences
from tidemill.cli.drain import drain_at
from tidemill.cli.roll import roll
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import EnvironmentProblem
from tidemill.membership.wire import HostInfo, host_of
from tidemill.query.http_tls import HttpAccess

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

APPLICATION = "drained"
TASKS = 2 * PARTITIONS


@dataclass
class Pair:
    one: InstanceProcess
    two: InstanceProcess
    feed: Feed
    counts: Counts

    def share(self) -> None:
        def shared() -> bool:
            tasks = [instance.look() for instance in (self.one, self.two)]
            return all(at["state"] == "RUNNING" and len(at["tasks"]) == TASKS // 2 for at in tasks)

        assert until(shared), f"{self.one.look()} {self.two.look()}: {self.one.log_end()}"

    def all_is_counted_exactly(self) -> None:
        self.feed.stop()
        total = self.feed.expected.total()
        assert self.counts.reach(total), f"{sum(self.counts.latest.values())} of {total}: {self.two.log_end()}"
        self.counts.settle()
        assert differences(self.counts.latest, self.feed.expected) == {}
        assert self.counts.not_rising == []


def host(instance: InstanceProcess) -> HostInfo:
    """Where it answers; another one after each start."""
    found = host_of(instance.look()["server"])
    assert found is not None
    return found


@pytest.fixture(scope="module")
def pair(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    create_topics(broker.bootstrap_servers, APPLICATION)
    folder = tmp_path_factory.mktemp(APPLICATION)
    one, two = (
        InstanceProcess(
            folder / name,
            broker.bootstrap_servers,
            APPLICATION,
            settings={
                "session.timeout.ms": 20_000,
                "acceptable.recovery.lag": 1_000,
                "probing.rebalance.interval.ms": 600_000,
                "tidemill.http.listen": "127.0.0.1:0",
                "tidemill.promote.when.caught.up": True,
            },
        )
        for name in ("one", "two")
    )
    feed, counts = Feed(broker.bootstrap_servers, APPLICATION, seed=5), Counts(broker.bootstrap_servers, APPLICATION)
    try:
        one.start()
        two.start()
        yield Pair(one, two, feed, counts)
    finally:
        feed.stop()
        counts.close()
        one.end()
        two.end()


def test_a_drained_instances_stateful_tasks_go_where_a_copy_has_caught_up_and_it_ends(pair: Pair) -> None:
    pair.share()
    pair.feed.send(300)
    pair.feed.start()
    stateful = {task for task in pair.one.look()["tasks"] if task.startswith("1_")}
    shown: list[str] = []
    last = drain_at(host(pair.one), HttpAccess(), LIMIT_S, shown.append)
    assert last.message == "every task has been handed over"
    assert pair.one.wait_ended() == 0
    assert {event["task"] for event in pair.two.events("standby-promoted")} >= stateful
    every_task = sorted(f"{part}_{number}" for part in (0, 1) for number in range(PARTITIONS))
    pair.two.wait(lambda at: at["tasks"] == every_task, "owner of all tasks")
    assert any("active tasks" in text for text in shown)
    pair.all_is_counted_exactly()


def test_an_instance_that_is_alone_does_not_drain(pair: Pair) -> None:
    with pytest.raises(EnvironmentProblem, match="there is no other instance in its group"):
        drain_at(host(pair.two), HttpAccess(), LIMIT_S, lambda _text: None)
    assert pair.two.look()["state"] == "RUNNING"


def test_an_instance_that_comes_back_has_its_share_long_before_the_group_probes(pair: Pair) -> None:
    """Its warm-ups are promoted when they have caught up."""
    pair.feed.send(3_000)
    pair.feed.start()
    pair.one.start()
    pair.share()
    pair.all_is_counted_exactly()


def test_a_group_is_restarted_one_instance_after_the_other(pair: Pair, broker: EmbeddedBroker) -> None:
    pair.feed.start()
    restarted: list[str] = []
    is_over = threading.Event()

    def start_again() -> None:
        """What systemd or Kubernetes does."""
        while not is_over.wait(0.2):
            for name, instance in (("one", pair.one), ("two", pair.two)):
                if instance.process.poll() is not None:
                    instance.start()
                    restarted.append(name)

    keeper = threading.Thread(target=start_again, daemon=True)
    keeper.start()
    try:
        roll(broker.bootstrap_servers, APPLICATION, None, None, timeout_s=LIMIT_S, return_timeout_s=LIMIT_S)
    finally:
        is_over.set()
        keeper.join(LIMIT_S)
    assert sorted(restarted) == ["one", "two"]
    pair.all_is_counted_exactly()
