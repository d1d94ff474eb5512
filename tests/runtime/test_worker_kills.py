"""kill -9 of the Python workers of a running application, at every step of a batch: it goes on, and its counts are exact."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.runtime.instance_process import InstanceProcess, has_ended
from tests.runtime.words import Counts, Feed, create_topics, differences, stored_counts
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.task.commit import ORDER, CommitStep

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

APPLICATION = "worker-kills"
LAST = "step-1"


@dataclass
class Run:
    """One application that runs through all tests of this module."""

    instance: InstanceProcess
    feed: Feed
    counts: Counts
    first_pid: int

    def some_words_are_counted_exactly(self) -> None:
        self.feed.send(20)
        total = self.feed.expected.total()
        assert self.counts.reach(total), f"{self.counts.latest} of {total}: {self.instance.log_end()}"
        assert differences(self.counts.latest, self.feed.expected) == {}
        assert self.counts.not_rising == []


@pytest.fixture(scope="module")
def run(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    create_topics(broker.bootstrap_servers, APPLICATION)
    feed = Feed(broker.bootstrap_servers, APPLICATION, seed=1)
    # A membership that a busy machine loses may cost the workers: without an answer of theirs, stores are closed by their death.
    settings = {"session.timeout.ms": 45_000}
    folder = tmp_path_factory.mktemp(APPLICATION)
    instance = InstanceProcess(folder / "one", broker.bootstrap_servers, APPLICATION, settings=settings)
    instance.start()
    counts = Counts(broker.bootstrap_servers, APPLICATION)
    try:
        instance.wait_running()
        yield Run(instance, feed, counts, instance.process.pid)
        feed.stop()
    finally:
        counts.close()
        instance.end()


def workers(run: Run) -> dict[str, int]:
    """Once those that were killed have been replaced."""

    def are_alive(at: dict[str, Any]) -> bool:
        [found] = at["workers"]
        alive = {process.pid for process in run.instance.tree() if not has_ended(process)}
        return set(found.values()) <= alive

    [found] = run.instance.wait(are_alive, "at work with workers that are alive")["workers"]
    return dict(found)


def test_the_workers_of_a_thread_stay_the_same_over_a_run(run: Run) -> None:
    run.some_words_are_counted_exactly()
    before = workers(run)
    batches = run.instance.look()["batches"]
    for _ in range(3):
        run.some_words_are_counted_exactly()
    run.instance.wait(lambda at: at["batches"] >= batches + 20, "20 batches further")
    assert set(before) == {"source", LAST}
    assert workers(run) == before


@pytest.mark.parametrize("at", ORDER, ids=lambda step: step.value)
def test_the_last_step_killed_at_any_step_costs_nothing_but_its_batch(run: Run, at: CommitStep) -> None:
    order = run.instance.order(LAST, at.value, signal.SIGKILL, "self")
    run.some_words_are_counted_exactly()
    assert until(lambda: not order.exists())
    assert LAST in workers(run)


@pytest.mark.parametrize("at", ["start", "chunk", "end"])
def test_the_source_killed_at_any_step_costs_nothing_but_its_batch(run: Run, at: str) -> None:
    order = run.instance.order("source", at, signal.SIGKILL, "self")
    run.some_words_are_counted_exactly()
    assert until(lambda: not order.exists())


@pytest.mark.parametrize("at", ORDER, ids=lambda step: step.value)
def test_both_workers_killed_at_any_step_start_again_where_the_last_commit_ended(run: Run, at: CommitStep) -> None:
    order = run.instance.order(LAST, at.value, signal.SIGKILL, workers(run)["source"], "self")
    run.some_words_are_counted_exactly()
    assert until(lambda: not order.exists())


AT_WORK = (CommitStep.REQUEST, CommitStep.GATHER, CommitStep.PRODUCE, CommitStep.COMMIT)


@pytest.mark.parametrize("at", AT_WORK, ids=lambda step: step.value)
def test_the_source_killed_while_the_last_step_works_changes_no_count(run: Run, at: CommitStep) -> None:
    order = run.instance.order(LAST, at.value, signal.SIGKILL, workers(run)["source"])
    run.some_words_are_counted_exactly()
    assert until(lambda: not order.exists())


def test_after_all_kills_driver_and_jvm_are_the_first_ones_and_the_stores_hold_the_same_counts(run: Run) -> None:
    run.some_words_are_counted_exactly()
    assert run.instance.process.pid == run.first_pid
    assert run.instance.close() == 0
    assert differences(stored_counts([run.instance.state_dir], APPLICATION), run.feed.expected) == {}
    assert run.instance.events("state-note") == []
    assert run.instance.events("starting") != []
    assert len(run.instance.events("starting")) == 1
