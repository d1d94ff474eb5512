"""In which order a task takes records of its several inputs, and which it waits for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.steps.log_reader import LogReader
from tidemill.ids import TopicPartition
from tidemill.steps.alignment import NEVER_IDLE, AlignedReader
from tidemill.task.batch import BatchRequest
from tidemill.testing.topics import RawRecord
from tidemill.testing.worker import Message

TOPICS = ("t0", "t1", "t2", "t3")


def _of(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


@dataclass
class Brokers(LogReader):
    """Topics of one partition; each read gets what has arrived: all of it, or so many records of each topic."""

    arrives: dict[TopicPartition, int] = field(default_factory=dict)
    """How many records the next read gets of each; absent: all."""
    most: list[int] = field(default_factory=list)

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[Any]]]:
        self.most.append(request.max_records)
        for tp, at in self.placed.items():
            end = min(len(self.logs[tp]), at + self.arrives.get(tp, 1 << 30))
            if end > at:
                yield False, [Message(RawRecord(tp.topic, None, None, self.logs[tp][n]), n) for n in range(at, end)]
            self.placed[tp] = end


class Reading:
    """Batch after batch, each where the last one ended."""

    def __init__(self, logs: Sequence[Sequence[int]], **options: Any) -> None:
        self.brokers = Brokers({_of(f"t{number}"): list(times) for number, times in enumerate(logs)})
        self.reader = AlignedReader(self.brokers, dict.fromkeys(TOPICS, 0), **options)
        self.at = dict.fromkeys(self.brokers.logs, 0)

    def batch(self, now_ms: int = 0, most: int = 100_000, **arrives: int) -> list[tuple[str, int]]:
        self.brokers.arrives = {_of(topic): count for topic, count in arrives.items()}
        request = BatchRequest(batch_id=1, inputs=dict(self.at), now_ms=now_ms, max_records=most)
        self.reader.place(request)
        found = [(m.topic(), m.offset()) for _, messages in self.reader.read(request) for m in messages]
        self.at = dict(self.reader.ends()[0])
        return found


def taken_by_heads(partitions: Sequence[Sequence[int]]) -> list[tuple[str, int]]:
    """The oldest of the next records, again and again; the first partition of several."""
    next_of, taken = [0] * len(partitions), []
    while True:
        heads = zip(partitions, next_of, strict=True)
        waiting = [(times[at], number) for number, (times, at) in enumerate(heads) if at < len(times)]
        if not waiting:
            return taken
        _, number = min(waiting)
        taken.append((f"t{number}", next_of[number]))
        next_of[number] += 1


def _random_logs(chance: random.Random) -> list[list[int]]:
    return [[chance.randrange(9) for _ in range(chance.randrange(6))] for _ in range(chance.randrange(1, 5))]


@pytest.mark.parametrize("idle_ms", [0, NEVER_IDLE])
def test_the_partition_whose_next_record_is_the_oldest_goes_first_and_each_keeps_its_order(idle_ms: int) -> None:
    for seed in range(300):
        logs = _random_logs(random.Random(seed))
        assert Reading(logs, idle_ms=idle_ms).batch() == taken_by_heads(logs), f"seed {seed}"


def test_however_records_arrive_and_batches_are_cut_the_order_is_that_of_all_at_once() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        logs = _random_logs(chance)
        reading, taken = Reading(logs, most_held_records=chance.choice((2, 50))), list[tuple[str, int]]()
        for _ in range(60):
            if chance.random() < 0.2:  # the batch did not count, or another worker goes on
                at = reading.at
                reading = Reading(logs)
                reading.at = at
            arrives = {topic: chance.randrange(3) for topic in TOPICS}
            taken += reading.batch(most=chance.choice((1, 3, 100)), **arrives)
        assert taken == taken_by_heads(logs), f"seed {seed}"
        assert reading.at == {tp: len(times) for tp, times in reading.brokers.logs.items()}


def test_a_batch_that_did_not_count_is_read_again() -> None:
    reading = Reading([[1, 3, 5], [2, 4, 6]])
    before = dict(reading.at)
    first = reading.batch(t1=1)
    assert first == [("t0", 0), ("t1", 0)]  # what t1 has next may be older than t0's next
    reading.at = before
    assert reading.batch() == taken_by_heads([[1, 3, 5], [2, 4, 6]])


def test_an_input_whose_broker_has_more_is_waited_for_and_one_that_has_not_is_not() -> None:
    reading = Reading([[1, 2, 3], [9, 9]])
    assert reading.batch(t1=0) == []
    assert reading.batch(t1=1) == [("t0", 0), ("t0", 1), ("t0", 2), ("t1", 0)]
    reading = Reading([[1, 2, 3], []])
    assert reading.batch() == [("t0", 0), ("t0", 1), ("t0", 2)]


def test_never_idle_takes_what_is_there() -> None:
    assert Reading([[1, 2, 3], [0]], idle_ms=NEVER_IDLE).batch(t1=0) == [("t0", 0), ("t0", 1), ("t0", 2)]


def test_a_time_to_idle_waits_so_long_for_an_input_that_has_nothing() -> None:
    reading = Reading([[1, 5], [2]], idle_ms=1000)
    assert reading.batch(now_ms=0) == [("t0", 0), ("t1", 0)]
    assert reading.batch(now_ms=100) == []
    assert reading.batch(now_ms=999) == []
    reading.brokers.logs[_of("t1")].append(3)
    assert reading.batch(now_ms=999) == [("t1", 1)]
    assert reading.batch(now_ms=1500) == []
    assert reading.batch(now_ms=2500) == [("t0", 1)]


def test_a_clock_that_is_set_back_starts_the_wait_anew_and_does_not_lengthen_it() -> None:
    reading = Reading([[1, 5], [2]], idle_ms=1000)
    assert reading.batch(now_ms=3_600_000) == [("t0", 0), ("t1", 0)]
    assert reading.batch(now_ms=3_600_100) == []
    assert reading.batch(now_ms=500) == []
    assert reading.batch(now_ms=1400) == []
    assert reading.batch(now_ms=1500) == [("t0", 1)]


def test_a_task_that_comes_back_waits_again_however_long_it_was_away() -> None:
    reading = Reading([[1, 5], [2]], idle_ms=1000)
    assert reading.batch(now_ms=0) == [("t0", 0), ("t1", 0)]
    assert reading.batch(now_ms=100) == []
    there, reading.at = reading.at, {}
    assert reading.batch(now_ms=500) == []  # another instance has the task
    reading.at = there
    assert reading.batch(now_ms=5000) == []
    assert reading.batch(now_ms=6000) == [("t0", 1)]


def test_while_much_is_held_back_only_what_is_waited_for_is_read() -> None:
    reading = Reading([[1] * 10, [0, 2]], most_held_records=4)
    assert reading.batch(t0=5, t1=0) == []
    reading.batch(t1=0)
    assert _of("t0") not in reading.brokers.placed
    assert reading.at[_of("t0")] == 0
    assert reading.batch() == [("t1", 0), *(("t0", number) for number in range(5))]
    assert [*reading.batch(), *reading.batch()] == [*(("t0", number) for number in range(5, 10)), ("t1", 1)]
