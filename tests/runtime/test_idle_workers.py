"""An application with nothing to do: Spark ends its idle Python workers after a minute, and the threads go on with others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.runtime.instance_process import InstanceProcess
from tests.runtime.words import create_topics
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

IDLE = "idle"


@dataclass
class Idle:
    """One partition for two threads, so one of them has not even empty batches, and Spark ends its idle workers."""

    instance: InstanceProcess
    admin: AdminClient
    reader: Consumer
    servers: dict[str, str]
    first_workers: set[int]

    def passes_on(self, text: str, partition: int) -> bool:
        producer = Producer(self.servers)  # a new one: an older one would not know a new partition yet
        producer.produce(f"{IDLE}-input", text.encode(), partition=partition)
        assert producer.flush(60) == 0
        self.reader.assign([TopicPartition(f"{IDLE}-output", 0, 0)])
        seen: list[bytes] = []

        def arrived() -> bool:
            seen.extend(m.value() for m in self.reader.consume(100, 0.2) if m.error() is None)
            return text.encode() in seen

        return until(arrived) and seen.count(text.encode()) == 1


def python_workers(instance: InstanceProcess) -> set[int]:
    above = {}
    for process in instance.tree():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since it was listed
            if process.name() == "pyspark.daemon":
                above[process.pid] = process.ppid()
    return {pid for pid, parent in above.items() if parent in above}


@pytest.fixture
def idle(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Idle]:
    create_topics(broker.bootstrap_servers, IDLE, partitions=1)
    # A membership that a busy machine loses would cost a batch.
    settings = {"num.stream.threads": 2, "kafka.metadata.max.age.ms": 1_000, "session.timeout.ms": 45_000}
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    instance = InstanceProcess(tmp_path / "one", broker.bootstrap_servers, IDLE, program="passing", settings=settings)
    reader = Consumer({**servers, "group.id": "none", "isolation.level": "read_committed", "enable.auto.commit": False})
    instance.start()
    try:
        instance.wait_running()
        found = Idle(instance, AdminClient(servers), reader, servers, set())
        assert found.passes_on("first", 0)
        found.first_workers = python_workers(instance)
        yield found
    finally:
        reader.close()
        instance.end()


def test_after_a_minute_of_idleness_threads_go_on_with_whatever_workers_spark_has_left_them(idle: Idle) -> None:
    ended = until(lambda: bool(idle.first_workers - python_workers(idle.instance)), pause_s=1)
    assert ended, "Spark has kept its idle workers: the test tests nothing"
    assert idle.passes_on("second", 0)
    for made in idle.admin.create_partitions([NewPartitions(f"{IDLE}-input", 2)]).values():
        made.result(60)
    idle.instance.wait(lambda at: len(at["tasks"]) == 2, "in possession of the new partition")
    assert idle.passes_on("third", 1)
    assert idle.instance.close() == 0
    assert idle.instance.events("batch-lost") == []
