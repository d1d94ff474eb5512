"""Standby and warm-up tasks between instances: kept up while others work, promoted with what they have, counts exact."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.runtime.instance_process import COMMIT_INTERVAL_MS, InstanceProcess
from tests.runtime.local_instance import LocalInstance
from tests.runtime.words import PARTITIONS, Counts, Feed, create_topics, differences
from tests.waiting import until
from tidemill.cli.group import app as group_app
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

SESSION_TIMEOUT_MS = 20_000
"""Nobody but the killed one is missed: who loses its membership on a busy machine gives its standbys up."""
SETTINGS = {"session.timeout.ms": SESSION_TIMEOUT_MS, "commit.interval.ms": COMMIT_INTERVAL_MS}
TASKS = 2 * PARTITIONS
LONG_PROBING_MS = 20_000
"""Time to stop the newcomer's workers before a probe promotes its warm-ups: from then on they can't catch up."""


@dataclass
class Group:
    """Instances of one application, what goes in and what comes out."""

    instances: list[InstanceProcess] | list[LocalInstance]
    feed: Feed
    counts: Counts

    def all_is_counted_exactly(self) -> None:
        self.feed.stop()
        total = self.feed.expected.total()
        last = self.instances[-1]
        assert self.counts.reach(total), f"{sum(self.counts.latest.values())} of {total}: {last.log_end()}"
        self.counts.settle()
        assert differences(self.counts.latest, self.feed.expected) == {}
        assert self.counts.not_rising == []

    def end(self) -> None:
        self.feed.stop()
        self.counts.close()
        for instance in self.instances:
            instance.end()


def group(broker: EmbeddedBroker, application: str, make: Callable[[str], InstanceProcess | LocalInstance]) -> Group:
    """``make``: an instance, by its name."""
    create_topics(broker.bootstrap_servers, application)
    instances = [make(name) for name in "ab"]
    return Group(instances, Feed(broker.bootstrap_servers, application, seed=5), Counts(broker.bootstrap_servers, application))


@pytest.fixture
def with_standbys(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Group]:
    def make(name: str) -> InstanceProcess:
        return InstanceProcess(tmp_path / name, broker.bootstrap_servers, "with-standbys", settings=settings)

    settings = {**SETTINGS, "num.standby.replicas": 1}
    made = group(broker, "with-standbys", make)
    yield made
    made.end()


@pytest.fixture
def with_warmups(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> Iterator[Group]:
    def make(name: str) -> LocalInstance:
        return LocalInstance(spark, tmp_path / name, broker.bootstrap_servers, "with-warmups", settings=settings)

    settings = {
        **SETTINGS,
        "acceptable.recovery.lag": 0,
        "max.warmup.replicas": 4,
        "probing.rebalance.interval.ms": LONG_PROBING_MS,
    }
    made = group(broker, "with-warmups", make)
    yield made
    made.end()


def tasks(found: dict[str, object], kind: str = "tasks") -> set[str]:
    """The stateful ones."""
    listed = found[kind]
    assert isinstance(listed, (list, dict))
    return {task for task in listed if task.startswith("1_")}


def test_a_killed_instances_standbys_take_over_with_what_they_have_and_counts_stay_exact(with_standbys: Group) -> None:
    one, two = with_standbys.instances
    one.start()
    two.start()
    with_standbys.feed.start()

    def mirrored() -> bool:
        a, b = one.look(), two.look()
        return tasks(a) == tasks(b, "standbys") and tasks(b) == tasks(a, "standbys") and len(tasks(a) | tasks(b)) == PARTITIONS

    assert until(mirrored), f"{one.look()} {two.look()}: {two.log_end()}"
    two.signal_workers(signal.SIGKILL)  # what follows the changelogs is not what remembers where they are
    # Each task: on a busy machine one of the two may have done all work so far.
    assert until(lambda: with_standbys.counts.read() >= 0 and min(with_standbys.counts.by_partition.values()) > 500)
    moving: set[str] = set()
    followed: dict[str, int] = {}

    def has_caught_up() -> bool:
        moving.clear()
        moving.update(tasks(one.look()))
        found = two.look()
        followed.update(found["followed"])
        return bool(moving) and tasks(found, "standbys") == moving and not any(lag != 0 for lag in found["standbys"].values())

    assert until(has_caught_up), f"{one.look()} {two.look()}: {two.log_end()}"
    before = {name: len(two.events(name)) for name in ("standby-promoted", "restored", "rebalance-over")}

    def since(name: str) -> list[dict[str, str]]:
        return two.events(name)[before[name] :]

    one.kill_tree()
    two.wait(lambda at: len(at["tasks"]) == TASKS and at["state"] == "RUNNING", "owner of all tasks")
    assert {event["task"] for event in since("standby-promoted")} == moving, two.log_end()
    for restored in (event for event in since("restored") if event["task"] in moving):
        assert int(restored["from"]) >= followed[restored["task"]] > 0, f"{restored}: {two.log_end()}"
    paused = until(lambda: all(any(f"{task}: " in event["paused_ms"] for event in since("rebalance-over")) for task in moving))
    assert paused, two.log_end()
    with_standbys.all_is_counted_exactly()
    demoted, closed = len(two.events("task-demoted")), len(two.events("standby-closed"))
    with_standbys.feed.start()
    one.start()
    went_back = until(lambda: mirrored() and len(two.events("task-demoted")) > demoted)
    assert went_back, f"what goes back to its old owner stays there as a standby: {one.look()} {two.look()}: {two.log_end()}"
    assert len(two.events("standby-closed")) == closed
    with_standbys.all_is_counted_exactly()
    assert two.events("state-note") + one.events("state-note") == []


def test_a_newcomer_warms_up_while_the_owner_goes_on_and_takes_over_at_a_probe(
    with_warmups: Group, bootstrap_servers: str
) -> None:
    old, new = with_warmups.instances
    old.start()
    with_warmups.feed.start()
    assert until(lambda: with_warmups.counts.read() >= 0 and with_warmups.counts.records > 1_000), old.log_end()
    new.start()
    found = new.wait(lambda at: len(tasks(at, "standbys")) > 0, "warming up")
    new.signal_workers(signal.SIGSTOP)
    assert tasks(found) == set(), "nothing is taken over that is not warm"
    assert len(tasks(old.look())) == PARTITIONS
    asked = ["members", "--bootstrap-server", bootstrap_servers, "--group", "with-warmups", "--set", "acceptable.recovery.lag=0"]
    is_shown = until(lambda: "warm-up" in CliRunner().invoke(group_app, asked).stdout)  # not in the middle of a rebalance
    assert is_shown, f"{CliRunner().invoke(group_app, asked).output} {old.events('rebalance-over')} {new.look()}"
    records = with_warmups.counts.records
    assert until(lambda: with_warmups.counts.read() >= 0 and with_warmups.counts.records > records + 500), "the owner went on"
    with_warmups.feed.stop()
    new.signal_workers(signal.SIGCONT)
    found = new.wait(lambda at: len(tasks(at)) > 0 and at["state"] == "RUNNING", "owner of a warmed-up task")
    with_warmups.feed.start()
    assert {event["task"] for event in new.events("standby-promoted")} >= tasks(found)
    for restored in new.events("restored"):
        assert int(restored["offsets"]) < 100, restored
    assert any("Triggering the followup rebalance" in event["cause"] for event in old.events("rejoining"))
    time.sleep(2)
    with_warmups.all_is_counted_exactly()
