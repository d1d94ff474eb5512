"""processing.guarantee=at_least_once: exact without faults; with them nothing is lost, and what is counted twice is rising."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.runtime.instance_process import InstanceProcess
from tests.runtime.words import Counts, Feed, create_topics, differences
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.task.commit import CommitStep

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

APPLICATION = "at-least-once"


def test_at_least_once_is_exact_without_faults_and_loses_nothing_with_them(broker: EmbeddedBroker, tmp_path: Path) -> None:
    create_topics(broker.bootstrap_servers, APPLICATION)
    feed = Feed(broker.bootstrap_servers, APPLICATION, seed=4)
    counts = Counts(broker.bootstrap_servers, APPLICATION)
    # A membership that a busy machine loses is a fault, too: what was not committed would be counted twice.
    settings = {"processing.guarantee": "at_least_once", "commit.interval.ms": 500, "session.timeout.ms": 20_000}
    instance = InstanceProcess(tmp_path / "one", broker.bootstrap_servers, APPLICATION, settings=settings)

    def nothing_is_missing() -> bool:
        counts.read()
        return all(counts.latest.get(word, 0) >= count for word, count in feed.expected.items())

    try:
        instance.start()
        instance.wait_running()
        feed.send(50)
        assert counts.reach(feed.expected.total())
        counts.settle()
        assert differences(counts.latest, feed.expected) == {}
        for step, at in (("step-1", CommitStep.COMMIT.value), ("step-1", CommitStep.PRODUCE.value), ("source", "end")):
            order = instance.order(step, at, signal.SIGKILL, "self")
            feed.send(50)
            assert until(lambda order=order: not order.exists())
            assert until(nothing_is_missing), instance.log_end()
        feed.send(50)
        assert until(nothing_is_missing)
        feed.send(50)
        instance.kill_driver()
        instance.start()
        feed.send(50)
        feed.stop()
        assert until(nothing_is_missing), instance.log_end()
        assert instance.close() == 0
    finally:
        instance.end()
        counts.close()
