"""Words that go in, counted here without Tidemill, and the counts that come out."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.runtime.instance_process import LIMIT_S
from tidemill.kafka.admin.client import Admin
from tidemill.state.directory import StateDirectory
from tidemill.state.lmdb import TaskState

PARTITIONS = 3
VOCABULARY = [f"word{number}" for number in range(240)]


def create_topics(bootstrap_servers: str, application_id: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(f"{application_id}-{end}", partitions, 1) for end in ("input", "output")]
    for made in admin.create_topics(topics).values():
        made.result(60)
    Admin({"bootstrap.servers": bootstrap_servers}).wait_for_leaders([topic.topic for topic in topics])


class Feed:
    """Lines of random words, sent once each however often the broker goes away, and what counting them must give."""

    def __init__(self, bootstrap_servers: str, application_id: str, seed: int, lines_per_s: int = 200) -> None:
        self.topic = f"{application_id}-input"
        self.expected: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._lines_per_s = lines_per_s
        self._failed: list[Any] = []
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                # A broker that has just been told of a partition may refuse its first batch and take the second one; the first is
                # then taken for a duplicate when it comes again, and is lost.
                "max.in.flight.requests.per.connection": 1,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 5,
                "log_level": 0,
            }
        )

    def send(self, lines: int) -> None:
        """That many lines, now."""
        for _ in range(lines):
            words = self._random.choices(VOCABULARY, weights=_WEIGHTS, k=6)
            self.expected.update(words)
            self._number += 1
            self._producer.produce(
                self.topic, " ".join(words).encode(), partition=self._number % PARTITIONS, on_delivery=self._delivered
            )
        self._producer.poll(0)

    def start(self) -> None:
        """Goes on sending until ``stop``."""
        self._ends.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """All that was sent is in the topic."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        assert self._producer.flush(LIMIT_S) == 0
        assert not self._failed, self._failed[:3]

    def _run(self) -> None:
        while not self._ends.wait(0.05):
            self.send(max(1, self._lines_per_s // 20))

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)


_WEIGHTS = [1 / (rank + 1) for rank in range(len(VOCABULARY))]


class Counts:
    """What a read_committed consumer has of the output topic. ``not_rising``: records that did not exceed their key's last one,
    each a sign that something was counted again from an older state."""

    def __init__(self, bootstrap_servers: str, application_id: str, partitions: int = PARTITIONS) -> None:
        self.latest: dict[str, int] = {}
        self.not_rising: list[tuple[str, int, int]] = []
        self.by_partition = Counter(dict.fromkeys(range(partitions), 0))
        """Records of each output partition, whose keys are those of the task of that number."""
        settings = {"bootstrap.servers": bootstrap_servers, "group.id": "reads without a group", "log_level": 0}
        self._consumer = Consumer(
            {**settings, "isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )
        self._consumer.assign([TopicPartition(f"{application_id}-output", number, 0) for number in range(partitions)])

    def read(self, timeout_s: float = 0.2) -> int:
        """Takes what has come; how much it was."""
        messages = [m for m in self._consumer.consume(10_000, timeout_s) if m.error() is None]
        for message in messages:
            word, count = message.key().decode(), struct.unpack(">q", message.value())[0]
            if count <= self.latest.get(word, 0):
                self.not_rising.append((word, self.latest[word], count))
            self.latest[word] = count
        self.by_partition.update(message.partition() for message in messages)
        return len(messages)

    @property
    def records(self) -> int:
        return self.by_partition.total()

    def reach(self, total: int, limit_s: float = LIMIT_S) -> bool:
        """Reads until this many words are counted."""
        deadline = time.monotonic() + limit_s
        while sum(self.latest.values()) < total and time.monotonic() < deadline:
            try:
                self.read()
            except KafkaException:  # the broker is away
                time.sleep(0.2)
        return sum(self.latest.values()) >= total

    def settle(self, quiet_s: float = 1.0) -> None:
        """Reads until nothing has come for a while."""
        until = time.monotonic() + quiet_s
        while time.monotonic() < until:
            if self.read():
                until = time.monotonic() + quiet_s

    def close(self) -> None:
        self._consumer.close()


def differences(found: dict[str, int], expected: Counter[str]) -> dict[str, tuple[int, int]]:
    """Word -> (found, expected) where they are not the same."""
    return {w: (found.get(w, 0), expected[w]) for w in {*found, *expected} if found.get(w, 0) != expected[w]}


def stored_counts(state_dirs: list[Path], application_id: str) -> dict[str, int]:
    """What the stores of closed instances hold together; a task that is in two directories counts where it is newer."""
    best: dict[str, tuple[int, dict[str, int]]] = {}
    for state_dir in state_dirs:
        directory = StateDirectory(state_dir, application_id)
        for task in directory.tasks():
            if task.subtopology != 1:
                continue
            state = TaskState.open_to_read(directory.task_path(task))
            position = state.positions().changelog.get("counts-store", 0)
            rows = {key.decode(): struct.unpack(">q", row[8:])[0] for key, row in state.scan("counts-store")}
            state.close(clean=False)
            if position >= best.get(str(task), (-1, {}))[0]:
                best[str(task)] = (position, rows)
    return {word: count for _, rows in best.values() for word, count in rows.items()}
