"""Two instances of one application: killed, killed within a transaction, frozen and continued; the counts stay exact."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from tests.runtime.instance_pair import InstancePair, has_all
from tests.runtime.words import differences, stored_counts
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.runtime.thread.leaving import _GATHERING_LIMIT_S
from tidemill.task.commit import CommitStep

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(1500)]

APPLICATION = "two-instances"
SESSION_TIMEOUT_MS = 6_000
TRANSACTION_TIMEOUT_MS = 600_000
"""Longer than any wait: a test that waits for it fails."""


@pytest.fixture(scope="module")
def pair(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstancePair]:
    """Both run, and share the tasks, at the beginning of each test."""
    settings = {"session.timeout.ms": SESSION_TIMEOUT_MS, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    pair = InstancePair.of(broker, tmp_path_factory.mktemp(APPLICATION), APPLICATION, [settings] * 2, seed=2)
    try:
        pair.one.start()
        pair.two.start()
        yield pair
    finally:
        pair.end()


def written_at(line: str) -> datetime:
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f")


def test_a_killed_instances_tasks_move_and_are_restored_from_the_changelog_through_spark(pair: InstancePair) -> None:
    pair.share()
    pair.all_is_counted_exactly()
    pair.feed.start()
    restored = pair.two.look()["restored"]
    pair.one.kill_tree()
    has_all(pair.two)
    pair.two.wait(lambda at: at["restored"] > restored, "restored from the changelogs")
    pair.all_is_counted_exactly()
    pair.one.start()
    pair.share()
    pair.all_is_counted_exactly()


@pytest.mark.parametrize("at", [CommitStep.MEMBERSHIP, CommitStep.COMMIT], ids=lambda step: step.value)
def test_an_instance_frozen_past_its_session_commits_nothing_when_it_goes_on(pair: InstancePair, at: CommitStep) -> None:
    """Its worker stops right before it commits, or right after and before it writes its stores."""
    pair.share()
    lost = len(pair.one.events("membership-lost"))
    order = pair.one.order("step-1", at.value, signal.SIGSTOP, "self")
    pair.feed.start()
    assert until(lambda: not order.exists())
    frozen = pair.one.freeze()
    has_all(pair.two)
    time.sleep(1)
    pair.all_is_counted_exactly()
    for process in frozen:
        process.resume()
    assert until(lambda: len(pair.one.events("membership-lost")) > lost)
    pair.feed.start()
    pair.share()
    pair.all_is_counted_exactly()


def test_an_instance_killed_within_a_transaction_holds_nobody_up_until_the_transactions_time_out(pair: InstancePair) -> None:
    pair.share()
    order = pair.one.order("step-1", CommitStep.PRODUCE.value, signal.SIGSTOP, "self")
    pair.feed.send(30)
    assert until(lambda: not order.exists())
    pair.one.kill_tree()
    pair.all_is_counted_exactly()
    pair.one.start()
    pair.share()


def test_an_instance_that_is_closed_hands_its_tasks_over_and_the_stores_hold_the_same_counts(pair: InstancePair) -> None:
    pair.share()
    pair.feed.start()
    assert pair.one.close() == 0
    has_all(pair.two)
    lines = pair.one.log.splitlines()
    (leaves,) = (number for number, line in enumerate(lines) if "event=leaving " in line)
    closes = next(number for number, line in enumerate(lines) if number > leaves and "event=task-closed " in line)
    # A group that a busy machine keeps from hearing of it has given its tasks to others.
    has_gathered, is_cast_out = (
        any(event in line for line in lines[leaves:]) for event in ("event=assigned thread=", "event=membership-lost ")
    )
    went_on = written_at(lines[closes]) - written_at(lines[leaves])
    waited = went_on >= timedelta(seconds=_GATHERING_LIMIT_S)
    assert has_gathered or is_cast_out or waited, "it goes on until the group has gathered"
    pair.all_is_counted_exactly()
    assert pair.two.close() == 0
    stored = stored_counts([pair.one.state_dir, pair.two.state_dir], APPLICATION)
    assert differences(stored, pair.feed.expected) == {}
    assert pair.one.events("state-note") + pair.two.events("state-note") == []
