"""The same application on ``local-cluster[2,1,1024]``: two executors that share this machine's disk."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.executors import Run, counts_on, executors, running
from tests.runtime.words import differences
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [pytest.mark.cluster, pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(540)]

APPLICATION = "local-cluster"
THREADS = 2


@pytest.fixture(scope="module")
def run(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    settings = {"spark.master": "local-cluster[2,1,1024]", "num.stream.threads": THREADS}
    folder = tmp_path_factory.mktemp(APPLICATION)
    with running(broker.bootstrap_servers, APPLICATION, folder / "one", settings, seed=1) as run:
        yield run


def test_words_are_counted_exactly_by_workers_on_executors(run: Run) -> None:
    run.some_words_are_counted_exactly()
    workers = run.workers()
    assert len(set(workers)) == 2 * THREADS
    assert None not in set().union(*run.places())


def test_each_thread_has_an_executor_and_its_batches_stay_there(run: Run) -> None:
    run.some_words_are_counted_exactly()
    places, workers = run.places(), run.workers()
    assert sorted(name for of_thread in places for name in of_thread if name) == ["0", "1"]
    batches = run.instance.look()["batches"]
    run.some_words_are_counted_exactly()
    run.instance.wait(lambda at: at["batches"] >= batches + 20, "20 batches further")
    assert run.workers() == workers
    assert run.places() == places


def test_stores_lie_on_the_executors_disk_and_a_read_by_handle_is_answered_from_there(run: Run) -> None:
    run.some_words_are_counted_exactly()
    beside_the_driver = run.instance.state_dir / APPLICATION
    assert not list(beside_the_driver.glob("*_*/data.mdb"))
    assert list(beside_the_driver.glob("*-*-*-*-*/1_*/data.mdb"))
    [word] = run.feed.expected.most_common(1)
    answer = run.instance.ask(f"read {word[0]}")
    assert answer.get("value") == word[1], answer
    assert differences(answer["all"], run.feed.expected) == {}
    assert answer["entries"] == len(run.feed.expected)


def test_an_executor_that_is_killed_is_replaced_and_no_count_is_lost_or_doubled(run: Run) -> None:
    run.feed.start()
    for _ in range(2):
        victim = run.one_executor()
        executors(run.processes())[victim].send_signal(signal.SIGKILL)
        run.settled_without(victim)
        run.instance.wait_running()
    run.feed.stop()
    run.some_words_are_counted_exactly()
    # Two to begin with, and one for each that was killed: a thread that shares the other one's for a while moves there, too.
    assert until(lambda: len({event["executor"] for event in run.instance.events("thread-placed")}) >= 4)


def test_the_stores_that_are_closed_hold_what_was_counted(run: Run) -> None:
    run.some_words_are_counted_exactly()
    assert run.instance.close() == 0
    assert differences(counts_on([Path(run.instance.state_dir)], APPLICATION), run.feed.expected) == {}
