"""Records that a broker's disk has changed end reading: they are neither taken as they are nor left out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.kafka.data.partition_consumer import PartitionConsumer

SOURCE = Path(__file__).parents[3] / "src"
VALUE = b"the same text, again and again: " * 40
READER = """
import os, sys
from tidemill.errors import StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.data.partition_consumer import PartitionConsumer

consumer = PartitionConsumer({"bootstrap.servers": sys.argv[1], "group.id": "reads without a group", "log_level": 0})
consumer.place({TopicPartition(sys.argv[2], 0): 0})
try:
    while True:
        for message in consumer.read(1, 0.1):
            print(len(message.value()), flush=True)
except StopError as error:
    print(error, flush=True)
os._exit(0)
"""


@pytest.mark.broker
@pytest.mark.parametrize("settings", [{}, {"compression.type": "gzip"}], ids=["plain", "compressed"])
def test_a_record_that_a_disk_has_changed_is_not_read(
    broker: EmbeddedBroker, unique_name: Callable[[str], str], settings: Mapping[str, str]
) -> None:
    """Where it is behind it librdkafka goes on at another place than the next record, and often ends its process itself."""
    servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    topic = unique_name("damaged")
    Admin(servers).create_topics([TopicSpec(name=topic, partitions=1)])
    producer = Producer({**servers, **settings})
    ends = []
    for _ in range(3):
        producer.produce(topic, VALUE, partition=0)
        assert producer.flush(240) == 0
        [log] = broker.data.rglob(f"{topic}-0/*.log")
        ends.append(log.stat().st_size)
    with log.open("r+b") as file:  # within the record, behind the header of its batch
        file.seek((ends[0] + ends[1]) // 2 + 30)
        changed = bytes([file.read(1)[0] ^ 0x01])
        file.seek(-1, 1)
        file.write(changed)
    ran = subprocess.run(
        [sys.executable, "-c", READER, broker.bootstrap_servers, topic],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    read = [line for line in ran.stdout.splitlines() if line.isdigit()]
    said = ran.stdout.splitlines()[len(read) :]
    assert read in ([], [str(len(VALUE))])
    assert all(line.startswith(f"{topic}-0 at offset 1 can't be read: ") for line in said)
    # librdkafka may abort at any moment, also when the error has been raised.
    assert ran.returncode == -signal.SIGABRT or (ran.returncode == 0 and len(read) == len(said) == 1), ran.stderr


class DamagedMessage:
    """What librdkafka says about such a record."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._BAD_MSG, "CRC32C mismatch")

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


class DamagedClient:
    """A client that has read one."""

    def consume(self, _most: int, _timeout_s: float) -> list[DamagedMessage]:
        return [DamagedMessage()]


def test_a_damaged_record_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = PartitionConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "reads without a group", "log_level": 0})
    consumer.place({TopicPartition("topic", 0): 0})
    with monkeypatch.context() as patched:
        patched.setattr(consumer, "_consumer", DamagedClient())
        with pytest.raises(StopError, match="topic-0 at offset 7 can't be read: CRC32C mismatch"):
            consumer.read(1, 0)
    consumer.close()
