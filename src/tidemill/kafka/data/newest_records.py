"""The newest records of a topic, a bounded number of them: what a look at a topic needs, without a group.

Decides that each partition gives the same share, of what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as ClientPartition

from tidemill.deadline import Deadline
from tidemill.errors import EnvironmentProblem, RetriableError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin

_OWN = {
    "group.id": "tidemill-look", "enable.auto.commit": False, "isolation.level": "read_committed", "enable.partition.eof": True,
}  # fmt: skip
"""Settings of the consumer, which joins no group."""
_POLL_S = 0.5
_AT_ONCE = 500


def newest_records(settings: Mapping[str, Any], admin: Admin, topic: str, most: int, *, timeout_s: float) -> Iterator[Message]:
    """At most ``most`` records, those of a partition in their order. ``settings``: a consumer's.

    Raises:
        EnvironmentProblem: there is no such topic. RetriableError: it could not be read within ``timeout_s``.
    """
    count = admin.partitions({topic})[topic]
    if count is None:
        raise EnvironmentProblem(f"there is no topic {topic!r} at {settings['bootstrap.servers']}")
    partitions = [TopicPartition(topic, number) for number in range(count)]
    ends, begins = admin.stable_end_offsets(partitions), admin.beginning_offsets(partitions)
    share = max(1, most // count)
    ranges = {tp.partition: range(max(begins[tp], ends[tp] - share), ends[tp]) for tp in partitions if ends[tp] > begins[tp]}
    consumer = Consumer({**settings, **_OWN})
    try:
        consumer.assign([ClientPartition(topic, number, read.start) for number, read in ranges.items()])
        yield from _read(consumer, topic, {number: read.stop for number, read in ranges.items()}, most, timeout_s)
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, ends: dict[int, int], most: int, timeout_s: float) -> Iterator[Message]:
    deadline = Deadline.after(timeout_s)
    while ends and most > 0:
        if deadline.is_over:
            raise RetriableError(f"{topic} could not be read within {timeout_s:.0f} s: partitions {sorted(ends)} are left")
        for message in consumer.consume(_AT_ONCE, _POLL_S):
            number, offset, error = message.partition(), message.offset(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise RetriableError(f"{topic} could not be read: {error.str()}")
            if number not in ends or offset is None:
                continue
            if error is None and offset < ends[number] and most > 0:
                most -= 1
                yield message
            if error is not None or offset >= ends[number] - 1:  # at the end, behind markers of transactions, or beyond it
                del ends[number]
