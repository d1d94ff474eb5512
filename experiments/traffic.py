"""Lines that go into a topic at a steady rate, counted here without Tidemill, and the counts that come out of another.

feed = Feed(servers, INPUT, partitions=6, seed=1, lines_per_s=100); feed.start(); ...; feed.stop()
counts = Counts(servers, OUTPUT, partitions=6)            # reads on a thread of its own, read_committed
counts.wait_total(feed.total); counts.exactness(feed.expected)
"""

from __future__ import annotations

import random
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from instances import ExperimentError, until

WORDS_PER_LINE = 6
VOCABULARY = [f"word{number}" for number in range(600)]
_TICK_S = 0.02
_LOST_S = 5.0


class SteadyProducer(ABC):
    """Sends so many records a second on a thread of its own, each once however often the broker goes away."""

    def __init__(self, servers: str, rate: float) -> None:
        self.records = 0
        self._rate = rate
        self._lock = threading.Lock()
        self._failed: list[Any] = []
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 1,  # else a new topic's first batch may be lost
                "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 500,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "log_level": 0,
            }
        )

    @abstractmethod
    def send_next(self) -> None:
        """Produces one record."""

    def send(self, records: int) -> None:
        """That many records, now."""
        with self._lock:
            for _ in range(records):
                self.send_next()
            self._producer.poll(0)

    def produce(self, topic: str, value: str, **rest: Any) -> None:
        """``rest``: key, partition, timestamp (ms)."""
        self.records += 1
        self._producer.produce(topic, value.encode(), on_delivery=self._delivered, **rest)

    def stands(self) -> str:
        """What has become of the records so far, for an error."""
        is_alive = self._thread is not None and self._thread.is_alive()
        goes_on = "goes on" if is_alive else "has ended"
        return f"{len(self._producer)} records wait for the broker, failed: {self._failed[:3]}, {goes_on}"

    def start(self) -> None:
        """Goes on sending until ``stop``."""
        self._ends.clear()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def stop(self, limit_s: float = 240.0) -> None:
        """All that was sent is in the topic."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        left = self._producer.flush(limit_s)
        if left or self._failed:
            raise ExperimentError(f"{left} records could not be sent within {limit_s:.0f} s; failed: {self._failed[:3]}")

    def _run(self) -> None:
        began, before = time.monotonic(), self.records
        while not self._ends.wait(_TICK_S):
            try:
                self.send(int((time.monotonic() - began) * self._rate) - (self.records - before))
            except (KafkaException, BufferError) as error:
                self._failed.append(error)
                return

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)


class Feed(SteadyProducer):
    """Lines of random words; partitions in turn."""

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        partitions: int,
        seed: int,
        lines_per_s: float,
        vocabulary: Sequence[str] = VOCABULARY,
    ) -> None:
        super().__init__(servers, lines_per_s)
        self.topic, self.expected = topic, Counter[str]()
        self._partitions, self._vocabulary = partitions, list(vocabulary)
        self._random = random.Random(seed)

    @property
    def total(self) -> int:
        """Words sent so far."""
        return self.expected.total()

    def send_next(self) -> None:
        self.send_line(" ".join(self._random.choices(self._vocabulary, k=WORDS_PER_LINE)))

    def send_line(self, line: str) -> None:
        """One line of words between blanks."""
        self.expected.update(line.split())  # before it is sent: what is read back can't be more than what is expected
        self.produce(self.topic, line, partition=(self.records + 1) % self._partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """``over``, ``under``: words counted too often, or not at all. ``not_rising``: counts that did not exceed the key's last
    one, each a sign that something was counted again from an older state (at least once allows it)."""

    words: int
    over: int
    under: int
    not_rising: int
    example: str

    @property
    def is_exact(self) -> bool:
        return not (self.over or self.under)

    def __str__(self) -> str:
        if self.is_exact:
            return f"exact: {self.words} words counted once each"
        return f"WRONG: {self.over} of {self.words} words counted too often, {self.under} not at all, e.g. {self.example}"


class CommittedReader(ABC):
    """Reads topics (name -> partitions), read_committed, on a thread of its own; so many ``records`` have come.

    A client that has lost its last broker may never find one again, without a word (librdkafka's issue 5301): about once in a
    hundred stops of the only broker. Once nothing more comes of it, a new one takes its place.
    """

    def __init__(self, servers: str, topics: Mapping[str, int]) -> None:
        self.records = 0
        self._servers = servers
        self._positions = {(topic, number): 0 for topic, count in topics.items() for number in range(count)}
        self._lost_at: float | None = None
        self._consumer = self._client()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    @abstractmethod
    def take(self, message: Any, now: float, /) -> None:
        """One record; called on the reader's thread."""

    def settle(self, quiet_s: float = 1.0, limit_s: float = 60.0) -> None:
        """Until nothing has come for a while."""
        seen, since, deadline = self.records, time.monotonic(), time.monotonic() + limit_s
        while time.monotonic() - since < quiet_s and time.monotonic() < deadline:
            if self.records != seen:
                seen, since = self.records, time.monotonic()
            time.sleep(0.05)

    def close(self) -> None:
        self._ends.set()
        self._thread.join(10)
        self._consumer.close()

    def _client(self) -> Consumer:
        client = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "reads without a group",
                "log_level": 0,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "error_cb": self._has_trouble,
            }
        )
        client.assign([TopicPartition(topic, number, at) for (topic, number), at in self._positions.items()])
        return client

    def _has_trouble(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._lost_at = time.monotonic()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                messages = self._consumer.consume(10_000, 0.1)
            except KafkaException:  # the broker is away
                time.sleep(0.2)
                continue
            now = time.time()
            for message in messages:
                if message.error() is None:
                    self.records += 1
                    place = str(message.topic()), int(message.partition() or 0)
                    self._positions[place] = int(message.offset() or 0) + 1
                    self.take(message, now)
            if self._lost_at is None:
                continue
            if messages:
                self._lost_at = time.monotonic()
            elif time.monotonic() - self._lost_at > _LOST_S:
                self._consumer.close()
                self._lost_at, self._consumer = None, self._client()


class Counts(CommittedReader):
    """The last count of each word of an output topic; ``arrived`` says when counts came, by partition."""

    def __init__(self, servers: str, topic: str, *, partitions: int) -> None:
        self.latest: dict[str, int] = {}
        self.not_rising = 0
        self.arrived: dict[int, list[float]] = {number: [] for number in range(partitions)}
        super().__init__(servers, {topic: partitions})

    @property
    def total(self) -> int:
        """Words counted so far."""
        return sum(list(self.latest.values()))

    def wait_total(self, total: int, limit_s: float = 120.0) -> float:
        """Until so many words are counted; how long that took."""
        return until(lambda: self.total >= total, f"{total} words to be counted", limit_s)

    def exactness(self, expected: Mapping[str, int]) -> Exactness:
        off = {w: self.latest.get(w, 0) - expected.get(w, 0) for w in {*self.latest, *expected}}
        wrong = {word: by for word, by in off.items() if by}
        first = min(wrong, default="")
        return Exactness(
            words=sum(expected.values()),
            over=sum(by for by in wrong.values() if by > 0),
            under=-sum(by for by in wrong.values() if by < 0),
            not_rising=self.not_rising,
            example=f"{first!r} is {self.latest.get(first, 0)}, expected {expected.get(first, 0)}" if wrong else "",
        )

    def take(self, message: Any, now: float, /) -> None:
        word, count = message.key().decode(), struct.unpack(">q", message.value())[0]
        self.not_rising += count <= self.latest.get(word, 0)
        self.latest[word] = count
        self.arrived[message.partition()].append(now)
