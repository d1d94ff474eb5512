"""A restore goes on where it is: over rebalances of the group, and in the process that follows a killed one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from tests.runtime.instance_pair import InstancePair, has_all
from tests.runtime.instance_process import InstanceProcess
from tests.runtime.local_instance import LocalInstance
from tests.runtime.words import PARTITIONS
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

APPLICATION = "restored"
SETTINGS = {
    "session.timeout.ms": 20_000,
    "acceptable.recovery.lag": 0,
    "probing.rebalance.interval.ms": 600_000,
    "tidemill.batch.max.records": 50,  # many commits: many changelog records
    "tidemill.restore.max.records": 20,  # many batches: a restore that is seen under way
}


LocalPair = InstancePair[LocalInstance]


@pytest.fixture(scope="module")
def pair(broker: EmbeddedBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPair]:
    """The first instance has counted something and has ended."""
    pair = InstancePair.local(spark, broker, tmp_path_factory.mktemp(APPLICATION), APPLICATION, [SETTINGS] * 2, seed=7)
    try:
        pair.one.start()
        pair.feed.send(2_000)
        pair.all_is_counted_exactly()
        pair.one.close()
        yield pair
    finally:
        pair.end()


@dataclass(frozen=True)
class Changelog:
    """``ends``: of its partitions, by task."""

    records: int
    ends: dict[str, int]


def _changelog(bootstrap_servers: str) -> Changelog:
    topic = f"{APPLICATION}-counts-store-changelog"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers, "group.id": "counts records", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0,
        }
    )  # fmt: skip
    try:
        partitions = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        records = are_read = 0
        while are_read < PARTITIONS:
            for message in consumer.consume(10_000, 1):
                if message.error() is None:
                    records += 1
                else:
                    are_read += 1
        return Changelog(records, {f"1_{at.partition}": consumer.get_watermark_offsets(at)[1] for at in partitions})
    finally:
        consumer.close()


@pytest.fixture
def alone(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[InstanceProcess]:
    """A process of the same application, to be killed."""
    instance = InstanceProcess(tmp_path / "alone", broker.bootstrap_servers, APPLICATION, settings=SETTINGS)
    yield instance
    instance.end()


def _paused_while_it_restores(
    instance: InstanceProcess | LocalInstance, pause: Callable[[], dict[str, Any]], log: Changelog
) -> dict[str, Any]:
    """Starts the instance, which has no state, and pauses it when it has restored some of a task; how it stands then."""
    instance.start()
    instance.wait(lambda at: bool(_begun(at, log)), "restoring")
    found = pause()
    assert _begun(found, log), f"more was restored at once than a batch may: {found}"
    return found


def _begun(at: dict[str, Any], log: Changelog) -> set[str]:
    """The tasks of which something is restored, and not all."""
    return {task for task, lag in at["restoring"].items() if 0 < lag < log.ends[task]}


def test_no_record_is_restored_twice_while_another_instance_comes_and_goes(pair: LocalPair, broker: EmbeddedBroker) -> None:
    def pause() -> dict[str, Any]:
        pair.one.streams.pause()
        return pair.one.look()

    log = _changelog(broker.bootstrap_servers)
    shutil.rmtree(pair.one.state_dir)
    begun = _begun(_paused_while_it_restores(pair.one, pause, log), log)
    # Paused, too: its copy of what the first one restores could else get ahead, and the group would rightly give it the task.
    pair.two.start(paused=True)
    pair.two.wait(lambda at: bool(at["tasks"]), "owner of tasks")
    assert _begun(pair.one.look(), log) == begun, "it has kept what it restores"
    pair.two.close()
    pair.one.streams.resume()
    has_all(pair.one)
    assert pair.one.look()["restored"] == log.records
    pair.all_is_counted_exactly()
    pair.one.close()


def test_a_killed_instance_goes_on_where_its_stores_are(pair: LocalPair, alone: InstanceProcess, broker: EmbeddedBroker) -> None:
    log = _changelog(broker.bootstrap_servers)
    before = _paused_while_it_restores(alone, lambda: alone.ask("pause"), log)["restored"]
    alone.kill_tree()
    alone.start()
    has_all(alone)
    assert 0 < alone.look()["restored"] <= log.records - before
    pair.all_is_counted_exactly()
