"""A stream thread's tasks as one value, the events that change it and the instructions that follow.

Has the types only; ``task.manager`` decides. Everything is immutable: other threads read the value of a moment while the next one
is made.

A task is in exactly one of two tables, ``active`` and ``standby``, which have what batches need to know of it. The member's state
has what the group needs to know of the same tasks: their role, and whether they are being released. ``violations`` checks that
the tables and the member's state agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tidemill.ids import TaskId, TopicPartition
from tidemill.membership import member_state as machine
from tidemill.membership.member_state import Hold, MemberConfig, MemberState, Role, new_member
from tidemill.task.batch import BatchReport, Positions
from tidemill.task.lifecycle import ActiveTask, Bounds, Phase
from tidemill.task.partition_time import Times
from tidemill.task.standby import StandbyBounds, StandbyTask


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLayout:
    """The topology's layout of each sub-topology's tasks: changelog topics by store, and whether it has stores at all.

    ``directory``: the application's state directory; a task's stores lie in a folder of its id below it.
    """

    changelogs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    has_stores: frozenset[int] = frozenset()
    directory: str = ""

    def path(self, task: TaskId) -> str:
        return f"{self.directory}/{task}"

    def changelogs_of(self, task: TaskId) -> dict[str, TopicPartition]:
        """Changelog partitions of a task by store."""
        topics = self.changelogs.get(task.subtopology, {})
        return {store: TopicPartition(topic, task.partition) for store, topic in topics.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """All tasks of a stream thread.

    ``closing``: tasks whose stores are being closed, and why; no batch works on them any more. ``session`` and ``epochs`` make
    the epochs of tasks: ``session`` belongs to this thread only, ``epochs`` counts up. ``story``: the last events, with the time
    of each in ms, for errors.
    """

    layout: TaskLayout
    member: MemberState
    active: Mapping[TaskId, ActiveTask] = field(default_factory=dict)
    standby: Mapping[TaskId, StandbyTask] = field(default_factory=dict)
    closing: Mapping[TaskId, str] = field(default_factory=dict)
    session: str = ""
    epochs: int = 0
    story: tuple[tuple[int, Event], ...] = field(default=(), compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby)

    @property
    def ids(self) -> frozenset[TaskId]:
        return frozenset((*self.active, *self.standby))

    @property
    def at_work(self) -> tuple[dict[TaskId, ActiveTask], dict[TaskId, StandbyTask]]:
        """The active tasks and the standbys that batches work on: all that are not closing."""
        return (
            {name: task for name, task in self.active.items() if name not in self.closing},
            {name: task for name, task in self.standby.items() if name not in self.closing},
        )

    @property
    def running(self) -> frozenset[TaskId]:
        """Active tasks that have been restored."""
        return frozenset(name for name, task in self.active.items() if task.phase is Phase.RUNNING)

    @property
    def times(self) -> Times:
        """The partition times of all inputs that are read."""
        return {tp: time for task in self.active.values() for tp, time in task.times.items()}

    def inputs(self, tasks: Collection[TaskId]) -> frozenset[TopicPartition]:
        """Input partitions of the active tasks."""
        return frozenset(tp for task in tasks if task in self.active for tp in self.active[task].inputs)

    def offset_sums(self) -> dict[TaskId, int | None]:
        """The sum of the changelog positions of each task that has changelogs; None while its worker has not reported them."""
        stores: dict[TaskId, Mapping[str, int] | None] = {name: task.stores for name, task in self.standby.items()}
        stores.update({name: task.stores for name, task in self.active.items() if task.changelogs})
        return {name: None if at is None else sum(at.values()) for name, at in stores.items()}


def no_tasks(config: MemberConfig, layout: TaskLayout, session: str = "") -> Tasks:
    """The tasks of a thread that has not joined yet. ``session``: different for each thread that ever opens these stores."""
    return Tasks(layout=layout, member=new_member(config), session=session)


def is_other_phase(before: Tasks, after: Tasks) -> bool:
    """True if an active task is in another phase than before, or a standby's stores have been opened; of tasks in both."""
    phases = (before.active[name].phase is not task.phase for name, task in after.active.items() if name in before.active)
    opened = (
        task.stores is not None and before.standby[name].stores is None
        for name, task in after.standby.items()
        if name in before.standby
    )
    return any(phases) or any(opened)


def violations(tasks: Tasks) -> list[str]:
    """Violated invariants of ``tasks``, one sentence each; none, whatever events have come."""
    held, found = tasks.member.held, []
    for task in sorted(tasks.active.keys() & tasks.standby.keys()):
        found.append(f"{task} is active and standby")
    for task in sorted(tasks.ids ^ held.keys()):
        found.append(f"{task} is {'held' if task in held else 'worked on'} only")
    for task in sorted(tasks.closing.keys() - held.keys()):
        found.append(f"{task} is closing but not held")
    for task, had in held.items():
        is_kept_open = had.role is Role.ACTIVE and had.hold is Hold.RELEASING and task in tasks.standby
        if had.hold is Hold.OPEN and task in tasks.closing:
            found.append(f"{task} is closing, and the member counts on it")
        if had.hold is not Hold.OPEN and task not in tasks.closing and not is_kept_open:
            found.append(f"{task} is to be given up, and is not closing")
        if had.hold is Hold.OPEN and task not in (tasks.active if had.role is Role.ACTIVE else tasks.standby):
            found.append(f"{task} is {had.role.value} for the group and not here")
    epochs = [task.epoch for task in tasks.active.values()] + [task.epoch for task in tasks.standby.values()]
    if len(set(epochs)) < len(epochs):
        found.append(f"epochs twice: {sorted(epochs)}")
    return found


# --- events: the group's and the user's (``membership.member_state``), and these ------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksClosed:
    """The answer to a CloseTasks, with its values: the stores of ``tasks`` are closed, no batch works on ``kept`` as actives."""

    tasks: Mapping[TaskId, str] = field(default_factory=dict)
    kept: frozenset[TaskId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsRead:
    """Positions at which stores of tasks that are new here were left on this machine; absent if unknown."""

    stores: Mapping[TaskId, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsFetched:
    """Start offsets of these active tasks."""

    bounds: Mapping[TaskId, Bounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyBoundsFetched:
    """First and end offsets of these standbys' changelogs."""

    bounds: Mapping[TaskId, StandbyBounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsFetched:
    """Limits up to which source topics that serve as changelogs may be followed."""

    committed: Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReported:
    """A micro-batch has ended, and its worker says how."""

    report: BatchReport


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLost:
    """The outcome of a micro-batch is unknown, or nothing of it was committed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadEnded:
    """No batch runs any more: its workers have closed the stores, or are about to die."""

    reason: str


GroupEvent: TypeAlias = (
    machine.Assigned
    | machine.MembershipLost
    | machine.RevokeAllRequested
    | machine.TimePassed
    | machine.ApplicationShutdownRequested
    | machine.DrainRequested
    | machine.TopicsAdded
    | machine.CloseRequested
)
"""Events of the member from outside; TasksReleased is sent by the manager to the member's state machine."""

Event: TypeAlias = (
    GroupEvent
    | TasksClosed
    | PositionsRead
    | BoundsFetched
    | StandbyBoundsFetched
    | LimitsFetched
    | BatchReported
    | BatchLost
    | ThreadEnded
)


# --- instructions, to be carried out in the order given ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Commit what is processed; then forget what is left of ``partitions``, which get another owner."""

    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOffsets:
    """Commit nothing of what is processed: it is not this member's to commit any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseTasks:
    """End all work on ``tasks`` and close their stores, then report TasksClosed with the same values.

    ``tasks``: with the reason for each. ``kept``: active until now; their stores stay open for the standbys that they become.
    ``have_stores``: a worker may have something of ``tasks`` open.
    """

    tasks: Mapping[TaskId, str]
    kept: frozenset[TaskId] = frozenset()
    have_stores: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTasks:
    """Batches work on these tasks from now on, in these roles.

    ``new``: those that were not here before in any role; report in a PositionsRead where their stores were left on this machine,
    so that the first batch need not only open them.
    """

    active: frozenset[TaskId]
    standby: frozenset[TaskId]
    new: frozenset[TaskId]


Instruction: TypeAlias = (
    CommitOffsets
    | ForgetOffsets
    | CloseTasks
    | RunTasks
    | machine.RejoinNow
    | machine.ScheduleRejoin
    | machine.ConfirmRevoked
    | machine.ShutDownApplication
    | machine.ReportFatal
    | machine.LeaveGroup
)
