"""The reader of an experiment goes on where a client that has lost its only broker for good has stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import traffic
from confluent_kafka import KafkaError, TopicPartition

from tests.waiting import until

LOG = [b"one", b"two", b"three"]


class Message:
    def __init__(self, at: int) -> None:
        self.at = at

    def topic(self) -> str:
        return "out"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return LOG[self.at]

    def error(self) -> None:
        return None


class Client:
    """Reads one record, loses its brokers, and never finds them again; one that comes later reads to the end."""

    made: list[Client]

    def __init__(self, settings: dict[str, Any]) -> None:
        self.lose: Callable[[KafkaError], None] = settings["error_cb"]
        self.is_first, self.is_closed = not Client.made, False
        Client.made.append(self)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        [self.begin] = [partition.offset for partition in partitions]
        self.left = [Message(at) for at in range(self.begin, len(LOG))]

    def consume(self, _most: int, _limit_s: float) -> list[Message]:
        if self.is_first and len(self.left) < len(LOG):
            self.lose(KafkaError(KafkaError._ALL_BROKERS_DOWN))
            self.is_first, self.left = False, []
        taken, self.left = self.left[:1], self.left[1:]
        return taken

    def close(self) -> None:
        self.is_closed = True


class Values(traffic.CommittedReader):
    def __init__(self) -> None:
        self.seen: list[bytes] = []
        super().__init__("none:1", {"out": 1})

    def take(self, message: Any, _now: float, /) -> None:
        self.seen.append(message.value())


def test_a_client_without_brokers_is_replaced_once_nothing_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record is taken once."""
    Client.made = []
    monkeypatch.setattr(traffic, "Consumer", Client)
    monkeypatch.setattr(traffic, "_LOST_S", 0.05)
    reader = Values()
    try:
        assert until(lambda: len(reader.seen) == len(LOG))
    finally:
        reader.close()
    assert reader.seen == LOG
    assert [(client.begin, client.is_closed) for client in Client.made] == [(0, True), (1, True)]
