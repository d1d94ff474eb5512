"""Measured loads of one member's tasks, and when their change justifies a rebalance.

Decides three things:

- The measure: the records that arrive for a task per second, and the size of its state, both as levels that noise does not change
  (``assignment.task_load``). Arrivals are counted by the ends of the input partitions: what is processed would show a backlog as
  load. They are the mean of the first ``SMOOTHED_OVER_S``, and smoothed over that time from then on.
- Memory: the load of a task that has moved is kept for ``REMEMBERED_S``, because its new owner has measured nothing yet.
- The rebalance: a member requests it when its tasks together carry ``WORTH_A_REBALANCE`` times the load of its last join, or a
  fraction as small, and the last rebalance is a probing interval ago. Which tasks move is the leader's decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import exp

from tidemill.assignment.task_load import TaskLoad, level, value_of
from tidemill.ids import TaskId, TopicPartition

MEASURE_INTERVAL_S = 30.0
SMOOTHED_OVER_S = 300.0
REMEMBERED_S = 900.0
WORTH_A_REBALANCE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    per_s: float
    over_s: float
    load: TaskLoad
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoads:
    """Immutable; times are seconds of one clock. ``reported``: records per second of all tasks in the last join.

    ``interval_s``: between two measurements; the first load of a task takes two of them.
    """

    interval_s: float = MEASURE_INTERVAL_S
    measured_at_s: float | None = None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    measured: Mapping[TaskId, _Measured] = field(default_factory=dict)
    reported: float = 0.0

    def is_due(self, now_s: float) -> bool:
        return self.measured_at_s is None or now_s - self.measured_at_s >= self.interval_s

    def measure(
        self, now_s: float, inputs: Mapping[TaskId, Collection[TopicPartition]], ends: Mapping[TopicPartition, int],
        state_bytes: Mapping[TaskId, int],
    ) -> MeasuredLoads:
        """A measurement. ``inputs``: input partitions of running tasks; ``ends`` of inputs and ``state_bytes``: as far as
        known."""
        passed_s = None if self.measured_at_s is None else now_s - self.measured_at_s
        kept = {task: one for task, one in self.measured.items() if now_s - one.at_s < REMEMBERED_S}
        for task, partitions in inputs.items():
            grown = [ends[p] - self.ends[p] for p in partitions if p in ends and p in self.ends]
            if passed_s and len(grown) == len(partitions):
                rate = max(sum(grown), 0) / passed_s
                kept[task] = _next(self.measured.get(task), rate, state_bytes.get(task, 0), now_s, passed_s)
        seen = {p: ends[p] for partitions in inputs.values() for p in partitions if p in ends}
        return replace(self, measured_at_s=now_s, ends=seen, measured=kept)

    def loads(self, now_s: float) -> dict[TaskId, TaskLoad]:
        """The loads that a join reports."""
        return {task: one.load for task, one in self.measured.items() if now_s - one.at_s < REMEMBERED_S}

    def joins(self, running: Collection[TaskId]) -> MeasuredLoads:
        """After a join that has reported the loads; ``running``: the tasks that count as this member's."""
        return replace(self, reported=self.carried(running))

    def carried(self, running: Collection[TaskId]) -> float:
        """Records per second of these tasks together, as far as they are measured."""
        return sum(value_of(self.measured[task].load.records) for task in sorted(running) if task in self.measured)

    def is_worth_a_rebalance(self, running: Collection[TaskId]) -> bool:
        """True if the load has changed enough for a rebalance."""
        carried = self.carried(running)
        return carried > 0 and not 1 / WORTH_A_REBALANCE < carried / max(self.reported, 1e-9) < WORTH_A_REBALANCE


def _next(before: _Measured | None, rate: float, size: int, now_s: float, passed_s: float) -> _Measured:
    if before is None:
        return _Measured(per_s=rate, over_s=passed_s, load=TaskLoad(level(rate), level(size / 1024)), at_s=now_s)
    over_s = before.over_s + passed_s
    # At first the mean: one measurement at a slow moment must not count for minutes.
    share = max(passed_s / over_s, 1 - exp(-passed_s / SMOOTHED_OVER_S))
    per_s = before.per_s + (rate - before.per_s) * share
    load = TaskLoad(level(per_s, before.load.records), level(size / 1024, before.load.state))
    return _Measured(per_s=per_s, over_s=over_s, load=load, at_s=now_s)
