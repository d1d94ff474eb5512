"""A stream thread's part of the local state: tasks that it may open, offset sums of its joins, positions of closed stores.

Decides nothing of its own: which thread has a task's directory open, and which of them answers for directories that no thread
has, is ``local_state``'s, which asks each thread's registry what it holds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.runtime.thread.local_state import LocalState
from tidemill.runtime.thread.task_registry import TaskRegistry

log = logging.getLogger("tidemill.thread")


class LocalTasks:
    """``offset_sums`` may be called by any thread, the others by the stream thread only."""

    def __init__(self, thread: str, registry: TaskRegistry, local: LocalState) -> None:
        self._thread, self._registry, self._local = thread, registry, local
        self._waiting: frozenset[TaskId] = frozenset()
        """Another thread of the instance has not closed their stores yet."""
        local.begins(thread, lambda: registry.now.ids)

    def may_open(self) -> frozenset[TaskId]:
        """Tasks that a batch may work on: all that no other thread of the instance still has open."""
        held = self._registry.now.ids
        may_open = self._local.opens(self._thread, held)
        waiting = held - may_open
        if waiting - self._waiting:
            log.info(LogEvent("tasks-wait", thread=self._thread, tasks=sorted(waiting), cause="another thread has them open"))
        self._waiting = waiting
        return may_open

    def positions(self, tasks: Collection[TaskId]) -> dict[TaskId, Mapping[str, int]]:
        """Positions at which stores of these tasks were left here, by store; without those that are not known."""
        found = {task: self._local.positions(self._thread, task) for task in sorted(tasks)}
        return {task: at for task, at in found.items() if at is not None}

    def offset_sums(self) -> tuple[dict[TaskId, int], frozenset[TaskId]]:
        """The offset sums that this thread reports in a join, and its running tasks."""
        tasks = self._registry.now
        return self._local.joins(self._thread, tasks.offset_sums()), tasks.running

    def settled(self) -> None:
        """The assignment that answers the last join is carried out."""
        self._local.settled(self._thread)

    def ended(self) -> None:
        """The thread has nothing any more."""
        self._local.ended(self._thread)
