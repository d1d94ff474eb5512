"""When a group committed which partition: read from the brokers' own topic of offsets, and the pauses between commits.

The moment of a commit is the timestamp that the broker gave its record, so nothing that asks for it is measured along. Only
offsets of committed transactions are seen.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from confluent_kafka import Consumer, KafkaException, TopicPartition
from instances import until

TOPIC = "__consumer_offsets"
_OFFSET_KEYS = (0, 1)


class Commits:
    """Follows one group's commits on a thread of its own; ``times``: seconds since 1970 by (topic, partition), rising."""

    def __init__(self, servers: str, group: str) -> None:
        self.times: dict[tuple[str, int], list[float]] = {}
        self._group = group
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reads without a group",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        # The brokers make their topic when a group first asks for its coordinator.
        until(lambda: bool(self._partitions()), f"the topic {TOPIC}", 60)
        partitions = self._partitions()
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in partitions])
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commits", daemon=True)
        self._thread.start()

    def _partitions(self) -> list[int]:
        return sorted(self._consumer.list_topics(TOPIC, 30).topics[TOPIC].partitions)

    def close(self) -> None:
        self._ends.set()
        self._thread.join(10)
        self._consumer.close()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                messages = self._consumer.consume(5_000, 0.1)
            except KafkaException:  # the broker is away
                continue
            for message in messages:
                key = message.key()
                if message.error() is None and key is not None and message.value() is not None:
                    self._take(key, message.timestamp()[1] / 1e3)

    def _take(self, key: bytes, at_s: float) -> None:
        (version,) = struct.unpack_from(">h", key)
        if version not in _OFFSET_KEYS:
            return
        group, after = _text(key, 2)
        topic, after = _text(key, after)
        if group == self._group:
            (partition,) = struct.unpack_from(">i", key, after)
            self.times.setdefault((topic, partition), []).append(at_s)

    def gaps(self, from_s: float, to_s: float, *, wholly: bool = False) -> dict[tuple[str, int], list[float]]:
        """Seconds between successive commits of each partition: all that lie ``wholly`` in this time, or reach into it too."""
        found = {}
        for partition, times in sorted(self.times.items()):
            first, last = bisect_left(times, from_s), bisect_left(times, to_s)
            inside = times[first:last] if wholly else times[max(first - 1, 0) : last + 1]
            found[partition] = [later - earlier for earlier, later in pairwise(inside)]
        return found

    def gaps_around(self, moments: Mapping[tuple[str, int], Sequence[float]]) -> dict[tuple[str, int], list[float]]:
        """Seconds between those successive commits of a partition that have one of its ``moments`` between them."""
        found = {}
        for partition, times in sorted(self.times.items()):
            at = moments.get(partition, ())
            found[partition] = [b - a for a, b in pairwise(times) if any(a <= moment <= b for moment in at)]
        return found


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """``total_ms``: partition-milliseconds, summed over all partitions, that commits came later than the interval allows;
    ``longest_ms`` of one partition at a time."""

    total_ms: float
    longest_ms: float
    partitions: int


def pauses(gaps: Iterable[Sequence[float]], interval_ms: float) -> Pauses:
    beyond = [[max(0.0, gap * 1e3 - interval_ms) for gap in of_one] for of_one in gaps]
    return Pauses(
        total_ms=sum(map(sum, beyond)),
        longest_ms=max((max(of_one, default=0.0) for of_one in beyond), default=0.0),
        partitions=len(beyond),
    )


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which this share of them lies; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
