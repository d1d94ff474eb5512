"""Applications inside the test's own process, on its Spark session: topics made, records sent, what comes out read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from tidemill import StreamsBuilder
from tidemill.kafka.admin.client import Admin
from tidemill.runtime.instance.application import KafkaStreams, State
from tidemill.runtime.observe.thread_metrics import ThreadMetrics
from tidemill.task.batch import BatchReport

LIMIT_S = 240.0


def reports_noted(monkeypatch: pytest.MonkeyPatch) -> list[BatchReport]:
    """The reports of all batches from now on; to be called before the application starts."""
    found: list[BatchReport] = []
    batch = ThreadMetrics.batch

    def noted(metrics: ThreadMetrics, report: BatchReport, seconds: float) -> None:
        found.append(report)
        batch(metrics, report, seconds)

    monkeypatch.setattr(ThreadMetrics, "batch", noted)
    return found


@dataclass(frozen=True)
class Place:
    """Where a test's application runs, under a name that no other has."""

    bootstrap_servers: str
    spark: SparkSession
    folder: Path
    name: str

    def topic(self, end: str) -> str:
        return f"{self.name}-{end}"

    def create(self, *ends: str, partitions: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for made in admin.create_topics([NewTopic(self.topic(end), partitions, 1) for end in ends]).values():
            made.result(60)
        # Made by the controller: brokers learn it a little later, and an application or a reader asks them at once.
        Admin({"bootstrap.servers": self.bootstrap_servers}).wait_for_leaders([self.topic(end) for end in ends])

    def delete(self, *ends: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for deleted in admin.delete_topics([self.topic(end) for end in ends]).values():
            deleted.result(60)

    def send(
        self, end: str, records: Sequence[tuple[bytes | None, bytes | None]], timestamp_ms: int | None = None, partition: int = 0
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        options: dict[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        for key, value in records:
            producer.produce(self.topic(end), value, key, partition, **options)
        assert producer.flush(LIMIT_S) == 0

    def received(self, end: str, count: int, limit_s: float = LIMIT_S) -> list[Any]:
        """The first ``count`` committed messages of the topic, partition by partition as they come; fewer after the limit."""
        with contextlib.closing(self.reader(end)) as consumer:
            found: list[Any] = []
            deadline = time.monotonic() + limit_s
            while len(found) < count and time.monotonic() < deadline:
                found += [m for m in consumer.consume(count - len(found), 0.2) if m.error() is None]
        return found

    def reader(self, end: str) -> Consumer:
        settings = {"bootstrap.servers": self.bootstrap_servers, "group.id": "none", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
        partitions = consumer.list_topics(self.topic(end), LIMIT_S).topics[self.topic(end)].partitions
        consumer.assign([TopicPartition(self.topic(end), number, 0) for number in partitions])
        return consumer

    def application(self, builder: StreamsBuilder, **settings: object) -> KafkaStreams:
        config = {
            "application.id": self.name,
            "bootstrap.servers": self.bootstrap_servers,
            "state.dir": str(self.folder / self.name),
            "heartbeat.interval.ms": 500,  # and Kafka's session time-out: no machine is so busy that it loses its membership
        }
        return KafkaStreams(builder, {**config, **settings}, session=self.spark)

    @contextlib.contextmanager
    def running(self, builder: StreamsBuilder, **settings: object) -> Iterator[KafkaStreams]:
        with self.application(builder, **settings) as streams:
            assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING, streams.error
            yield streams
