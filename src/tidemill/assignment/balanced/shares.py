"""Shares by threads: how many of so many tasks a client should have, rounded down and rounded up.

Decides what balanced means (KIP-441: clients differ by at most one task, in all and in each sub-topology; with unequal
threads: each client has its share, rounded down or up). Whole numbers only. Shares of all groups of tasks can be met at
once, because the fractional shares themselves meet them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidemill.ids import TaskId


class Share(NamedTuple):
    least: int
    most: int


def share(tasks: int, capacity: int, threads: int) -> Share:
    """The share of a client with ``capacity`` of all ``threads``."""
    return Share(tasks * capacity // threads, -(-tasks * capacity // threads))


def groups_of(task: TaskId, stateful: Collection[TaskId]) -> tuple[object, object, object]:
    """The groups that are balanced each: all tasks, those with (or without) state, those of the sub-topology."""
    has_state = task in stateful
    return "all", has_state, (has_state, task.subtopology)


def is_balanced(
    client_of: Mapping[TaskId, int], tasks: Iterable[TaskId], stateful: Collection[TaskId], capacity: Sequence[int]
) -> bool:
    """Whether each client has its share of each group, ``client_of`` naming the client of each task."""
    totals: Counter[object] = Counter()
    held: Counter[tuple[object, int]] = Counter()
    for task in tasks:
        for group in groups_of(task, stateful):
            totals[group] += 1
            held[group, client_of[task]] += 1
    threads = sum(capacity)
    for group, total in totals.items():
        for client, of_client in enumerate(capacity):
            least, most = share(total, of_client, threads)
            if not least <= held[group, client] <= most:
                return False
    return True
