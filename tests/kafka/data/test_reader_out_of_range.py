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


TRUNCATED = (
    "Partition log truncation detected at offset {at} (leader epoch 0): broker end offset is 20 (offset leader epoch 0). Reset "
    "to INVALID.: Local: Partition log truncation detected (broker 2)"
)
UNKNOWN = (
    "No epoch found less or equal to offset 0 (leader epoch 0): broker end offset is -1 (offset leader epoch -1). Reset using "
    "configured policy.: Local: Partition log truncation detected (broker 2)"
)


@pytest.mark.parametrize(
    ("text", "found"), [(TRUNCATED.format(at=0), 20), (TRUNCATED.format(at=50), None), (UNKNOWN, -1)],
    ids=["at its position", "at one that was left", "without an epoch"],
)  # fmt: skip
def test_a_truncated_log_is_told_with_where_it_was_truncated(
    consumer: PartitionConsumer, cut: TopicPartition, text: str, found: int | None
) -> None:
    """The texts are those of librdkafka 2.16 on three brokers after an unclean election."""
    consumer.place({cut: 0})
    consumer._is_out_of_range(cut, None if text != UNKNOWN else 0, text)
    assert consumer.truncated == ({} if found is None else {cut: found})
    assert consumer.out_of_range == consumer.truncated.keys()
    consumer.place({cut: BEGIN})
    assert consumer.truncated == {}
