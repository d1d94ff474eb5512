"""A micro-batch waits until it has heard of each partition that is new to its reader, and no longer than that."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.waiting import until
from tidemill.ids import TopicPartition
from tidemill.kafka.data.reader import ThreadReader
from tidemill.task.batch import BatchRequest

pytestmark = pytest.mark.broker

RECORDS = 1_000
PARTITIONS = 6


@pytest.fixture
def topic(bootstrap_servers: str, unique_name: Callable[[str], str]) -> str:
    """All partitions but the last have records."""
    name = unique_name("input")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        made.result(240)
    for partition in range(PARTITIONS - 1):
        send(bootstrap_servers, name, partition)
    return name


def send(bootstrap_servers: str, topic: str, partition: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"v", str(number).encode(), partition)
    assert producer.flush(240) == 0


def batch(reader: ThreadReader, positions: dict[TopicPartition, int], most: int = 100_000) -> dict[int, int]:
    """Records by partition; ``positions`` go on to where reading stands. As of a repartition topic, which is fetched ahead."""
    internal = frozenset(tp.topic for tp in positions)
    request = BatchRequest(batch_id=1, inputs=positions, internal=internal, max_records=most, wait_ms=60_000)
    reader.place(request)
    found: dict[int, int] = {}
    for _, messages in reader.read(request):
        for message in messages:
            found[message.partition()] = found.get(message.partition(), 0) + 1
    positions.update(reader.ends()[0])
    return found


def is_fetched(reader: ThreadReader, tp: TopicPartition, end: int) -> bool:
    """Ahead of the next batch: the last fetch has come to this end."""
    (consumer,) = (each for each in reader._consumers.values() if each.holds_any)
    return consumer.high_watermarks().get(tp) == end


@pytest.fixture
def no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fetch is waited for as long as a busy machine takes for it."""
    monkeypatch.setattr("tidemill.kafka.data.read_times.FIRST_FETCH_LIMIT_S", 60.0)


@pytest.mark.usefixtures("no_limit")
def test_the_first_batch_of_a_partition_has_its_records_though_others_have_theirs_at_once(
    reader: ThreadReader, topic: str, bootstrap_servers: str
) -> None:
    positions = {TopicPartition(topic, 0): 0}
    batch(reader, positions)
    for partition in range(1, PARTITIONS - 1):
        send(bootstrap_servers, topic, 0)
        assert until(lambda partition=partition: is_fetched(reader, TopicPartition(topic, 0), (partition + 1) * RECORDS))
        positions[TopicPartition(topic, partition)] = 0
        found = batch(reader, positions)
        assert found.get(0)
        assert found.get(partition)


@pytest.mark.usefixtures("no_limit")
def test_one_that_is_empty_is_heard_of_too(reader: ThreadReader, topic: str) -> None:
    empty = TopicPartition(topic, PARTITIONS - 1)
    batch(reader, {TopicPartition(topic, 0): 0})
    assert batch(reader, {TopicPartition(topic, 0): 0, empty: 0}).get(0)
    assert not any(consumer.unheard for consumer in reader._consumers.values())


def test_one_that_says_nothing_holds_up_one_batch_and_not_for_long(
    reader: ThreadReader, topic: str, bootstrap_servers: str
) -> None:
    """As where its leader is away: here it does not exist."""
    positions = {TopicPartition(topic, 0): 0}
    batch(reader, positions, most=10)
    positions[TopicPartition(topic, 999)] = 0
    began = time.monotonic()
    assert batch(reader, positions)[0]
    assert time.monotonic() - began < 30, "not for as long as it waits for a first record"
    send(bootstrap_servers, topic, 0)
    assert batch(reader, positions)[0]
    assert not any(consumer.unheard for consumer in reader._consumers.values()), "the second does not wait for it"
