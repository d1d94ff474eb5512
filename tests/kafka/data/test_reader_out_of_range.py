"""An offset whose record was deleted is told once, and only while reading stands there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition

from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.kafka.data.partition_consumer import PartitionConsumer

pytestmark = pytest.mark.broker

RECORDS, BEGIN = 20, 8


@pytest.fixture
def consumer(bootstrap_servers: str) -> Iterator[PartitionConsumer]:
    made = PartitionConsumer({"bootstrap.servers": bootstrap_servers, "group.id": "reads without a group", "log_level": 0})
    yield made
    made.close()


@pytest.fixture
def cut(bootstrap_servers: str, unique_name: Callable[[str], str]) -> TopicPartition:
    """A partition whose first records are gone."""
    tp = TopicPartition(unique_name("cut"), 0)
    Admin({"bootstrap.servers": bootstrap_servers}).create_topics([TopicSpec(name=tp.topic, partitions=1)])
    send_and_cut(bootstrap_servers, tp, BEGIN)
    return tp


def send_and_cut(bootstrap_servers: str, tp: TopicPartition, begin: int) -> None:
    """Adds records; those before ``begin`` are gone then."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for _ in range(RECORDS):
        producer.produce(tp.topic, b"v", partition=tp.partition)
    assert producer.flush(240) == 0
    Admin({"bootstrap.servers": bootstrap_servers}).delete_records({tp: begin})


def read(consumer: PartitionConsumer, enough: Callable[[int], bool]) -> int:
    count, deadline = 0, time.monotonic() + 240
    while not enough(count):
        assert time.monotonic() < deadline, count
        count += len(consumer.read(RECORDS, 0.1))
    return count


def test_a_deleted_offset_is_told_and_reading_goes_on_where_it_is_placed_next(
    consumer: PartitionConsumer, cut: TopicPartition
) -> None:
    consumer.place({cut: 2})
    read(consumer, lambda _: bool(consumer.out_of_range))
    assert consumer.out_of_range == {cut}
    consumer.place({cut: BEGIN})
    assert read(consumer, lambda count: count >= RECORDS - BEGIN) == RECORDS - BEGIN
    assert consumer.out_of_range == set()


def test_what_was_out_of_range_before_the_partition_was_placed_anew_is_not_told(
    consumer: PartitionConsumer, cut: TopicPartition
) -> None:
    consumer.place({cut: 2})
    time.sleep(2)  # the refusal waits for whoever reads
    consumer.place({})
    consumer.place({cut: BEGIN})
    assert read(consumer, lambda count: count >= RECORDS - BEGIN) == RECORDS - BEGIN
    assert consumer.out_of_range == set()


def test_an_offset_that_is_gone_behind_what_was_set_aside_is_out_of_range(
    consumer: PartitionConsumer, cut: TopicPartition, bootstrap_servers: str
) -> None:
    consumer.place({cut: BEGIN})
    deadline = time.monotonic() + 240
    while len(consumer._aside) < RECORDS - BEGIN and time.monotonic() < deadline:
        consumer.set_aside()
    paused = [ClientPartition(cut.topic, cut.partition)]
    consumer._consumer.pause(paused)  # so that it does not fetch what is deleted next
    send_and_cut(bootstrap_servers, cut, 2 * RECORDS)
    consumer._consumer.resume(paused)
    while not consumer.out_of_range and time.monotonic() < deadline:
        consumer.set_aside()
    assert consumer.out_of_range == {cut}
    assert consumer.ends() == {cut: BEGIN}
    consumer.place({cut: 2 * RECORDS})
    assert consumer.read(RECORDS, 0) == []
