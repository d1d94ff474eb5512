"""kill -9 of the driver, the JVM, the whole process tree at twenty random moments, and a restart each time."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.runtime.instance_process import InstanceProcess, has_ended
from tests.runtime.words import VOCABULARY, Counts, Feed, create_topics, differences, stored_counts
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.task.commit import CommitStep

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(3000)]

APPLICATION = "restarts"
SEED = 20_240_817
KILLS = 20
COMMITS_A_BATCH = 4
"""Offsets of a changelog that a batch takes besides its records: transaction markers of it and of aborted ones before it."""


def test_twenty_kills_at_random_moments_leave_every_count_exact_and_nothing_wiped(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    moments = random.Random(SEED)
    create_topics(broker.bootstrap_servers, APPLICATION)
    feed = Feed(broker.bootstrap_servers, APPLICATION, seed=SEED)
    counts = Counts(broker.bootstrap_servers, APPLICATION)
    instance = InstanceProcess(
        tmp_path / "one", broker.bootstrap_servers, APPLICATION, settings={"session.timeout.ms": 2_000}
    )
    left: list[psutil.Process] = []
    feed.start()
    try:
        for number in range(KILLS):
            instance.start()
            left += _killed_at_random(instance, ("driver", "jvm", "tree")[number % 3], moments)
            counts.read(0)
        instance.start()
        instance.wait_running()
        feed.stop()
        assert counts.reach(feed.expected.total()), f"{instance.log_end()}"
        counts.settle()
        assert instance.close() == 0
    finally:
        feed.stop()
        instance.end()
        counts.close()
    assert until(lambda: all(map(has_ended, left))), "something outlived its driver"
    assert differences(counts.latest, feed.expected) == {}
    assert counts.not_rising == []
    assert differences(stored_counts([instance.state_dir], APPLICATION), feed.expected) == {}
    assert instance.events("state-note") == []
    _nothing_but_the_last_batch_was_replayed(instance)


def _killed_at_random(instance: InstanceProcess, victim: str, moments: random.Random) -> list[psutil.Process]:
    """Some die on their way up, some right between Kafka's commit and the stores', most of them anywhere at work; returns
    what was running."""
    draw = moments.random()
    if draw < 0.25:
        time.sleep(moments.uniform(0.5, 8))
    else:
        instance.wait_running()
        time.sleep(moments.uniform(0, 2))
    if victim == "tree" and draw > 0.4:
        order = instance.order("step-1", CommitStep.COMMIT.value, signal.SIGSTOP, "self")
        assert until(lambda: not order.exists()), instance.log_end()
    left = instance.tree() if instance.process.poll() is None else []
    {"driver": instance.kill_driver, "jvm": instance.kill_jvm, "tree": instance.kill_tree}[victim]()
    return left


def _nothing_but_the_last_batch_was_replayed(instance: InstanceProcess) -> None:
    restored = instance.events("restored")
    assert [found for found in restored if int(found["offsets"]) > COMMITS_A_BATCH], "no batch was ever replayed"
    too_many = [found for found in restored if int(found["offsets"]) > len(VOCABULARY) + COMMITS_A_BATCH]
    assert too_many == []
    far = [found for found in restored if int(found["from"]) > 2 * len(VOCABULARY)]
    assert far, "the changelogs were too short to tell a full restore from a short one"
