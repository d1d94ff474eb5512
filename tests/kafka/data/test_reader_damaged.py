"""Records that a broker's disk has changed end reading with their place: they are neither taken as they are nor left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer

from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.kafka.data.partition_consumer import PartitionConsumer

pytestmark = pytest.mark.broker

VALUE = b"the same text, again and again: " * 40


@pytest.mark.parametrize("settings", [{}, {"compression.type": "gzip"}], ids=["plain", "compressed"])
def test_a_record_that_a_disk_has_changed_is_named(
    broker: EmbeddedBroker, unique_name: Callable[[str], str], settings: Mapping[str, str]
) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    tp = TopicPartition(unique_name("damaged"), 0)
    Admin(servers).create_topics([TopicSpec(name=tp.topic, partitions=1)])
    producer = Producer({**servers, **settings})
    ends = []
    log = None
    for _ in range(3):
        producer.produce(tp.topic, VALUE, partition=tp.partition)
        assert producer.flush(240) == 0
        [log] = broker.data.rglob(f"{tp.topic}-{tp.partition}/*.log")
        ends.append(log.stat().st_size)
    assert log is not None
    with log.open("r+b") as file:  # within the record, behind the header of its batch
        file.seek((ends[0] + ends[1]) // 2 + 30)
        changed = bytes([file.read(1)[0] ^ 0x01])
        file.seek(-1, 1)
        file.write(changed)
    consumer = PartitionConsumer({**servers, "group.id": "reads without a group"})
    consumer.place({tp: 0})
    values: list[bytes | None] = []

    def read() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            values.extend(message.value() for message in consumer.read(1, 0.1))

    try:
        with pytest.raises(StopError, match=rf"{tp.topic}-0 at offset 1 can't be read: .*CRC32C"):
            read()
    finally:
        consumer.close()
    assert values == [VALUE]
