"""The tasks of a stream thread: the current value of ``task.tasks``, changed only by ``task.manager``.

Decides nothing. It is shared by the stream thread, which passes events in and carries out the instructions, and the member's
threads, which build the subscription of each join. Both use one lock, so that a subscription has the tasks of one moment. The
value is replaced, never changed, so any thread may read ``now``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol

from tidemill.assignment.task_load import TaskLoad
from tidemill.ids import TaskId
from tidemill.membership.member_subscription import OwnSubscription, next_subscription
from tidemill.task.manager import handle
from tidemill.task.tasks import Event, Instruction, Tasks


class TaskObserver(Protocol):
    """Called for every change, on the stream thread."""

    def changed(self, before: Tasks, after: Tasks, event: Event) -> None: ...


class TaskRegistry:
    """Changed by the stream thread, and by joins, which record what they claim."""

    def __init__(self, tasks: Tasks) -> None:
        self.now = tasks
        self._lock = threading.Lock()
        self._observers: list[TaskObserver] = []

    def observe(self, *observers: TaskObserver) -> None:
        """Adds observers; they are called in this order."""
        self._observers.extend(observers)

    def handle(self, event: Event) -> tuple[Instruction, ...]:
        """Instructions that follow from ``event``, in order.

        Raises UnexpectedEventError for what the manager has no rule for, StopError if a listener raises.
        """
        with self._lock:
            before = self.now
            self.now, instructions = handle(before, event, int(time.time() * 1000))
            after = self.now
        if after is not before:
            for observer in self._observers:
                observer.changed(before, after, event)
        return instructions

    def joins(
        self,
        *,
        generation: int,
        incarnation: int,
        offset_sums: Mapping[TaskId, int],
        running: Collection[TaskId],
        loads: Mapping[TaskId, TaskLoad] | None = None,
    ) -> OwnSubscription:
        """Subscription of a join that begins now; see ``membership.member_subscription``."""
        with self._lock:
            member, said = next_subscription(
                self.now.member,
                generation=generation,
                incarnation=incarnation,
                offset_sums=offset_sums,
                running=frozenset(running),
                loads=loads,
            )
            self.now = replace(self.now, member=member)
        return said
