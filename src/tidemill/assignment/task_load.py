"""Load of a task, as the members of a group measure it, and the weight that it gives the task.

Decides two things. Levels: a measured value counts as the nearest power of the square root of two, and keeps its level until it
has left it by more than a level, so that noise changes no weight. Weights: a task weighs as the greater of its two shares, that
of the group's records and that of the group's state (its dominant share), in multiples of the average task's. Carrying loads from
members to the leader is ``membership.wire.task_loads``'s part, what a weight moves ``balanced.weights``'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import log2, sqrt
from typing import NamedTuple

from tidemill.ids import TaskId

HIGHEST_LEVEL = 127
"""2^63 and more; a level travels as a small number."""
COUNT_BOUND = 0.5
"""Fraction of its share by which a client's number of tasks may differ because of weights, in all and of each sub-topology."""


class TaskLoad(NamedTuple):
    """Levels of the records that arrive for a task per second, and of the KiB of its state on disk; 0: one or fewer."""

    records: int = 0
    state: int = 0


def level(measured: float, before: int | None = None) -> int:
    """Level of a value; ``before``, the level that it had, stays unless the value has left it by more than one level."""
    exact = 2 * log2(max(measured, 1.0))
    if before is not None and abs(exact - before) <= 1:
        return before
    return min(round(exact), HIGHEST_LEVEL)


def value_of(reached: int) -> float:
    """Value in the middle of a level."""
    return sqrt(2) ** reached


def weights(loads: Mapping[TaskId, TaskLoad], stateful: Collection[TaskId]) -> dict[TaskId, float]:
    """Weight of each task in ``loads``, 1.0 being that of an average one of these; ``stateful``: those whose state counts."""
    records = {task: value_of(load.records) for task, load in loads.items()}
    state = {task: value_of(load.state) for task, load in loads.items() if task in stateful}
    of_records, of_state = _in_averages(records), _in_averages(state)
    return {task: max(share, of_state.get(task, 0.0)) for task, share in of_records.items()}


def _in_averages(values: Mapping[TaskId, float]) -> dict[TaskId, float]:
    total = sum(values[task] for task in sorted(values))
    return {task: value * len(values) / total for task, value in values.items()}


class CountBounds(NamedTuple):
    least: int
    most: int


def count_bounds(tasks: int, capacity: int, threads: int, bound: float = 0.0) -> CountBounds:
    """The fewest and the most of ``tasks`` for a client with ``capacity`` of all ``threads``: ``bound`` (0 to 1) away from its
    share, rounded down and up; 0: its share."""
    part, whole = bound.as_integer_ratio()
    share, threads = tasks * capacity, threads * whole
    return CountBounds(share * (whole - part) // threads, -(-share * (whole + part) // threads))
