"""A simulated stream thread: carries out what the member's state machine says, in virtual time.

Decides only how long things take. What is revoked, taken up or rejoined for is ``membership.member``'s, what is claimed
``membership.member_subscription``'s. A thread whose process is paused does nothing until it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tidemill.ids import ProcessId, TaskId
from tidemill.membership.joined_group import Subscription
from tidemill.membership.member import step
from tidemill.membership.member_state import (
    AssignTasks,
    CloseStandbys,
    ConfirmRevoked,
    Event,
    GiveUpTasks,
    HeldTask,
    Hold,
    Instruction,
    LeaveGroup,
    MemberConfig,
    RejoinNow,
    ReportFatal,
    RevokeTasks,
    Role,
    ScheduleRejoin,
    ShutDownApplication,
    TasksReleased,
    TimePassed,
    new_member,
)
from tidemill.membership.member_subscription import may_commit, next_subscription
from tidemill.sim.agenda import Agenda
from tidemill.sim.copies import SimulatedStateDirectory
from tidemill.sim.logs import TaskLog
from tidemill.sim.scenario import Surroundings


class ThreadHost(Protocol):
    """What a thread sees of its process."""

    @property
    def process_id(self) -> ProcessId: ...
    @property
    def directory(self) -> SimulatedStateDirectory: ...
    @property
    def threads(self) -> list[Thread]: ...
    def when_awake(self, action: Callable[[], None]) -> None: ...
    @property
    def is_paused(self) -> bool: ...
    def thread_ended(self) -> None: ...


class GroupOfThread(Protocol):
    """What a thread sees of the group."""

    def rejoin(self, thread: Thread, reason: str) -> None: ...
    def leave(self, thread: Thread) -> None: ...
    def revoked_all(self, thread: Thread) -> None: ...


class Thread:
    def __init__(
        self,
        name: str,
        process: ThreadHost,
        config: MemberConfig,
        group: GroupOfThread,
        agenda: Agenda,
        logs: dict[TaskId, TaskLog],
        surroundings: Surroundings,
    ) -> None:
        self.name, self.process, self.state = name, process, new_member(config)
        self.running: set[TaskId] = set()
        self.incarnation = 0
        """The group's count of this member's losses; the member may yet have to read of the last one."""
        self.assigned_in = -1
        self.has_ended = False
        self._open_actives_of: Mapping[TaskId, HeldTask] | None = None
        self._open_actives: dict[TaskId, None] = {}
        """Of the held tasks beside it, in their order; whoever steps makes new ones."""
        self._group, self._agenda, self._logs, self._surroundings = group, agenda, logs, surroundings

    def tell(self, event: Event) -> None:
        """An event for the state machine, now or when the process goes on."""
        self.process.when_awake(lambda: self._step(event))

    def subscription(self, rack: str | None) -> Subscription:
        """What this thread's join says."""
        self.state, own = next_subscription(
            self.state,
            generation=self.assigned_in,
            incarnation=self.incarnation,
            offset_sums=self._offset_sums(),
            running=frozenset(self.running),
        )
        return Subscription(
            user_data=own.user_data, owned_partitions=own.owned_partitions, generation=self.assigned_in, rack=rack
        )

    def may_commit(self, task: TaskId) -> bool:
        """Whether the group would accept a commit of the task by this thread."""
        return may_commit(
            self.state, [task], began_incarnation=self.state.incarnation, incarnation=self.incarnation
        )

    def run_restored(self, now_ms: int) -> None:
        """Actives whose state is complete begin to run."""
        if self._open_actives_of is not self.state.held:
            self._open_actives_of = held = self.state.held
            self._open_actives = {t: None for t, had in held.items() if had.role is Role.ACTIVE and had.hold is Hold.OPEN}
        if self._open_actives.keys() <= self.running:
            return
        for task in self._open_actives:
            if task not in self.running and self.may_commit(task):
                log, copy = self._logs[task], self.process.directory.copies.get(task)
                is_ready = not log.is_stateful or (copy is not None and copy.holder == self.name and copy.follows)
                if is_ready:
                    self.running.add(task)
                    log.run(self.name, now_ms)

    def stop_running(self, tasks: Iterable[TaskId], now_ms: int) -> None:
        for task in tasks:
            self._logs[task].stop(self.name, now_ms)
        self.running.difference_update(tasks)

    def _offset_sums(self) -> dict[TaskId, int]:
        """Of the copies that this thread holds, and, if it is the first, of all that none holds."""
        directory, now_ms = self.process.directory, self._agenda.now_ms
        is_first = next(t for t in self.process.threads if not t.has_ended) is self
        sums = {}
        for task, copy in directory.copies.items():
            if copy.closed_ms is None:
                if copy.holder == self.name:
                    sums[task] = int(directory.position(task, now_ms))
            elif is_first and (position := int(directory.position(task, now_ms))) > 0:
                sums[task] = max(position - self._surroundings.closed_copy_lag, 0)
        return sums

    def _step(self, event: Event) -> None:
        if self.has_ended:
            return
        self.state, instructions = step(self.state, event, self._agenda.now_ms)
        for instruction in instructions:
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        now_ms = self._agenda.now_ms
        match instruction:
            case AssignTasks(active=active, standby=standby):
                for task in (*active, *standby):
                    self._open(task, is_active=task in active)
                self.run_restored(now_ms)
            case RevokeTasks(tasks=tasks, becomes_standby=kept):
                self.stop_running(tasks, now_ms)
                self._agenda.after(self._surroundings.release_ms, lambda: self._release(tasks, kept))
            case CloseStandbys(tasks=tasks) | GiveUpTasks(tasks=tasks):
                self.stop_running(tasks, now_ms)
                self._agenda.after(self._surroundings.release_ms, lambda: self._release(tasks, frozenset()))
            case ConfirmRevoked():
                self._group.revoked_all(self)
            case RejoinNow(reason=reason):
                self._group.rejoin(self, reason)
            case ScheduleRejoin(at_ms=at_ms):
                self._agenda.at(at_ms + 1, lambda: self.tell(TimePassed()))
            case LeaveGroup():
                self.has_ended = True
                self._group.leave(self)
                self.process.thread_ended()
            case ReportFatal(reason=reason) | ShutDownApplication(reason=reason):
                raise AssertionError(f"{self.name}: {reason}")
            case _:
                pass  # AdoptMembership is about a real group's commits

    def _open(self, task: TaskId, *, is_active: bool) -> None:
        if not self._logs[task].is_stateful:
            return
        directory, now_ms = self.process.directory, self._agenda.now_ms
        held = directory.copies.get(task)
        if held is not None and held.closed_ms is None and held.holder != self.name:
            return  # another thread of this process is closing it; see _release
        directory.open(task, self.name, now_ms, now_ms + self._surroundings.restore_start_ms, is_awaited=is_active)

    def _release(self, tasks: frozenset[TaskId], kept_open: frozenset[TaskId]) -> None:
        self.process.when_awake(lambda: self._released(tasks, kept_open))

    def _released(self, tasks: frozenset[TaskId], kept_open: frozenset[TaskId]) -> None:
        if self.has_ended:
            return
        self._close(tasks - kept_open)
        self._step(TasksReleased(tasks=tasks))
        self._close(kept_open - self.state.held.keys())

    def _close(self, tasks: frozenset[TaskId]) -> None:
        """Close the copies that this thread has, and hand them to another thread that waits for them."""
        directory = self.process.directory
        for task in sorted(tasks):
            copy = directory.copies.get(task)
            if copy is not None and copy.holder == self.name:
                directory.close(task, self._agenda.now_ms)
                for other in self.process.threads:
                    if other is not self and not other.has_ended:
                        other.take_over(task)

    def take_over(self, task: TaskId) -> None:
        """Open a copy that this thread had to wait for."""
        had = self.state.held.get(task)
        if had is not None and had.hold is Hold.OPEN:
            self._open(task, is_active=had.role is Role.ACTIVE)
            self.run_restored(self._agenda.now_ms)

