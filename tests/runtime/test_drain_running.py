"""Instances that are drained, and a group that is restarted so: tasks go to copies that have caught up; counts stay exact."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.runtime.instance_pair import InstancePair, has_all
from tests.runtime.instance_process import InstanceProcess
from tidemill.cli.drain import drain_at
from tidemill.cli.roll import roll
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import EnvironmentProblem
from tidemill.membership.wire import HostInfo, host_of
from tidemill.query.http_tls import HttpAccess

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1500)]

APPLICATION = "drained"
PATIENT_S = 600
"""So long copies may take to catch up on a busy machine, and instances to come back, one after the other."""


def host(instance: InstanceProcess) -> HostInfo:
    """Where it answers; another one after each start."""
    found = host_of(instance.look()["server"])
    assert found is not None
    return found


@pytest.fixture(scope="module")
def pair(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstancePair]:
    settings = {
        "session.timeout.ms": 20_000,
        "acceptable.recovery.lag": 1_000,
        "probing.rebalance.interval.ms": 600_000,
        "tidemill.http.listen": "127.0.0.1:0",
        "tidemill.promote.when.caught.up": True,
    }
    pair = InstancePair.of(broker, tmp_path_factory.mktemp(APPLICATION), APPLICATION, [settings] * 2, seed=5)
    try:
        pair.one.start()
        has_all(pair.one)  # so that the second one has no state of what stays with the first
        pair.two.start()
        yield pair
    finally:
        pair.end()


def test_a_drained_instances_stateful_tasks_go_where_a_copy_has_caught_up_and_it_ends(pair: InstancePair) -> None:
    pair.share()
    pair.feed.send(300)
    assert pair.counts.reach(pair.feed.expected.total()), "a changelog without a record has no state that could be missed"
    pair.feed.start()
    stateful = {task for task in pair.one.look()["tasks"] if task.startswith("1_")}
    assert stateful
    shown: list[str] = []
    last = drain_at(host(pair.one), HttpAccess(), PATIENT_S, shown.append)
    assert last.message == "every task has been handed over"
    assert pair.one.wait_ended() == 0
    has_all(pair.two)
    assert {event["task"] for event in pair.two.events("standby-promoted")} >= stateful
    assert any("active tasks" in text for text in shown)
    pair.all_is_counted_exactly()


def test_an_instance_that_is_alone_does_not_drain(pair: InstancePair) -> None:
    with pytest.raises(EnvironmentProblem, match="there is no other instance in its group"):
        drain_at(host(pair.two), HttpAccess(), PATIENT_S, lambda _text: None)
    has_all(pair.two)


def test_an_instance_that_comes_back_has_its_share_long_before_the_group_probes(pair: InstancePair) -> None:
    """Its warm-ups are promoted when they have caught up."""
    pair.feed.send(3_000)
    pair.feed.start()
    pair.one.start()
    pair.share()
    pair.all_is_counted_exactly()


def test_a_group_is_restarted_one_instance_after_the_other(pair: InstancePair, broker: EmbeddedBroker) -> None:
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
        roll(APPLICATION, broker.bootstrap_servers, timeout_s=PATIENT_S, return_timeout_s=PATIENT_S)
    finally:
        is_over.set()
        keeper.join(PATIENT_S)
    assert sorted(restarted) == ["one", "two"]
    pair.all_is_counted_exactly()
