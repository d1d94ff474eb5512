"""What the group makes of a stream thread's tasks: its events are taken, and what the member's machine answers is carried out.

Decides that a task counts as given up only when its stores are closed: the worker's answer is the proof, else its death
(rule 12). Which tasks come and go is decided by ``membership.member``, and in this order; which events there are, by
``kafka.group.member``.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Collection, Sequence

from tidemill.errors import ShutdownRequestedError, StopError
from tidemill.ids import TaskId
from tidemill.kafka.group import protocol as group_protocol
from tidemill.kafka.group.member import GroupMember
from tidemill.log_format import LogEvent
from tidemill.membership import member_state as machine
from tidemill.runtime.group.group_side import GroupSide
from tidemill.runtime.instance.local_state import LocalState
from tidemill.runtime.observe.rebalance_watch import RebalanceWatch
from tidemill.runtime.observe.thread_metrics import ThreadMetrics
from tidemill.runtime.thread.micro_batches import MicroBatches
from tidemill.runtime.thread.offset_commits import OwnCommits
from tidemill.runtime.thread.task_registry import HeldTasks
from tidemill.start_trace import tell_moment

log = logging.getLogger("tidemill.thread")


class TaskChanges:
    """Called by the stream thread only; ``is_assigned`` may be read by any. ``close_stores`` says whether the worker has closed
    those of these tasks; ``on_change`` is told that tasks have come or gone."""

    def __init__(
        self,
        thread: str,
        *,
        group: GroupSide,
        member: GroupMember,
        held: HeldTasks,
        local: LocalState,
        batches: MicroBatches,
        commits: OwnCommits,
        rebalance: RebalanceWatch,
        metrics: ThreadMetrics,
        close_stores: Callable[[Collection[TaskId]], bool],
        on_change: Callable[[], None],
    ) -> None:
        self._thread, self._group, self._member, self._held, self._local = thread, group, member, held, local
        self._batches, self._commits, self._rebalance, self._metrics = batches, commits, rebalance, metrics
        self._close_stores, self._on_change = close_stores, on_change
        self._closed: frozenset[TaskId] = frozenset()
        """Their stores are closed, but they have not been given up yet."""
        self.is_assigned = False
        """By the group, as of its last word."""
        self.are_over = False
        """The member has left: there is nothing more to do."""
        self.fatal: StopError | None = None
        """Why the thread must end; set before ``are_over``."""

    def take_events(self, wait_s: float) -> None:
        """Everything that the group has posted; waits so long for the first."""
        try:
            event = self._member.events.get(timeout=wait_s) if wait_s else self._member.events.get_nowait()
            while True:
                self._take(event)
                event = self._member.events.get_nowait()
        except queue.Empty:
            return

    def step(self, event: machine.Event) -> None:
        """Does what the member's machine makes of it."""
        with self._group.acting():
            self._act(self._group.step(event))

    def _take(self, event: group_protocol.GroupEvent) -> None:
        if isinstance(event, group_protocol.Assigned):
            self.step(
                machine.Assigned(
                    generation=event.generation,
                    member_id=event.member_id,
                    incarnation=event.incarnation,
                    partitions=event.partitions,
                    user_data=event.user_data,
                )
            )
            log.info(
                LogEvent(
                    "assigned",
                    thread=self._thread,
                    generation=event.generation,
                    tasks=sorted(self._held.active),
                    standbys=sorted(self._held.standby),
                )
            )
            self._rebalance.assigned(event.generation, self._held.active)
            tell_moment("assigned", tasks=len(self._held.active), standbys=len(self._held.standby))
            self._metrics.assigned()
            if not self._group.is_joining:
                self._local.settled(self._thread)
            self.is_assigned = True
            self._on_change()
        elif isinstance(event, group_protocol.Lost):
            log.warning(
                LogEvent(
                    "membership-lost",
                    thread=self._thread,
                    reason=event.reason,
                    active=sorted(self._held.active),
                    standby=sorted(self._held.standby),
                )
            )
            self._metrics.lost_membership()
            self.is_assigned = False
            self.step(machine.MembershipLost(reason=event.reason, incarnation=event.incarnation))
        elif isinstance(event, group_protocol.RevokeAll):
            log.info(
                LogEvent(
                    "revoking-all",
                    thread=self._thread,
                    reason=event.reason,
                    active=sorted(self._held.active),
                    standby=sorted(self._held.standby),
                )
            )
            self.is_assigned = False
            self.step(machine.RevokeAllRequested(reason=event.reason))
            self._on_change()
        elif event.fatal:
            raise event.error
        else:
            log.warning(LogEvent("group-problem", thread=self._thread, problem=str(event.error)))

    def _act(self, instructions: Sequence[machine.Instruction]) -> None:
        standbys = [instruction.tasks for instruction in instructions if isinstance(instruction, machine.CloseStandbys)]
        for instruction in instructions:
            if isinstance(instruction, machine.AdoptMembership):
                self._batches.incarnation = instruction.incarnation
            elif isinstance(instruction, machine.RevokeTasks):
                self._commits.commit()
                self._commits.give_up(self._held.inputs(instruction.tasks))
                self._held.demote(instruction.becomes_standby)
                self._close((instruction.tasks - instruction.becomes_standby).union(*standbys))  # in one batch
                self._release(instruction.tasks, "revoked", stays_open=instruction.becomes_standby)
            elif isinstance(instruction, machine.GiveUpTasks):
                self._commits.forget()
                self._release(instruction.tasks, instruction.reason)
            elif isinstance(instruction, machine.CloseStandbys):
                self._release(instruction.tasks, "not assigned any more")
            elif isinstance(instruction, machine.AssignTasks):
                self._held.take_up(instruction)
            elif isinstance(instruction, machine.RejoinNow):
                log.info(LogEvent("rejoining", thread=self._thread, cause=instruction.reason))
                self._member.request_rejoin(instruction.reason)
            elif isinstance(instruction, machine.ConfirmRevoked):
                self._member.revoked_all()
            elif isinstance(instruction, machine.ReportFatal):
                self.fatal = StopError(f"the group's leader refused to assign tasks: {instruction.reason}")
            elif isinstance(instruction, machine.ShutDownApplication):
                self.fatal = ShutdownRequestedError(instruction.reason)
            elif isinstance(instruction, machine.LeaveGroup):
                self._commits.commit()
                self.are_over = True

    def _release(self, tasks: Collection[TaskId], cause: str, stays_open: Collection[TaskId] = ()) -> None:
        """Gives tasks up. Those that stay open are to come back in another role at once."""
        closed = frozenset(tasks).difference(stays_open)
        self._close(closed)
        self._closed -= closed
        self._held.drop(closed, cause)
        self._rebalance.gone(self._held.active)
        self._on_change()
        self.step(machine.TasksReleased(tasks=frozenset(tasks)))

    def _close(self, tasks: Collection[TaskId]) -> None:
        """A batch without them makes the worker close their stores, and its report is the proof (rule 12). There is none where
        nothing is open: what is read for others goes on, and the last batch has answered."""
        tasks = frozenset(tasks) - self._closed
        self._closed |= tasks
        is_open = self._held.have_stores(tasks) or not any(self._held.without(self._closed)) or self._batches.failures
        if tasks and is_open and self._batches.has_workers and not self._close_stores(self._closed):
            self._batches.end_workers()  # no acknowledgement: their death is as good
