"""A task's inputs are taken in the order of their times, whichever of them the broker answers for first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import Producer

from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.kafka.data.reader import ThreadReader
from tidemill.steps.alignment import AlignedReader
from tidemill.task.batch import BatchRequest

pytestmark = pytest.mark.broker

RECORDS, START_MS = 40_000, 1_700_000_000_000
Found = list[tuple[TopicPartition, int, int]]
"""(partition, offset, timestamp) of each record, in the order of taking."""


@pytest.fixture
def inputs(bootstrap_servers: str, unique_name: Callable[[str], str]) -> tuple[TopicPartition, ...]:
    """Four partitions of two topics: one gets a record each millisecond, the other a tenth of that, written at last."""
    many, few = unique_name("many"), unique_name("few")
    Admin({"bootstrap.servers": bootstrap_servers}).create_topics([TopicSpec(name=name, partitions=2) for name in (many, few)])
    one_by_one = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **one_by_one, "log_level": 0})
    for topic, step in ((many, 1), (few, 10)):
        for number in range(0, RECORDS, step):
            producer.produce(topic, b"v", partition=number // step % 2, timestamp=START_MS + number)
            if number % 10_000 == 0:
                producer.poll(0)
    assert producer.flush(240) == 0
    return tuple(TopicPartition(topic, number) for topic in (many, few) for number in range(2))


def _batches(servers: str, inputs: tuple[TopicPartition, ...], most: int) -> Iterator[Found]:
    reader = ThreadReader({"bootstrap.servers": servers, "group.id": "none", "log_level": 0})
    aligned = AlignedReader(reader, {tp.topic: 0 for tp in inputs})
    at: Mapping[TopicPartition, int] = dict.fromkeys(inputs, 0)
    try:
        while True:
            request = BatchRequest(batch_id=1, inputs=dict(at), max_records=most)
            aligned.place(request)
            yield [
                (TopicPartition(m.topic(), m.partition()), m.offset(), m.timestamp()[1])
                for _, messages in aligned.read(request)
                for m in messages
            ]
            at = aligned.ends()[0]
    finally:
        reader.close()


@pytest.mark.parametrize("most", [3_000, 100_000])
def test_a_backlog_is_taken_by_time(bootstrap_servers: str, inputs: tuple[TopicPartition, ...], most: int) -> None:
    newest = {0: 0, 1: 0}
    seen: dict[TopicPartition, int] = dict.fromkeys(inputs, 0)
    wanted, deadline = RECORDS + RECORDS // 10, time.monotonic() + 240
    for found in _batches(bootstrap_servers, inputs, most):
        assert len(found) <= most
        for tp, offset, timestamp in found:
            assert (offset, timestamp >= newest[tp.partition]) == (seen[tp], True)
            seen[tp], newest[tp.partition] = offset + 1, timestamp
        if sum(seen.values()) == wanted:
            return
        assert time.monotonic() < deadline, seen


def test_a_record_does_not_wait_for_an_input_that_has_nothing_more(
    bootstrap_servers: str, inputs: tuple[TopicPartition, ...]
) -> None:
    batches = _batches(bootstrap_servers, inputs, 100_000)
    left = RECORDS + RECORDS // 10
    while left:
        left -= len(next(batches))
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for number in range(5):
        producer.produce(inputs[0].topic, b"v", partition=0, timestamp=START_MS + 10 * RECORDS + number)
        assert producer.flush(240) == 0
        began = time.monotonic()
        while not next(batches):
            assert time.monotonic() < began + 240
