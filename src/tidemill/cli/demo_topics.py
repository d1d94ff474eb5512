"""The demo's two ends, and what is between: lines into the input topic, counts out of the output topic, and whether all was read.

Decides nothing about the pace. The counts are read read_committed, as any consumer of the output would read them.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tidemill.deadline import Deadline
from tidemill.errors import RetriableError, StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec

APPLICATION, INPUT, OUTPUT = "streams-wordcount", "streams-plaintext-input", "streams-wordcount-output"
PARTITIONS = 6
_READ_AT_ONCE = 10_000
_END_LIMIT_S = 60.0
_WRITE_LIMIT_S = 30.0
_ASK_LIMIT_S = 10.0
_QUIET = {"log_level": 2}


def create_topics(bootstrap_servers: str) -> None:
    admin = Admin({"bootstrap.servers": bootstrap_servers})
    admin.create_topics(TopicSpec(name=topic, partitions=PARTITIONS) for topic in (INPUT, OUTPUT))


class Feed:
    """Sends lines in their order, over the partitions in turn."""

    def __init__(self, bootstrap_servers: str, lines: Sequence[str]) -> None:
        self._lines = lines
        # One batch at a time: of a topic that is new to the broker the first one may be refused while a second one is taken, and
        # is then a duplicate to the broker when it comes again.
        one_by_one = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **one_by_one, **_QUIET})
        self.sent = 0

    @property
    def is_done(self) -> bool:
        return self.sent == len(self._lines)

    def send(self, up_to: int) -> None:
        """Sends on until ``up_to`` lines are sent and acknowledged."""
        if up_to <= self.sent:
            return
        for number in range(self.sent, up_to):
            # No delivery callback: a Ctrl-C that meets one breaks the client's call. What the broker
            # does not take stays in the queue for minutes.
            self._producer.produce(INPUT, self._lines[number].encode(), partition=number % PARTITIONS)
        left = self._producer.flush(_WRITE_LIMIT_S)
        if left:
            raise StopError(f"{left} lines could not be written to {INPUT} within {_WRITE_LIMIT_S:.0f} s: is the broker gone?")
        self.sent = up_to


class Reading:
    """How far the application is by the offsets that it commits together with what it makes of their records."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = Admin({"bootstrap.servers": bootstrap_servers})

    def is_over(self) -> bool:
        """True if it has read all lines that were sent, and all words that it has made of them: no count will change any more."""
        try:
            committed = self._admin.committed_offsets(APPLICATION, timeout_s=_ASK_LIMIT_S)
            counts = self._admin.partitions([INPUT, *self._repartition_topics()], timeout_s=_ASK_LIMIT_S)
            partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count or 0)]
            ends = self._admin.stable_end_offsets(partitions, timeout_s=_ASK_LIMIT_S)  # later: words come of lines that are read
        except RetriableError:
            return False
        return all(committed.get(tp, 0) >= end for tp, end in ends.items())

    def _repartition_topics(self) -> list[str]:
        topics = self._admin.topics(timeout_s=_ASK_LIMIT_S)
        return sorted(topic for topic in topics if topic.startswith(f"{APPLICATION}-") and topic.endswith("-repartition"))


class Counts:
    """The latest count of each word, per partition: a word that came out in two of them would count twice."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._partitions = [TopicPartition(OUTPUT, number) for number in range(PARTITIONS)]
        self._admin = Admin({"bootstrap.servers": bootstrap_servers})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "tidemill-demo",  # unused, but librdkafka wants one
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **_QUIET,
            }
        )
        self._consumer.assign([ClientPartition(tp.topic, tp.partition, 0) for tp in self._partitions])
        self._latest: dict[tuple[int, str], int] = {}
        self.total = 0

    def take(self, wait_s: float) -> None:
        """Takes in what has arrived; waits for the first."""
        for message in self._consumer.consume(1, wait_s) + self._consumer.consume(_READ_AT_ONCE, 0):
            if message.error() is None:
                self._take(message)

    def take_to_end(self) -> None:
        """Takes in all that is there now."""
        ends = self._admin.end_offsets(self._partitions)
        deadline = Deadline.after(_END_LIMIT_S)
        while any(self._position(tp) < end for tp, end in ends.items()):
            if deadline.is_over:
                raise StopError(f"{OUTPUT} could not be read to its end within {_END_LIMIT_S:.0f} s")
            self.take(0.1)

    def by_word(self) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for (_, word), count in self._latest.items():
            counts[word] = counts.get(word, 0) + count
        return counts

    def commonest(self, most: int) -> list[tuple[str, int]]:
        return heapq.nsmallest(most, self.by_word().items(), key=lambda item: (-item[1], item[0]))

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        where = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
        if key is None or value is None or len(value) != 8:
            raise StopError(f"{where} holds {key!r}: {value!r}, expected a word and a count")
        at = (int(message.partition() or 0), bytes(key).decode())
        count = int(struct.unpack(">q", value)[0])
        self.total += count - self._latest.get(at, 0)
        self._latest[at] = count

    def _position(self, tp: TopicPartition) -> int:
        (found,) = self._consumer.position([ClientPartition(tp.topic, tp.partition)])
        return max(0, int(found.offset))

