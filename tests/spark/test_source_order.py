"""In which order a task takes records of several partitions that a batch has read."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from step_harness import Message

from tidemill.spark.source_step import by_head_timestamps


def read(partitions: Sequence[Sequence[int]]) -> Iterator[tuple[bool, Sequence[Any]]]:
    for number, timestamps in enumerate(partitions):
        yield False, [Message(f"t{number}", at, None, None, time, ()) for at, time in enumerate(timestamps)]


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


def test_the_partition_whose_next_record_is_the_oldest_goes_first_and_each_keeps_its_order() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        partitions = [[chance.randrange(9) for _ in range(chance.randrange(6))] for _ in range(chance.randrange(1, 5))]
        found = [(m.topic(), m.offset()) for _, messages in by_head_timestamps(read(partitions)) for m in messages]
        assert found == taken_by_heads(partitions), f"seed {seed}"
