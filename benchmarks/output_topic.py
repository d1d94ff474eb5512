"""The output topic as a consumer sees it, read_committed: counts, when they arrived, and whether they are right.

Decides when a run is over (the counts add up to all words) and what wrong means (`differences`). Reads only what has
come since the topic was opened.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

TOPIC = "streams-wordcount-output"
PARTITIONS = 6
_AT_ONCE = 20_000
_CALL_LIMIT_S = 30.0
_READ_LIMIT_S = 180.0

CountReader = Callable[[bytes], int]


def count_of_long(value: bytes) -> int:
    """A count as Kafka's long serde writes it."""
    return int(struct.unpack(">q", value)[0])


def count_of_text(value: bytes) -> int:
    return int(value)


class Arrival(NamedTuple):
    """One count: by how much it raised its word's, when the broker appended it and when it was here."""

    partition: int
    word: bytes
    raised: int
    appended_s: float
    arrived_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """``over`` and ``under``: words counted too often and not at all, in total."""

    over: int
    under: int
    example: str

    def __bool__(self) -> bool:
        return bool(self.over or self.under)


class OutputTopic:
    """The latest count of each word. A word with two partitions counts in both, and so too often."""

    def __init__(self, servers: str, read_count: CountReader) -> None:
        self._read_count = read_count
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "benchmark-output",  # unused, but librdkafka wants one
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 2,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        self._latest: dict[tuple[int, bytes], int] = {}
        self._seen_end: dict[int, int] = {}
        self.total = 0
        self.records = 0

    def take(self, wait_s: float) -> list[Arrival]:
        """What has arrived, after waiting for something at most so long."""
        messages = self._consumer.consume(_AT_ONCE, wait_s)
        now = time.time()
        arrivals = []
        for message in messages:
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is None:
                arrivals.append(self._take(message, now))
            elif error.code() == KafkaError._PARTITION_EOF and partition is not None and offset is not None:
                self._seen_end[partition] = offset
        return arrivals

    def stable_ends(self) -> dict[int, int]:
        """Up to where each partition is committed, markers included. Costs one request and reads nothing."""
        wanted = {TopicPartition(TOPIC, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        found = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_CALL_LIMIT_S
        )
        return {tp.partition: future.result().offset for tp, future in found.items()}

    def take_to_end(self) -> list[Arrival]:
        """Reads all that is committed now."""
        arrivals = []
        ends = self.stable_ends()
        deadline = time.monotonic() + _READ_LIMIT_S
        while any(end and self._seen_end.get(partition, 0) < end for partition, end in ends.items()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{TOPIC} could not be read to its end, {ends}, within {_READ_LIMIT_S} s: at {self._seen_end}")
            arrivals += self.take(0.05)
        return arrivals

    def differences(self, expected: Mapping[str, int]) -> Differences:
        found: dict[str, int] = {}
        for (_, word), count in self._latest.items():
            found[word.decode()] = found.get(word.decode(), 0) + count
        off = {word: found.get(word, 0) - expected.get(word, 0) for word in found.keys() | expected.keys()}
        wrong = {word: by for word, by in off.items() if by}
        first = min(wrong, default="")
        example = f"{first!r} is {found.get(first, 0)}, expected {expected.get(first, 0)}" if wrong else ""
        return Differences(
            over=sum(by for by in wrong.values() if by > 0), under=-sum(by for by in wrong.values() if by < 0), example=example
        )

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Message, now: float) -> Arrival:
        key, value, partition = message.key(), message.value(), message.partition()
        assert key is not None, f"{TOPIC} holds a count without a word"
        assert value is not None, f"{TOPIC} holds a word without a count"
        assert partition is not None
        count = self._read_count(value)
        raised = count - self._latest.get((partition, key), 0)
        self._latest[partition, key] = count
        self.total += raised
        self.records += 1
        return Arrival(partition, key, raised, message.timestamp()[1] / 1e3, now)
