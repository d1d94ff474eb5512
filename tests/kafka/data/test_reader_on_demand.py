"""Source topics that are fetched when they are about to be read: what is set aside for it, and where reading stands meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.ids import TopicPartition
from tidemill.kafka.data.partition_consumer import PartitionConsumer
from tidemill.kafka.data.reader import ThreadReader
from tidemill.task.batch import BatchRequest

pytestmark = pytest.mark.broker

RECORDS, PARTITIONS, LIMIT_S = 10, 3, 120


@pytest.fixture
def source(bootstrap_servers: str, unique_name: Callable[[str], str]) -> tuple[TopicPartition, ...]:
    """Its partitions, each with records whose keys are their offsets."""
    name = unique_name("source")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    [made] = admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values()
    made.result(240)
    partitions = tuple(TopicPartition(name, number) for number in range(PARTITIONS))
    send(bootstrap_servers, partitions, 0)
    return partitions


@pytest.fixture
def consumer(bootstrap_servers: str) -> Iterator[PartitionConsumer]:
    made = PartitionConsumer({"bootstrap.servers": bootstrap_servers, "group.id": "none", "log_level": 0})
    yield made
    made.close()


def send(bootstrap_servers: str, partitions: tuple[TopicPartition, ...], begin: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for tp in partitions:
        for number in range(begin, begin + RECORDS):
            producer.produce(tp.topic, b"v", str(number).encode(), tp.partition)
    assert producer.flush(240) == 0


def set_aside(consumer: PartitionConsumer, partition: TopicPartition) -> None:
    """All its records, of which there are ``RECORDS``."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        consumer.set_aside()
        if len(consumer._aside) == RECORDS:
            return
        time.sleep(0.01)
    raise AssertionError(f"{len(consumer._aside)} records came of {partition}")


def test_what_is_set_aside_is_not_read_yet_and_comes_first_then(
    consumer: PartitionConsumer, source: tuple[TopicPartition, ...]
) -> None:
    first = source[0]
    consumer.place({first: 0})
    set_aside(consumer, first)
    assert consumer.ends() == {first: 0}
    assert [record.offset() for record in consumer.read(4, 0)] == [0, 1, 2, 3]
    assert consumer.ends() == {first: 4}
    consumer.place({first: 4})
    assert [record.offset() for record in consumer.read(100, 0)] == [4, 5, 6, 7, 8, 9]
    assert consumer.ends() == {first: RECORDS}


def test_a_partition_is_at_its_end_when_what_was_set_aside_of_it_is_read_too(
    bootstrap_servers: str, source: tuple[TopicPartition, ...]
) -> None:
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "none", "log_level": 0}
    consumer, first = PartitionConsumer(settings, tells_ends=True), source[0]
    try:
        consumer.place({first: 0})
        set_aside(consumer, first)
        while first not in consumer._ended_at:
            consumer.set_aside()
        assert consumer.at_end() == frozenset()
        assert len(consumer.read(100, 0)) == RECORDS
        assert consumer.at_end() == {first}
    finally:
        consumer.close()


def test_what_is_set_aside_is_forgotten_where_reading_begins_elsewhere_or_ends(
    consumer: PartitionConsumer, source: tuple[TopicPartition, ...]
) -> None:
    first, second, _ = source
    consumer.place({first: 0})
    set_aside(consumer, first)
    consumer.place({first: 7, second: 9})
    found: list[tuple[int | None, int | None]] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < 4 and time.monotonic() < deadline:
        found += [(record.partition(), record.offset()) for record in consumer.read(100, 0.1)]
    assert sorted(found) == [(0, 7), (0, 8), (0, 9), (1, 9)]
    consumer.place({first: 0})
    set_aside(consumer, first)
    consumer.drop(first)
    assert (consumer.read(100, 0), consumer.ends()) == ([], {})


def test_each_record_is_read_once_and_in_order_with_rests_and_without(
    bootstrap_servers: str, source: tuple[TopicPartition, ...]
) -> None:
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "none", "log_level": 0}
    reader = ThreadReader(settings)
    at, found = dict.fromkeys(source, 0), dict[int, list[int]]()
    deadline, number = time.monotonic() + LIMIT_S, 0
    while sum(map(len, found.values())) < 3 * RECORDS * PARTITIONS and time.monotonic() < deadline:
        if number in (1, 3):
            send(bootstrap_servers, source, RECORDS * (number + 1) // 2)
        rest_ms = (0, 50, 20)[number % 3]
        # As few as two records: what is set aside may be more than a batch takes.
        most = 2 + number % 40
        request = BatchRequest(batch_id=number, inputs=dict(at), wait_ms=200, sources_rest_ms=rest_ms, max_records=most)
        reader.place(request)
        for _, messages in reader.read(request):
            for message in messages:
                found.setdefault(message.partition(), []).append(message.offset())
        assert reader.has_read_sources
        at.update(reader.ends()[0])
        assert all(at[tp] == len(found.get(tp.partition, ())) for tp in source), "positions are behind what was read, exactly"
        number += 1
    reader.close()
    assert found == {tp.partition: list(range(3 * RECORDS)) for tp in source}
