"""A fresh broker for one measurement, with both topics, and lines into it.

Every measurement has a broker of its own, so that none finds caches or a compiled broker that another has warmed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from output_topic import PARTITIONS, TOPIC
from zipf_lines import ZipfLines

from tidemill.embedded.broker import EmbeddedBroker
from tidemill.kafka.admin.client import Admin, TopicSpec

INPUT = "streams-plaintext-input"
_WRITE_LIMIT_S = 120.0
_POLL_EVERY = 10_000


@contextmanager
def fresh_broker(*, append_times: bool = False) -> Iterator[EmbeddedBroker]:
    """With ``append_times`` the output's timestamps are the broker's own, of the moment when a count was written."""
    with EmbeddedBroker(environ=os.environ) as broker:
        configs = {"message.timestamp.type": "LogAppendTime"} if append_times else {}
        admin = Admin({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics(
            [TopicSpec(name=INPUT, partitions=PARTITIONS), TopicSpec(name=TOPIC, partitions=PARTITIONS, configs=configs)]
        )
        yield broker


class Feed:
    """Sends lines in their order, over the partitions in turn, each with the moment of its sending as its timestamp."""

    def __init__(self, servers: str, lines: ZipfLines) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 1, "queue.buffering.max.messages": 1_000_000, "log_level": 0}
        )
        self._lines = lines.lines()
        self.sent_at_ms: list[int] = []

    @property
    def sent(self) -> int:
        return len(self.sent_at_ms)

    def send(self, up_to: int) -> None:
        """Sends on until ``up_to`` lines have been handed to the client, without waiting for them to be written."""
        for number in range(self.sent, up_to):
            line = next(self._lines)
            now_ms = int(time.time() * 1e3)
            while True:
                try:
                    self._producer.produce(INPUT, line, partition=number % PARTITIONS, timestamp=now_ms)
                    break
                except BufferError:
                    self._producer.poll(0.01)
            self.sent_at_ms.append(now_ms)
            if number % _POLL_EVERY == 0:
                self._producer.poll(0)
        self._producer.poll(0)

    def flush(self) -> None:
        left = self._producer.flush(_WRITE_LIMIT_S)
        if left:
            raise RuntimeError(f"{left} lines could not be written to {INPUT} within {_WRITE_LIMIT_S:.0f} s")
