"""Consumers for which nothing comes ask the broker twice a second, until something is added; no record is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.ids import TopicPartition
from tidemill.kafka.data.partition_consumer import PartitionConsumer
from tidemill.kafka.data.reader import ThreadReader
from tidemill.task.batch import BatchRequest

pytestmark = pytest.mark.broker

PARTITIONS, LIMIT_S = 3, 120
Found = dict[int, list[int]]


@pytest.fixture(autouse=True)
def quiet_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.kafka.data.partition_consumer.QUIET_S", 0.0)


@pytest.fixture
def topic(bootstrap_servers: str, unique_name: Callable[[str], str]) -> tuple[TopicPartition, ...]:
    """The partitions of a topic without records."""
    name = unique_name("quiet")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    [made] = admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values()
    made.result(240)
    return tuple(TopicPartition(name, number) for number in range(PARTITIONS))


def settings(bootstrap_servers: str, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap_servers, "group.id": "none", "log_level": 0, **more}


def send(bootstrap_servers: str, partitions: tuple[TopicPartition, ...], count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for tp in partitions:
        for _ in range(count):
            producer.produce(tp.topic, b"v", None, tp.partition)
    assert producer.flush(240) == 0


def read_until(consumer: PartitionConsumer, found: Found, count: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while sum(map(len, found.values())) < count and time.monotonic() < deadline:
        for message in consumer.read(100, 0.05):
            found.setdefault(message.partition(), []).append(message.offset())


def test_a_consumer_goes_on_where_it_was_when_it_grows_patient_and_when_it_is_quick_again(
    bootstrap_servers: str, topic: tuple[TopicPartition, ...]
) -> None:
    first, second, third = topic
    consumer, found = PartitionConsumer(settings(bootstrap_servers)), Found()
    try:
        send(bootstrap_servers, topic, 4)
        consumer.place({first: 0, second: 0})
        read_until(consumer, found, 5)
        consumer.grow_patient()
        assert consumer._is_patient
        assert consumer.ends() == {tp: len(found.get(tp.partition, ())) for tp in (first, second)}
        read_until(consumer, found, 8)
        consumer.place(consumer.ends())
        assert consumer._is_patient, "nothing is added"
        send(bootstrap_servers, topic, 4)
        consumer.place({**consumer.ends(), third: 1})
        assert not consumer._is_patient
        read_until(consumer, found, 23)
    finally:
        consumer.close()
    assert found == {0: list(range(8)), 1: list(range(8)), 2: list(range(1, 8))}


def test_what_a_patient_consumer_has_set_aside_is_read_once_when_a_partition_is_added(
    bootstrap_servers: str, topic: tuple[TopicPartition, ...]
) -> None:
    first, second, _ = topic
    consumer, found = PartitionConsumer(settings(bootstrap_servers)), Found()
    try:
        consumer.place({first: 0})
        consumer.grow_patient()
        send(bootstrap_servers, topic, 3)
        deadline = time.monotonic() + LIMIT_S
        while not consumer.set_aside() and time.monotonic() < deadline:
            time.sleep(0.01)
        consumer.place({**consumer.ends(), second: 0})
        read_until(consumer, found, 6)
    finally:
        consumer.close()
    assert found == {0: [0, 1, 2], 1: [0, 1, 2]}


def test_a_patient_consumer_is_quick_again_where_a_partition_is_placed_elsewhere(
    bootstrap_servers: str, topic: tuple[TopicPartition, ...]
) -> None:
    first, consumer, found = topic[0], PartitionConsumer(settings(bootstrap_servers)), Found()
    try:
        send(bootstrap_servers, topic, 3)
        consumer.place({first: 0})
        read_until(consumer, found, 3)
        consumer.grow_patient()
        consumer.place({first: 1})
        assert not consumer._is_patient
        read_until(consumer, found, 5)
    finally:
        consumer.close()
    assert found == {0: [0, 1, 2, 1, 2]}


def test_a_consumer_whose_program_says_how_long_fetches_wait_stays_as_it_is(
    bootstrap_servers: str, topic: tuple[TopicPartition, ...]
) -> None:
    consumer = PartitionConsumer(settings(bootstrap_servers, **{"fetch.wait.max.ms": 100}))
    try:
        consumer.place({topic[0]: 0})
        consumer.grow_patient()
        assert not consumer._is_patient
    finally:
        consumer.close()


@pytest.mark.parametrize("needs_ends", [False, True])
def test_a_threads_inputs_are_read_patiently_unless_their_ends_must_be_known_soon(
    bootstrap_servers: str, topic: tuple[TopicPartition, ...], needs_ends: bool
) -> None:
    reader = ThreadReader(settings(bootstrap_servers), needs_ends=needs_ends)
    at, found = {topic[0]: 0}, list[int]()
    deadline = time.monotonic() + LIMIT_S
    try:
        for number in range(6):
            while len(found) < number and time.monotonic() < deadline:
                request = BatchRequest(batch_id=number, inputs=dict(at), wait_ms=50)
                reader.place(request)
                found += [message.offset() for _, messages in reader.read(request) for message in messages]
                at.update(reader.ends()[0])
            send(bootstrap_servers, topic, 1)
        [consumer] = reader._consumers.values()
        assert consumer._is_patient is not needs_ends
    finally:
        reader.close()
    assert found == list(range(5))
