"""A client that has lost its last broker and has records in its queue: they are read, and a new client takes its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from tidemill.ids import TopicPartition
from tidemill.kafka.data import partition_consumer
from tidemill.kafka.data.partition_consumer import PartitionConsumer

AT = TopicPartition("source", 0)


class Client:
    """Has ``queued`` records, and says that it has lost its last broker in the call that gives the first of them."""

    made: list[Client]
    queued = 0

    def __init__(self, settings: dict[str, Any]) -> None:
        self._error_cb = settings["error_cb"]
        self._left = self.queued if not self.made else 0
        self.position_at = 0
        self.made.append(self)

    def incremental_assign(self, partitions: list[ClientPartition]) -> None:
        self.position_at = partitions[0].offset

    def consume(self, most: int, _timeout_s: float) -> list[Any]:
        if self._left == self.queued > 0:
            self._error_cb(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        taken = range(self.position_at, self.position_at + min(most, self._left))
        self._left -= len(taken)
        self.position_at += len(taken)
        return [
            SimpleNamespace(topic=lambda: AT.topic, partition=lambda: AT.partition, offset=lambda at=at: at, error=lambda: None)
            for at in taken
        ]

    def position(self, partitions: list[ClientPartition]) -> list[ClientPartition]:
        return [ClientPartition(each.topic, each.partition, self.position_at) for each in partitions]

    def close(self) -> None: ...


@pytest.mark.parametrize("queued", [1, 5])
@pytest.mark.parametrize("sets_aside", [False, True])
def test_records_from_the_queue_are_no_sign_that_the_broker_is_back(
    monkeypatch: pytest.MonkeyPatch, queued: int, *, sets_aside: bool
) -> None:
    monkeypatch.setattr(partition_consumer, "Consumer", Client)
    monkeypatch.setattr(partition_consumer, "_LOST_S", 0)
    monkeypatch.setattr(Client, "made", [], raising=False)
    monkeypatch.setattr(Client, "queued", queued)
    consumer = PartitionConsumer({})
    consumer.place({AT: 7})
    if sets_aside:
        assert consumer.set_aside()
    found = [message.offset() for _ in range(queued) for message in consumer.read(1, 0)]
    assert found == list(range(7, 7 + queued))
    assert len(Client.made) == 1, "what it has is read first"
    assert not consumer.read(1, 0)
    assert len(Client.made) == 2
    assert consumer.ends() == {AT: 7 + queued}
