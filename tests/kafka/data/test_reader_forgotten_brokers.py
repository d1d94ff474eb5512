"""A broker that stops answers once more, with topics and without brokers: librdkafka forgets the only broker that it has, and
asks nobody after that. A consumer reads on all the same, each record once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.fencing_proxy import FencingProxy
from tests.waiting import until
from tidemill.ids import TopicPartition
from tidemill.kafka.data.partition_consumer import PartitionConsumer

PARTITIONS = 2


@pytest.fixture
def proxy(bootstrap_servers: str) -> Iterator[FencingProxy]:
    made = FencingProxy(bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def topic(bootstrap_servers: str, unique_name: Callable[[str], str]) -> str:
    name, admin = unique_name("source"), AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(240)
    return name


@pytest.fixture
def consumer(proxy: FencingProxy, topic: str) -> Iterator[PartitionConsumer]:
    made = PartitionConsumer({"bootstrap.servers": proxy.bootstrap_servers, "group.id": "none", "log_level": 0})
    made.place({TopicPartition(topic, number): 0 for number in range(PARTITIONS)})
    yield made
    made.close()


def _write(bootstrap_servers: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in values:
        producer.produce(topic, str(value), partition=value % PARTITIONS)
    assert producer.flush(240) == 0


def _read(consumer: PartitionConsumer, found: list[int]) -> int:
    found += [int(message.value()) for message in consumer.read(1_000, 0.1)]
    return len(found)


def test_a_consumer_that_has_forgotten_its_only_broker_reads_on(
    bootstrap_servers: str, topic: str, proxy: FencingProxy, consumer: PartitionConsumer
) -> None:
    found: list[int] = []
    _write(bootstrap_servers, topic, range(10))
    assert until(lambda: _read(consumer, found) >= 10)
    for first in (10, 20):  # the client after that forgets its broker, too
        proxy.stop()
        assert until(lambda: _read(consumer, found) >= 0 and proxy.forgotten > 0)
        proxy.is_fenced = False
        _write(bootstrap_servers, topic, range(first, first + 10))
        assert until(lambda expected=first + 10: _read(consumer, found) >= expected)
    _read(consumer, found)
    assert sorted(found) == list(range(30))


def test_what_was_set_aside_is_read_once(
    bootstrap_servers: str, topic: str, proxy: FencingProxy, consumer: PartitionConsumer
) -> None:
    """A new client begins behind it, or not before it has been read."""
    found: list[int] = []
    _write(bootstrap_servers, topic, range(10))
    assert until(consumer.set_aside)
    proxy.stop()
    assert until(lambda: consumer.set_aside() and proxy.forgotten > 0)
    proxy.is_fenced = False
    _write(bootstrap_servers, topic, range(10, 20))
    assert until(lambda: _read(consumer, found) >= 20)
    _read(consumer, found)
    assert sorted(found) == list(range(20))
