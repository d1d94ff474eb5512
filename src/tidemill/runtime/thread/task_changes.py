"""The interpreter of a stream thread's task manager: passes the group's events to it and carries out its instructions.

Decides nothing about tasks: which are created and closed, and in which order, is ``task.manager``'s. Each instruction is carried
out before the next one, and what its outcome leads to as well. That stores are closed is reported only once ``batch_runner`` has
the proof (correctness.md, rule 12).
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Sequence

from tidemill.errors import ShutdownRequestedError, StopError, assert_never
from tidemill.kafka.group import protocol as group_protocol
from tidemill.log_format import LogEvent
from tidemill.membership import member_state as machine
from tidemill.runtime.observe.thread_observers import ThreadObservers
from tidemill.runtime.thread.batch_runner import BatchRunner
from tidemill.runtime.thread.local_tasks import LocalTasks
from tidemill.runtime.thread.offset_commits import OffsetCommitter
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.runtime.thread.thread_membership import ThreadMembership
from tidemill.start_trace import tell_moment
from tidemill.task.tasks import (
    CloseTasks,
    CommitOffsets,
    ForgetOffsets,
    GroupEvent,
    Instruction,
    PositionsRead,
    RunTasks,
    TasksClosed,
)

log = logging.getLogger("tidemill.thread")


class TaskChanges:
    """Called by the stream thread only; ``is_assigned`` may be read by any."""

    def __init__(
        self,
        thread: str,
        *,
        group: ThreadMembership,
        registry: TaskRegistry,
        local: LocalTasks,
        runner: BatchRunner,
        commits: OffsetCommitter,
        observers: ThreadObservers,
    ) -> None:
        self._thread, self._group, self._registry, self._local = thread, group, registry, local
        self._runner, self._commits, self._observers = runner, commits, observers
        self.is_assigned = False
        """True from an assignment to the next loss of membership or revocation of all tasks."""
        self.are_over = False
        """The member has left: there is nothing more to do."""
        self.fatal: StopError | None = None
        """Why the thread must end; set before ``are_over``."""

    def take_events(self, wait_s: float) -> None:
        """Handles all events of the member; waits at most ``wait_s`` for the first."""
        try:
            events = self._group.member.events
            event = events.get(timeout=wait_s) if wait_s else events.get_nowait()
            while True:
                self._take(event)
                event = events.get_nowait()
        except queue.Empty:
            return

    def step(self, event: GroupEvent) -> None:
        """Carries out the instructions that follow from ``event``, each with its own consequences before the next one."""
        with self._group.acting():
            self._act(self._registry.handle(event))

    def _take(self, event: group_protocol.GroupEvent) -> None:
        match event:
            case machine.Assigned():
                self.step(event)
                self._assigned(event)
            case machine.MembershipLost(reason=reason):
                self._log_giving_up("membership-lost", reason, logging.WARNING)
                self._observers.metrics.lost_membership()
                self.is_assigned = False
                self.step(event)
                self._observers.on_change()
            case machine.RevokeAllRequested(reason=reason):
                self._log_giving_up("revoking-all", reason, logging.INFO)
                self.is_assigned = False
                self.step(event)
                self._observers.on_change()
            case group_protocol.Failed(error=error, fatal=True):
                raise error
            case group_protocol.Failed(error=error):
                log.warning(LogEvent("group-problem", thread=self._thread, problem=str(error)))
            case _:
                assert_never(event)

    def _assigned(self, event: machine.Assigned) -> None:
        """All that the assignment asks for is carried out."""
        tasks = self._registry.now
        log.info(
            LogEvent(
                "assigned",
                says=f"stream-thread [{self._thread}] Handle new assignment",
                thread=self._thread,
                generation=event.generation,
                tasks=sorted(tasks.active),
                standbys=sorted(tasks.standby),
            )
        )
        self._observers.rebalance.assigned(event.generation, tasks.active)
        tell_moment("assigned", tasks=len(tasks.active), standbys=len(tasks.standby))
        self._observers.metrics.assigned()
        if not self._group.is_joining:
            self._local.settled()
        self.is_assigned = True
        self._observers.on_change()

    def _log_giving_up(self, event: str, reason: str, level: int) -> None:
        tasks = self._registry.now
        active, standbys = sorted(tasks.active), sorted(tasks.standby)
        log.log(level, LogEvent(event, thread=self._thread, reason=reason, active=active, standby=standbys))

    def _act(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case CommitOffsets(partitions=partitions):
                    self._commits.commit()
                    self._commits.give_up(partitions)
                case ForgetOffsets():
                    self._commits.forget()
                case CloseTasks(tasks=tasks, kept=kept, have_stores=have_stores):
                    if tasks:
                        # In a batch that only closes stores the worker forgets where it was, and finds it in what is committed.
                        self._commits.commit()
                        self._runner.close_stores(are_open=have_stores)
                    follow = self._registry.handle(TasksClosed(tasks=tasks, kept=kept))
                    self._observers.on_change()
                    self._act(follow)
                case RunTasks(new=new):
                    self._observers.on_change()  # at once: an instance that has tasks which don't run yet is not RUNNING
                    found = self._local.positions(new)
                    if found:
                        self._act(self._registry.handle(PositionsRead(stores=found)))
                case machine.RejoinNow(reason=reason):
                    log.info(LogEvent("rejoining", thread=self._thread, cause=reason))
                    self._group.member.request_rejoin(reason)
                case machine.ScheduleRejoin():
                    pass  # the thread's loop reports TimePassed all the time
                case machine.ConfirmRevoked():
                    self._group.member.revoked_all()
                case machine.ReportFatal(reason=reason):
                    self.fatal = StopError(f"the group's leader sent no assignment that can be carried out: {reason}")
                case machine.ShutDownApplication(reason=reason):
                    self.fatal = ShutdownRequestedError(reason)
                case machine.LeaveGroup():
                    self._commits.commit()
                    self.are_over = True
                case _:
                    assert_never(instruction)
