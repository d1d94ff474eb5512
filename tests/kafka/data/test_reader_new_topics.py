"""A topic that is new to a consumer at work is read at once, not when the client library next looks for leaders."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.ids import TopicPartition
from tidemill.kafka.data.partition_consumer import PartitionConsumer

pytestmark = pytest.mark.broker

TOPICS = 30
QUICK_S = 0.3


def _first_record_s(consumer: PartitionConsumer, topic: str, placed: dict[TopicPartition, int]) -> float:
    began = time.monotonic()
    placed[TopicPartition(topic, 0)] = 0
    consumer.place({**placed, **consumer.ends()})
    while not any(message.topic() == topic for message in consumer.read(100, 0.005)):
        assert time.monotonic() - began < 240
    return time.monotonic() - began


def test_the_first_record_of_a_new_topic_does_not_wait_for_the_client_librarys_next_look(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """Left to itself it takes 0.4 to 1 s each time, so one that is quicker tells, on a busy machine, too."""
    names = [unique_name("new-topic") for _ in range(TOPICS)]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(240)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for name in names:
        producer.produce(name, b"v")
    assert producer.flush(240) == 0
    consumer = PartitionConsumer({"bootstrap.servers": bootstrap_servers, "group.id": "reads without a group", "log_level": 0})
    try:
        placed: dict[TopicPartition, int] = {}
        _first_record_s(consumer, names[0], placed)
        took_s = []
        for name in names[1:]:
            time.sleep(0.6)
            took_s.append(_first_record_s(consumer, name, placed))
            if took_s[-1] < QUICK_S:
                break
    finally:
        consumer.close()
    assert min(took_s) < QUICK_S, took_s
