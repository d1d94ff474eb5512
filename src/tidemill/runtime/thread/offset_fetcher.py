"""Fetches the offsets that a thread's tasks wait for: start offsets of actives, begin and end of standbys' changelogs.

Decides when the brokers are asked, and when again after a failure: at once for an active task, which can't run without its
bounds, and at most once a second for standbys, which must not hold up what runs. ``task`` decides what the answers mean,
``StartOffsets`` which offsets are fetched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from tidemill.deadline import Deadline
from tidemill.errors import BatchLostError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.log_format import LogEvent
from tidemill.runtime.thread.start_offsets import StartOffsets
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.runtime.thread.task_topology import TaskTopology
from tidemill.task.tasks import BoundsFetched, LimitsFetched, StandbyBoundsFetched, is_other_phase

log = logging.getLogger("tidemill.thread")

_RETRY_PAUSE_S = 1.0
_STANDBY_PAUSE_S = 1.0


class OffsetFetcher:
    """Called by the stream thread only, between batches."""

    def __init__(self, thread: str, registry: TaskRegistry, start_offsets: StartOffsets) -> None:
        self._thread, self._registry, self._start_offsets = thread, registry, start_offsets
        self._standby_pause = self._limits_pause = Deadline.after(0.0)

    def reads(self, topology: TaskTopology) -> None:
        """The tasks read more topics from now on."""
        self._start_offsets.reads(topology)

    def fetch_bounds(self) -> bool:
        """Fetches the bounds of the active tasks that wait for theirs. True if a task has changed its phase."""
        before = self._registry.now
        waiting = {name: task for name, task in before.active.items() if task.needs_bounds}
        if not waiting:
            return False
        try:
            bounds = self._start_offsets.bounds(waiting)
        except RetriableError as problem:
            log.warning(LogEvent("offsets-not-fetched", thread=self._thread, problem=problem))
            time.sleep(_RETRY_PAUSE_S)
            return False
        self._registry.handle(BoundsFetched(bounds=bounds))
        return is_other_phase(before, self._registry.now)

    def refresh_standbys(self) -> None:
        """Fetches bounds of new standbys, and once a second the limits of source topics that serve as changelogs."""
        held = self._registry.now.standby
        waiting = {name: copy for name, copy in held.items() if copy.needs_bounds}
        limited = {name: copy for name, copy in held.items() if copy.bounds is not None and copy.bounds.limits}
        try:
            if waiting and self._standby_pause.is_over:
                self._registry.handle(StandbyBoundsFetched(bounds=self._start_offsets.standby_bounds(waiting)))
            if limited and self._limits_pause.is_over:
                self._limits_pause = Deadline.after(_STANDBY_PAUSE_S)
                self._registry.handle(LimitsFetched(committed=self._start_offsets.standby_limits(limited)))
        except RetriableError as problem:
            self._standby_pause = Deadline.after(_STANDBY_PAUSE_S)
            log.warning(LogEvent("standby-offsets-not-fetched", thread=self._thread, problem=problem))

    def settle(self) -> bool:
        """Before the tasks are opened again: what they read continues where it is, also if nothing was committed yet. False if
        that can't be done now."""
        tasks = self._registry.now.active.values()
        positions = {tp: at for task in tasks if task.bounds for tp, at in {**task.bounds.inputs, **task.positions}.items()}
        try:
            self._start_offsets.settle(positions)
        except (RetriableError, BatchLostError) as problem:
            log.warning(LogEvent("offsets-not-committed", thread=self._thread, problem=problem))
            return False
        return True

    def reset(self, partitions: Iterable[TopicPartition], truncated: Mapping[TopicPartition, int]) -> bool:
        """Inputs that are out of range begin where their policy says; a changelog's bounds are fetched again in any case. False
        if the brokers could not be asked: the next batch finds the same, and comes here again."""
        gone = frozenset(partitions)
        held = [task.positions for task in self._registry.now.active.values()]
        positions = {tp: at for of_task in held for tp, at in of_task.items() if tp in gone}
        if not positions:
            return True
        try:
            self._start_offsets.reset(positions, truncated)
        except (RetriableError, BatchLostError) as problem:
            log.warning(LogEvent("offsets-not-reset", thread=self._thread, problem=problem))
            return False
        return True
