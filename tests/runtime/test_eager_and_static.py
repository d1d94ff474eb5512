"""Instances with the eager protocol give everything up at each rebalance; static ones restart without any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.runtime.instance_pair import TASKS, InstancePair, has_all
from tests.runtime.local_instance import LocalInstance
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

LocalPair = InstancePair[LocalInstance]
LONG_SESSION_MS = 240_000
"""Nobody is missed while an instance is started again, or when the machine is busy: each would be one more rebalance."""
NEVER_BEHIND = {"acceptable.recovery.lag": 10**9}
"""However long the second instance takes to start, nothing is warmed up first: a warm-up is promoted by one more rebalance."""


def start(pair: LocalPair) -> None:
    """Under load, the second one where the first already runs."""
    pair.one.start()
    pair.one.wait_running()
    pair.feed.start()
    pair.two.start()
    pair.share()
    assert until(lambda: is_settled(pair)), pair.two.log_end()


def is_settled(pair: LocalPair) -> bool:
    """Both have taken up what the group's last generation gave them, so nobody asks for one more rebalance: where a thread gives
    up its tasks late, as behind a long batch, the other one asks again and again until it has them."""
    members = [instance.streams.threads[0]._member.membership for instance in (pair.one, pair.two)]
    taken_up = [[e for e in instance.events("assigned") if "thread" in e][-1]["generation"] for instance in (pair.one, pair.two)]
    return all(member.is_stable for member in members) and {*taken_up} == {str(member.generation) for member in members}


def rounds(pair: LocalPair) -> list[str]:
    """The assignments that a leader has decided, here or there."""
    return [line for one in (pair.one, pair.two) for line in one.log.splitlines() if "to clients as:" in line]


@pytest.fixture
def eager(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> Iterator[LocalPair]:
    settings = {"rebalance.protocol": "eager", "session.timeout.ms": LONG_SESSION_MS, **NEVER_BEHIND}
    pair = InstancePair.local(spark, broker, tmp_path, "eager-instances", [settings] * 2, seed=11)
    yield pair
    pair.end()


@pytest.fixture
def static(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> Iterator[LocalPair]:
    settings: list[dict[str, object]] = [
        {"group.instance.id": name, "session.timeout.ms": LONG_SESSION_MS, "heartbeat.interval.ms": 1_000, **NEVER_BEHIND}
        for name in ("left", "right")
    ]
    settings[1]["leave.group.on.close"] = True
    pair = InstancePair.local(spark, broker, tmp_path, "static-instances", settings, seed=11)
    yield pair
    pair.end()


def test_eager_instances_give_all_tasks_up_before_a_join_and_get_them_without_a_second_rebalance(eager: LocalPair) -> None:
    start(eager)
    one = eager.one
    revoking = one.events("revoking-all")
    assert revoking, one.log_end()
    lines = one.log.splitlines()
    begins = next(number for number, line in enumerate(lines) if "event=revoking-all" in line)
    ends = next(n for n, line in enumerate(lines) if n > begins and "event=assigned group=" in line)
    closed = {line.split("task=")[1].split()[0] for line in lines[begins:ends] if "event=task-closed" in line}
    assert len(closed) == TASKS, f"all are closed between the wish to join and the answer: {lines[begins : ends + 1]}"
    assert len(rounds(eager)) == 2, "one rebalance for each join: nothing is withheld for another"
    assert "until it is safely revoked" not in one.log + eager.two.log
    eager.two.close()
    has_all(one)
    eager.all_is_counted_exactly()


def test_a_static_instance_restarts_without_a_rebalance_and_one_that_is_to_leave_does_so_at_once(static: LocalPair) -> None:
    start(static)
    one, two = static.one, static.two
    led, generations = len(rounds(static)), {event["generation"] for each in (one, two) for event in each.events("assigned")}
    before, had = len(two.events("assigned")), one.look()["tasks"]
    one.close()
    processed = two.look()["records_in"]
    one.start()
    static.share()
    assert one.look()["tasks"] == had
    assert two.look()["records_in"] > processed, "the other one goes on meanwhile"
    assert len(rounds(static)) == led, "no leader has decided anything"
    assert len(two.events("assigned")) == before, "the other one has noticed nothing"
    assert {event["generation"] for event in one.events("assigned")} <= generations
    two.close()
    has_all(one, LONG_SESSION_MS / 1000 / 2)
    static.all_is_counted_exactly()
