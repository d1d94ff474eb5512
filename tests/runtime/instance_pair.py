"""Two instances of the word count that share its tasks, under load; their counts are compared with what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pyspark.sql import SparkSession

from tests.runtime.instance_process import COMMIT_INTERVAL_MS, LIMIT_S, InstanceProcess
from tests.runtime.local_instance import LocalInstance
from tests.runtime.words import PARTITIONS, Counts, Feed, create_topics, differences
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker

TASKS = 2 * PARTITIONS
_SELDOM: dict[str, object] = {"commit.interval.ms": COMMIT_INTERVAL_MS}
Instance = TypeVar("Instance", InstanceProcess, LocalInstance)


@dataclass
class InstancePair(Generic[Instance]):
    one: Instance
    two: Instance
    feed: Feed
    counts: Counts

    @classmethod
    def of(
        cls, broker: EmbeddedBroker, folder: Path, application: str, settings: Sequence[dict[str, Any]], *, seed: int
    ) -> InstancePair[InstanceProcess]:
        """Processes, not started yet; ``settings``: of each instance."""
        servers = broker.bootstrap_servers
        one, two = (
            InstanceProcess(folder / name, servers, application, settings=_SELDOM | own)
            for name, own in zip(("one", "two"), settings, strict=True)
        )
        return _pair(servers, application, one, two, seed)

    @classmethod
    def local(
        cls, spark: SparkSession, broker: EmbeddedBroker, folder: Path, application: str, settings: Sequence[dict[str, Any]],
        *, seed: int,
    ) -> InstancePair[LocalInstance]:
        """Both on this session, not started yet; ``settings``: of each instance."""
        servers = broker.bootstrap_servers
        one, two = (
            LocalInstance(spark, folder / name, servers, application, settings=_SELDOM | own)
            for name, own in zip(("one", "two"), settings, strict=True)
        )
        return _pair(servers, application, one, two, seed)

    def share(self) -> None:
        """Waits until both run with half of the tasks each."""

        def shared() -> bool:
            looks = [instance.look() for instance in (self.one, self.two)]
            return all(at["state"] == "RUNNING" and len(at["tasks"]) == TASKS // 2 for at in looks)

        assert until(shared), f"{self.one.look()} {self.two.look()}: {self.one.log_end()} {self.two.log_end()}"

    def all_is_counted_exactly(self) -> None:
        """Of all that was sent, and a little more."""
        self.feed.stop()  # one thread sends at a time
        self.feed.send(30)
        self.feed.stop()
        total = self.feed.expected.total()
        is_reached = self.counts.reach(total)
        assert is_reached, f"{sum(self.counts.latest.values())} of {total}: {self.one.log_end()} {self.two.log_end()}"
        self.counts.settle()
        assert differences(self.counts.latest, self.feed.expected) == {}
        assert self.counts.not_rising == []

    def end(self) -> None:
        self.feed.stop()
        self.counts.close()
        self.one.end()
        self.two.end()


def _pair(bootstrap_servers: str, application: str, one: Instance, two: Instance, seed: int) -> InstancePair[Instance]:
    create_topics(bootstrap_servers, application)
    feed = Feed(bootstrap_servers, application, seed=seed)
    return InstancePair(one, two, feed, Counts(bootstrap_servers, application))


def has_all(instance: InstanceProcess | LocalInstance, limit_s: float = LIMIT_S) -> None:
    """Waits until the instance runs with all tasks."""
    instance.wait(lambda at: len(at["tasks"]) == TASKS and at["state"] == "RUNNING", "owner of all tasks", limit_s)
