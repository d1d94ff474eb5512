"""Instances with the eager protocol give everything up at each rebalance; static ones restart without any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.instance_process import InstanceProcess, until
from tests.runtime.words import PARTITIONS, Counts, Feed, create_topics, differences
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

TASKS = 2 * PARTITIONS
LONG_SESSION_MS = 240_000
"""Nobody is missed while an instance is started again, or when the machine is busy: each would be one more rebalance."""
NEVER_BEHIND = {"acceptable.recovery.lag": 10**9}
"""However long the second instance takes to start, nothing is warmed up first: a warm-up is promoted by one more rebalance."""


class Pair:
    """Two instances that share the tasks, under load."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, application: str, settings: list[dict[str, object]]) -> None:
        create_topics(broker.bootstrap_servers, application)
        self.one, self.two = (
            InstanceProcess(folder / f"{number}", broker.bootstrap_servers, application, settings={**NEVER_BEHIND, **written})
            for number, written in enumerate(settings)
        )
        self.feed = Feed(broker.bootstrap_servers, application, seed=11)
        self.counts = Counts(broker.bootstrap_servers, application)

    def start(self) -> None:
        self.one.start()
        self.one.wait_running()
        self.feed.start()
        self.two.start()
        self.share()

    def share(self) -> None:
        def shared() -> bool:
            looks = [instance.look() for instance in (self.one, self.two)]
            return all(at["state"] == "RUNNING" and len(at["tasks"]) == TASKS // 2 for at in looks)

        assert until(shared), f"{self.one.look()} {self.two.look()}: {self.two.log_end()}"

    def all_is_counted_exactly(self) -> None:
        self.feed.stop()
        total = self.feed.expected.total()
        assert self.counts.reach(total), f"{sum(self.counts.latest.values())} of {total}: {self.one.log_end()}"
        self.counts.settle()
        assert differences(self.counts.latest, self.feed.expected) == {}
        assert self.counts.not_rising == []

    def rounds(self) -> list[str]:
        """The assignments that a leader has decided, here or there."""
        return [line for one in (self.one, self.two) for line in one.log.splitlines() if "to clients as:" in line]

    def end(self) -> None:
        self.feed.stop()
        self.counts.close()
        self.one.end()
        self.two.end()


@pytest.fixture
def eager(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(broker, tmp_path, "eager-instances", [{"rebalance.protocol": "eager", "session.timeout.ms": LONG_SESSION_MS}] * 2)
    yield pair
    pair.end()


@pytest.fixture
def static(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Pair]:
    settings: list[dict[str, object]] = [
        {"group.instance.id": name, "session.timeout.ms": LONG_SESSION_MS, "heartbeat.interval.ms": 1_000}
        for name in ("left", "right")
    ]
    settings[1]["leave.group.on.close"] = True
    pair = Pair(broker, tmp_path, "static-instances", settings)
    yield pair
    pair.end()


def test_eager_instances_give_all_tasks_up_before_a_join_and_get_them_without_a_second_rebalance(eager: Pair) -> None:
    eager.start()
    one = eager.one
    revoking = one.events("revoking-all")
    assert revoking, one.log_end()
    lines = one.log.splitlines()
    begins = next(number for number, line in enumerate(lines) if "event=revoking-all" in line)
    ends = next(n for n, line in enumerate(lines) if n > begins and "event=assigned group=" in line)
    closed = {line.split("task=")[1].split()[0] for line in lines[begins:ends] if "event=task-closed" in line}
    assert len(closed) == TASKS, f"all are closed between the wish to join and the answer: {lines[begins : ends + 1]}"
    assert len(eager.rounds()) == 2, "one rebalance for each join: nothing is withheld for another"
    assert "until it is safely revoked" not in one.log + eager.two.log
    assert eager.two.close() == 0
    one.wait(lambda at: len(at["tasks"]) == TASKS and at["state"] == "RUNNING", "owner of all tasks")
    eager.all_is_counted_exactly()


def test_a_static_instance_restarts_without_a_rebalance_and_one_that_is_to_leave_does_so_at_once(static: Pair) -> None:
    static.start()
    one, two = static.one, static.two
    rounds, generations = len(static.rounds()), {event["generation"] for event in two.events("assigned")}
    before, had = len(two.events("assigned")), one.look()["tasks"]
    assert one.close() == 0
    processed = two.look()["records_in"]
    one.start()
    static.share()
    assert one.look()["tasks"] == had
    assert two.look()["records_in"] > processed, "the other one goes on meanwhile"
    assert len(static.rounds()) == rounds, "no leader has decided anything"
    assert len(two.events("assigned")) == before, "the other one has noticed nothing"
    assert {event["generation"] for event in one.events("assigned")} <= generations | {"1"}
    assert two.close() == 0
    one.wait(lambda at: len(at["tasks"]) == TASKS and at["state"] == "RUNNING", "owner of all tasks", LONG_SESSION_MS / 1000 / 2)
    static.all_is_counted_exactly()
