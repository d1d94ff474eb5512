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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from instances import ExperimentError, until

WORDS_PER_LINE = 6
VOCABULARY = [f"word{number}" for number in range(600)]
_TICK_S = 0.02


class Feed:
    """Lines of random words, each sent once however often the broker goes away; partitions in turn."""

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
        self.topic, self.expected, self.lines = topic, Counter[str](), 0
        self._partitions, self._vocabulary, self._rate = partitions, list(vocabulary), lines_per_s
        self._random = random.Random(seed)
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
                "linger.ms": 5,
                "log_level": 0,
            }
        )

    @property
    def total(self) -> int:
        """Words sent so far."""
        return self.expected.total()

    def send(self, lines: int) -> None:
        """That many lines, now."""
        with self._lock:
            for _ in range(lines):
                self.send_line(" ".join(self._random.choices(self._vocabulary, k=WORDS_PER_LINE)))
            self._producer.poll(0)

    def send_line(self, line: str) -> None:
        """One line of words between blanks."""
        self.expected.update(line.split())  # before it is sent: what is read back can't be more than what is expected
        self.lines += 1
        self._producer.produce(self.topic, line.encode(), partition=self.lines % self._partitions, on_delivery=self._delivered)

    def stands(self) -> str:
        """What has become of the lines so far, for an error."""
        is_alive = self._thread is not None and self._thread.is_alive()
        goes_on = "goes on" if is_alive else "has ended"
        return f"{len(self._producer)} lines wait for the broker, failed: {self._failed[:3]}, {goes_on}"

    def start(self) -> Feed:
        """Goes on sending until ``stop``."""
        self._ends.clear()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()
        return self

    def stop(self, limit_s: float = 240.0) -> None:
        """All that was sent is in the topic."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        left = self._producer.flush(limit_s)
        if left or self._failed:
            raise ExperimentError(f"{left} lines could not be sent within {limit_s:.0f} s; failed: {self._failed[:3]}")

    def _run(self) -> None:
        began, before = time.monotonic(), self.lines
        while not self._ends.wait(_TICK_S):
            try:
                self.send(int((time.monotonic() - began) * self._rate) - (self.lines - before))
            except (KafkaException, BufferError) as error:
                self._failed.append(error)
                return

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)


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


class Counts:
    """What a read_committed consumer has of the output topic, read by a thread of its own; ``arrived`` says when counts came,
    by partition."""

    def __init__(self, servers: str, topic: str, *, partitions: int) -> None:
        self.latest: dict[str, int] = {}
        self.records, self.not_rising = 0, 0
        self.arrived: dict[int, list[float]] = {number: [] for number in range(partitions)}
        settings = {"bootstrap.servers": servers, "group.id": "reads without a group", "log_level": 0}
        self._consumer = Consumer(
            {**settings, "isolation.level": "read_committed", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counts", daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        """Words counted so far."""
        return sum(list(self.latest.values()))

    def wait_total(self, total: int, limit_s: float = 120.0) -> float:
        """Until so many words are counted; how long that took."""
        return until(lambda: self.total >= total, f"{total} words to be counted", limit_s)

    def settle(self, quiet_s: float = 1.0, limit_s: float = 60.0) -> None:
        """Until nothing has come for a while."""
        seen, since, deadline = self.records, time.monotonic(), time.monotonic() + limit_s
        while time.monotonic() - since < quiet_s and time.monotonic() < deadline:
            if self.records != seen:
                seen, since = self.records, time.monotonic()
            time.sleep(0.05)

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

    def close(self) -> None:
        self._ends.set()
        self._thread.join(10)
        self._consumer.close()

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
                    self._take(message, now)

    def _take(self, message: Any, now: float) -> None:
        word, count = message.key().decode(), struct.unpack(">q", message.value())[0]
        self.not_rising += count <= self.latest.get(word, 0)
        self.latest[word] = count
        self.records += 1
        self.arrived[message.partition()].append(now)
