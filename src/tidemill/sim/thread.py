"""A simulated stream thread: drives the task manager that real ones have, and carries out what it says, in virtual time.

Decides only how long things take. What is opened, closed, committed or rejoined for is ``task.manager``'s, what is claimed
``membership.member_subscription``'s. A thread whose process is paused does nothing until it is resumed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from tidemill.errors import assert_never
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership import member_state as machine
from tidemill.membership.joined_group import Subscription
from tidemill.membership.member_state import MemberConfig, MemberState, TimePassed
from tidemill.membership.member_subscription import may_commit, next_subscription
from tidemill.sim.agenda import Agenda
from tidemill.sim.copies import SimulatedStateDirectory
from tidemill.sim.logs import SimulatedLog
from tidemill.sim.scenario import Surroundings
from tidemill.task.lifecycle import ActiveTask, Bounds, Phase
from tidemill.task.manager import handle
from tidemill.task.measured_loads import MEASURE_INTERVAL_S, MeasuredLoads
from tidemill.task.promotion import Promotions
from tidemill.task.tasks import (
    BatchLost,
    BoundsFetched,
    CloseTasks,
    CommitOffsets,
    Event,
    ForgetOffsets,
    GroupEvent,
    Instruction,
    RunTasks,
    TaskLayout,
    TasksClosed,
    no_tasks,
)

_LAYOUT = TaskLayout()
"""Stores are simulated as copies (``sim.copies``): a task starts when its copy is complete, so the manager knows of no stores."""


class ThreadHost(Protocol):
    """The process as a thread sees it."""

    @property
    def process_id(self) -> ProcessId: ...
    @property
    def directory(self) -> SimulatedStateDirectory: ...
    @property
    def threads(self) -> list[Thread]: ...
    def when_awake(self, action: Callable[[], None]) -> None: ...
    @property
    def is_paused(self) -> bool: ...
    def thread_changed(self) -> None: ...
    def thread_ended(self) -> None: ...


class GroupOfThread(Protocol):
    """The group as a thread sees it."""

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
        logs: dict[TaskId, SimulatedLog],
        surroundings: Surroundings,
        measures_s: float | None = None,
    ) -> None:
        """``measures_s``: the probing interval, if the loads of tasks are measured for the assignor."""
        self.name, self.process = name, process
        self.tasks = no_tasks(config, _LAYOUT)
        self.running: frozenset[TaskId] = frozenset()
        """Active tasks that batches work on."""
        self.incarnation = 0
        """The group's count of this member's losses; the member may yet have to read of the last one."""
        self.assigned_in = -1
        self.has_ended = False
        self._promotions = Promotions()
        self._loads = MeasuredLoads()
        self._measures_s = measures_s
        self._assignments = 0
        self._waiting_of: Mapping[TaskId, ActiveTask] | None = None
        self._waiting: tuple[TaskId, ...] = ()
        """Tasks of ``_waiting_of`` that have not started; computed again when that mapping is replaced."""
        self._group, self._agenda, self._logs, self._surroundings = group, agenda, logs, surroundings

    @property
    def state(self) -> MemberState:
        return self.tasks.member

    def tell(self, event: GroupEvent) -> None:
        """Passes an event to the state machine, now or when the process is resumed."""
        self.process.when_awake(lambda: self._step(event))

    def subscription(self, rack: str | None) -> Subscription:
        """Contents of this thread's join."""
        member, own = next_subscription(
            self.state,
            generation=self.assigned_in,
            incarnation=self.incarnation,
            offset_sums=self._offset_sums(),
            running=self.running,
            loads=self._loads.loads(self._now_s),
        )
        self._loads = self._loads.joins(self.running)
        self.tasks = replace(self.tasks, member=member)
        return Subscription(
            user_data=own.user_data, owned_partitions=own.owned_partitions, generation=self.assigned_in, rack=rack
        )

    @property
    def _now_s(self) -> float:
        return self._agenda.now_ms / 1e3

    def _measure_from_now_on(self) -> None:
        """Measures loads from the start of tasks: at the interval of a load, and when a rebalance for it may be requested."""
        if self._measures_s is None:
            return
        self._assignments += 1
        measured_in = self._assignments
        for after_s in (0.0, MEASURE_INTERVAL_S, max(self._measures_s, 2 * MEASURE_INTERVAL_S)):
            measure = functools.partial(self._measure_loads, measured_in, may_ask=after_s >= self._measures_s)
            self._agenda.after(round(after_s * 1e3), measure, changes_copies=False)

    def _measure_loads(self, measured_in: int, *, may_ask: bool) -> None:
        if self.has_ended or self.process.is_paused or measured_in != self._assignments:
            return
        now_ms, directory = self._agenda.now_ms, self.process.directory
        logs = {task: self._logs[task] for task in self.running}
        self._loads = self._loads.measure(
            self._now_s,
            {task: (_input(task),) for task in logs},
            {_input(task): int(now_ms * log.records_per_s / 1000) for task, log in logs.items()},
            {
                task: int(directory.position(task, now_ms)) * log.bytes_per_record
                for task, log in logs.items()
                if task in directory.copies
            },
        )
        if may_ask and not self.state.is_joining and self._loads.is_worth_a_rebalance(self.running):
            self._group.rejoin(self, "the load of this member's tasks has changed")

    def may_commit(self, tasks: Iterable[TaskId]) -> bool:
        """True if the group would accept a commit of all these tasks by this thread."""
        state = self.tasks.member
        return may_commit(state, tasks, began_incarnation=state.incarnation, incarnation=self.incarnation)

    def run_restored(self, now_ms: int) -> None:
        """Actives whose state is complete begin to run."""
        if self._waiting_of is not self.tasks.active:
            self._waiting_of = active = self.tasks.active
            self._waiting = tuple(name for name, task in active.items() if task.phase is not Phase.RUNNING)
        ready = [task for task in self._waiting if self._is_ready(task)]
        if ready:
            self._handle(BoundsFetched(bounds=dict.fromkeys(ready, Bounds(inputs={}))))
            for task in ready:
                self._logs[task].run(self.name, now_ms)
            self._measure_from_now_on()

    def ask_for_promotions(self, standby_replicas: int) -> None:
        """A rebalance for warm-ups that have caught up."""
        copies = self.process.directory.copies
        own = {task for task, copy in copies.items() if copy.holder == self.name}
        held = {task: one.epoch for task, one in self.tasks.standby.items() if task in own}
        caught_up = {task for task in held if copies[task].follows}
        self._promotions, ready = self._promotions.ask(self.state, held, caught_up, standby_replicas)
        if ready:
            self._group.rejoin(self, f"warm-ups have caught up: {', '.join(map(str, sorted(ready)))}")

    def _is_ready(self, task: TaskId) -> bool:
        if task in self.tasks.closing or not self.may_commit([task]):
            return False
        copy = self.process.directory.copies.get(task)
        return not self._logs[task].is_stateful or (copy is not None and copy.holder == self.name and copy.follows)

    def stop_running(self) -> None:
        """The process stops in the middle of a batch."""
        self._handle(BatchLost(reason="the process has stopped"))

    def _offset_sums(self) -> dict[TaskId, int]:
        """Offset sums of this thread's copies; the first thread adds those of copies that no thread holds."""
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
        if not self.has_ended:
            for instruction in self._handle(event):
                self._carry_out(instruction)
            self.process.thread_changed()

    def _handle(self, event: Event) -> tuple[Instruction, ...]:
        """Instructions for the event; a task that stops running has processed everything until now."""
        now_ms = self._agenda.now_ms
        self.tasks, instructions = handle(self.tasks, event, now_ms)
        running = self.tasks.running.difference(self.tasks.closing)
        for task in sorted(self.running - running):
            self._logs[task].stop(self.name, now_ms)
        self.running = running
        return instructions

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case RunTasks(active=active, standby=standby):
                for task in (*sorted(active), *sorted(standby)):
                    self._open(task, is_active=task in active)
                self.run_restored(self._agenda.now_ms)
            case CloseTasks():
                self._agenda.after(self._surroundings.release_ms, lambda: self._release(instruction))
            case CommitOffsets() | ForgetOffsets():
                pass  # what runs is committed at every moment
            case machine.ConfirmRevoked():
                self._group.revoked_all(self)
            case machine.RejoinNow(reason=reason):
                self._group.rejoin(self, reason)
            case machine.ScheduleRejoin(at_ms=at_ms):
                self._agenda.at(at_ms + 1, lambda: self.tell(TimePassed()))
            case machine.LeaveGroup():
                self.has_ended = True
                self._group.leave(self)
                self.process.thread_ended()
            case machine.ReportFatal(reason=reason) | machine.ShutDownApplication(reason=reason):
                raise AssertionError(f"{self.name}: {reason}")
            case _:
                assert_never(instruction)

    def _open(self, task: TaskId, *, is_active: bool) -> None:
        if not self._logs[task].is_stateful:
            return
        directory, now_ms = self.process.directory, self._agenda.now_ms
        held = directory.copies.get(task)
        if held is not None and held.closed_ms is None and held.holder != self.name:
            return  # another thread of this process is closing it; see _release
        directory.open(task, self.name, now_ms, now_ms + self._surroundings.restore_start_ms, is_awaited=is_active)

    def _release(self, closing: CloseTasks) -> None:
        self.process.when_awake(lambda: self._released(closing))

    def _released(self, closing: CloseTasks) -> None:
        if not self.has_ended:
            self._close(closing.tasks)
            self._step(TasksClosed(tasks=closing.tasks, kept=closing.kept))

    def _close(self, tasks: Iterable[TaskId]) -> None:
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
        if task in self.tasks.ids and task not in self.tasks.closing:
            self._open(task, is_active=task in self.tasks.active)
            self.run_restored(self._agenda.now_ms)


def _input(task: TaskId) -> TopicPartition:
    return TopicPartition(f"input-{task.subtopology}", task.partition)
