"""Two instances on one standalone master, an executor each, with standbys of each other's tasks: when an executor is killed, what
stands by on the other goes on at once, and what was lost is copied anew."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.executors import executors, standalone
from tests.runtime.instance_process import InstanceProcess
from tests.runtime.words import Counts, Feed, create_topics, differences
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [
    pytest.mark.cluster, pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(540),
]  # fmt: skip

APPLICATION = "standby-on-executor"
WORDS = 6_000


@pytest.fixture
def instances(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[list[InstanceProcess]]:
    create_topics(broker.bootstrap_servers, APPLICATION)
    with standalone(tmp_path / "cluster") as master:
        settings = {
            "spark.master": master.url,
            "spark.executor.memory": "512m",
            "spark.cores.max": 1,
            "num.standby.replicas": 1,
            "acceptable.recovery.lag": 5,  # an empty store lacks more than that
            "tidemill.executor.state.dir": "state",
        }
        both = [
            InstanceProcess(tmp_path / name, broker.bootstrap_servers, APPLICATION, settings=settings) for name in ("one", "two")
        ]
        try:
            for instance in both:
                instance.start()
            yield both
        finally:
            for instance in both:
                instance.end()


def test_a_standby_on_another_executor_goes_on_at_once(broker: EmbeddedBroker, instances: list[InstanceProcess]) -> None:
    one, two = instances
    feed, counts = Feed(broker.bootstrap_servers, APPLICATION, seed=3), Counts(broker.bootstrap_servers, APPLICATION)
    feed.send(WORDS // 6)
    for instance in (one, two):
        instance.wait_running()
    assert counts.reach(feed.expected.total(), 240)
    for instance in (one, two):
        instance.wait(lambda at: at["standbys"] and all(lag == 0 for lag in at["standbys"].values()), "its standbys caught up")
    mine = {task for task in one.look()["tasks"] if task.startswith("1_")}
    assert mine
    feed.start()
    worker = next(iter(one.look()["workers"][0].values()))
    [victim] = executors(psutil.Process(worker).parents()).values()
    victim.send_signal(signal.SIGKILL)
    two.wait(lambda at: mine <= set(at["tasks"]), "given what the lost executor had")
    assert until(lambda: mine <= {event["task"] for event in two.events("standby-promoted")})
    feed.stop()
    assert counts.reach(feed.expected.total(), 240)
    assert differences(counts.latest, feed.expected) == {}
    assert counts.not_rising == []
    one.wait(lambda at: at["state"] == "RUNNING", "running again on another executor")
    counts.close()
