"""A restore goes on where it is: over rebalances of the group, and in the process that follows a killed one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.runtime.instance_pair import InstancePair, has_all
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


@pytest.fixture(scope="module")
def pair(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstancePair]:
    """The first instance has counted something and has ended."""
    pair = InstancePair.of(broker, tmp_path_factory.mktemp(APPLICATION), APPLICATION, [SETTINGS] * 2, seed=7)
    try:
        pair.one.start()
        pair.feed.send(2_000)
        pair.all_is_counted_exactly()
        assert pair.one.close() == 0
        yield pair
    finally:
        pair.end()


def _logged(bootstrap_servers: str) -> int:
    """The records of the changelog."""
    log = f"{APPLICATION}-counts-store-changelog"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers, "group.id": "counts records", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0,
        }
    )  # fmt: skip
    try:
        consumer.assign([TopicPartition(log, number, 0) for number in range(PARTITIONS)])
        records = ends = 0
        while ends < PARTITIONS:
            for message in consumer.consume(10_000, 1):
                if message.error() is None:
                    records += 1
                else:
                    ends += 1
        return records
    finally:
        consumer.close()


def _paused_while_it_restores(pair: InstancePair) -> int:
    """Starts the first instance without state, and pauses it when it has restored some of it; the records until then."""
    shutil.rmtree(pair.one.state_dir)
    pair.one.start()
    pair.one.wait(lambda at: at["restored"] > 0, "restoring")
    found = pair.one.ask("pause")
    assert len(found["restoring"]) == PARTITIONS, f"more was restored at once than a batch may: {found}"
    return int(found["restored"])


def test_no_record_is_restored_twice_while_another_instance_comes_and_goes(pair: InstancePair, broker: EmbeddedBroker) -> None:
    logged = _logged(broker.bootstrap_servers)
    assert 0 < _paused_while_it_restores(pair) < logged
    pair.two.start()
    pair.two.wait(lambda at: bool(at["tasks"]) and at["state"] == "RUNNING", "owner of tasks")
    assert len(pair.one.look()["restoring"]) == PARTITIONS, "it has kept what it restores"
    assert pair.two.close() == 0
    pair.one.ask("resume")
    has_all(pair.one)
    assert pair.one.look()["restored"] == logged
    pair.all_is_counted_exactly()
    assert pair.one.close() == 0


def test_a_killed_instance_goes_on_where_its_stores_are(pair: InstancePair, broker: EmbeddedBroker) -> None:
    logged = _logged(broker.bootstrap_servers)
    before = _paused_while_it_restores(pair)
    pair.one.kill_tree()
    pair.one.start()
    has_all(pair.one)
    assert 0 < pair.one.look()["restored"] <= logged - before
    pair.all_is_counted_exactly()
