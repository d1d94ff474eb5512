"""Cost of a rebalance for a stream thread's tasks: the longest time that each went without a batch.

A rebalance begins with the thread's first join, and ends when every active task has run under the last assignment. The pause of
a task that stays is the longest time between two of its batches within the rebalance; of one that comes, the time from its
assignment to its first batch. Rebalances that follow each other before that count as one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.task.tasks import Event, Tasks

log = logging.getLogger("tidemill.thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCost:
    """``paused_ms``: of each active task; ``joined_ms``: from the first join to the last assignment."""

    generations: tuple[int, ...]
    joined_ms: int
    paused_ms: dict[TaskId, int]


class RebalanceWatch:
    """``joins`` may be called from any thread, the others by the stream thread only."""

    def __init__(self, thread: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._thread, self._now_s = thread, now_s
        self._joined_at: float | None = None
        self._assigned_at: float | None = None
        self._is_joining = False
        self._generations: list[int] = []
        self._last: dict[TaskId, float] = {}
        self._worst: dict[TaskId, float] = {}
        self._waiting: frozenset[TaskId] = frozenset()

    def joins(self) -> None:
        """A join begins."""
        self._is_joining = True
        if self._joined_at is None:
            self._joined_at = self._now_s()

    def assigned(self, generation: int, active: Collection[TaskId]) -> None:
        """An assignment is carried out; these are the active tasks now."""
        now_s = self._now_s()
        self._joined_at = now_s if self._joined_at is None else self._joined_at
        self._assigned_at, self._is_joining = now_s, False
        self._generations.append(generation)
        self._waiting = frozenset(active)
        self._last = {task: self._last.get(task, now_s) for task in active}
        self._worst = {task: worst for task, worst in self._worst.items() if task in self._last}

    def changed(self, before: Tasks, after: Tasks, _event: Event) -> None:
        """A task that is no longer active ends its pause."""
        stay = {name for name, task in before.active.items() if name in after.active and after.active[name].epoch == task.epoch}
        if len(stay) < len(before.active):
            self.gone(stay)

    def gone(self, active: Collection[TaskId]) -> None:
        """Only these tasks are left."""
        self._last = {task: last for task, last in self._last.items() if task in active}
        self._worst = {task: worst for task, worst in self._worst.items() if task in active}
        self._waiting = self._waiting.intersection(active)

    def ran(self, tasks: Collection[TaskId]) -> RebalanceCost | None:
        """A batch of these tasks was committed; what the rebalance has cost if it is over with that."""
        now_s = self._now_s()
        is_under_way = self._joined_at is not None
        for task in tasks:
            if is_under_way:
                since_s = self._last.get(task, now_s)
                self._worst[task] = max(self._worst.get(task, 0.0), now_s - since_s)
            self._last[task] = now_s
        self._waiting = self._waiting.difference(tasks)
        if self._joined_at is None or self._assigned_at is None or self._is_joining or self._waiting:
            return None
        cost = RebalanceCost(
            generations=tuple(self._generations),
            joined_ms=round((self._assigned_at - self._joined_at) * 1e3),
            paused_ms={task: round(paused * 1e3) for task, paused in sorted(self._worst.items())},
        )
        self._joined_at = self._assigned_at = None
        self._generations, self._worst = [], {}
        log.info(
            LogEvent(
                "rebalance-over",
                thread=self._thread,
                generations=list(cost.generations),
                joined_ms=cost.joined_ms,
                paused_ms=cost.paused_ms,
            )
        )
        return cost
