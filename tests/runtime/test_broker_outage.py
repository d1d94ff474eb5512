"""kill -9 of the broker under load, and its return ten seconds later on the same data and port."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.instance_process import InstanceProcess
from tests.runtime.words import Counts, Feed, create_topics, differences, stored_counts
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

APPLICATION = "outage"
AWAY_S = 10


def test_a_killed_broker_that_comes_back_costs_time_and_nothing_else(
    private_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    broker = private_broker()
    create_topics(broker.bootstrap_servers, APPLICATION)
    feed = Feed(broker.bootstrap_servers, APPLICATION, seed=3)
    counts = Counts(broker.bootstrap_servers, APPLICATION)
    # A batch may hang for as long as the broker is away, and a start takes its time on a busy machine.
    settings = {"tidemill.batch.timeout.ms": 120_000}
    instance = InstanceProcess(tmp_path / "one", broker.bootstrap_servers, APPLICATION, settings=settings)
    instance.start()
    try:
        instance.wait_running()
        feed.start()
        assert counts.reach(1_000)
        broker.kill()
        time.sleep(AWAY_S)
        broker.start()
        feed.stop()
        assert counts.reach(feed.expected.total()), instance.log_end()
        counts.settle()
        assert differences(counts.latest, feed.expected) == {}
        assert counts.not_rising == []
        assert instance.close() == 0
        assert differences(stored_counts([instance.state_dir], APPLICATION), feed.expected) == {}
        assert len(instance.events("starting")) == 1
        assert instance.events("state-note") == []
        assert instance.events("batch-hangs") == [], "no call to the brokers outlasts their return"
    finally:
        feed.stop()
        instance.end()
        counts.close()
