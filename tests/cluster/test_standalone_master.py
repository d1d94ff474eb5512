"""The same application on a standalone master with two workers that `deploy/standalone.py` starts.

Each executor has a disk of its own: what a killed one had is gone, and comes back from the changelog.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.executors import Master, Run, counts_on, executors, running, standalone
from tests.runtime.words import differences
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [pytest.mark.cluster, pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(540)]

APPLICATION = "standalone-master"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(APPLICATION)


@pytest.fixture(scope="module")
def master(folder: Path) -> Iterator[Master]:
    with standalone(folder / "cluster") as running:
        yield running


@pytest.fixture(scope="module")
def run(broker: EmbeddedBroker, master: Master, folder: Path) -> Iterator[Run]:
    settings = {"spark.master": master.url, "num.stream.threads": 2, "tidemill.executor.state.dir": "state"}
    with running(
        broker.bootstrap_servers, APPLICATION, folder / "one", settings, seed=2, processes=master.processes
    ) as run:
        yield run


def disks(folder: Path) -> list[Path]:
    return sorted(folder.glob("cluster/worker-*/*/*/*/state"))


def test_words_are_counted_exactly_on_executors_that_have_a_disk_each(run: Run, folder: Path) -> None:
    run.some_words_are_counted_exactly()
    assert None not in set().union(*run.places())
    assert len(run.places()[0] | run.places()[1]) == 2
    assert len(disks(folder)) == 2
    assert not list(run.instance.state_dir.rglob("data.mdb"))
    assert differences(run.instance.ask("read any")["all"], run.feed.expected) == {}


def test_what_a_killed_executor_had_is_restored_from_the_changelog_and_every_count_is_exact(run: Run, folder: Path) -> None:
    run.some_words_are_counted_exactly()
    before, restored = disks(folder), run.instance.look()["restored"]
    run.feed.start()
    victim = run.one_executor()
    executors(run.processes())[victim].send_signal(signal.SIGKILL)
    run.settled_without(victim)
    run.instance.wait_running()
    run.feed.stop()
    run.some_words_are_counted_exactly()
    assert run.instance.look()["restored"] > restored
    assert set(disks(folder)) > set(before)
    assert differences(run.instance.ask("read any")["all"], run.feed.expected) == {}


def test_the_stores_that_are_closed_hold_what_was_counted(run: Run, folder: Path) -> None:
    run.some_words_are_counted_exactly()
    assert run.instance.close() == 0
    assert differences(counts_on(disks(folder), APPLICATION), run.feed.expected) == {}
