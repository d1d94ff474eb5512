"""A stream thread's task manager: ``handle(tasks, event, now_ms) -> (tasks', instructions)``. No I/O, no clock.

    event                    what follows
    of the group             the member's machine decides which tasks come and go (``membership.member``); the tables follow
    TasksClosed              the tasks are closed; the member's machine is notified, and may start tasks that waited for it
    PositionsRead            new tasks know where their stores are, if those are theirs
    BoundsFetched,           the phases of active tasks (``task.lifecycle``), and what standbys follow (``task.standby``)
    StandbyBoundsFetched,
    LimitsFetched,
    BatchReported, BatchLost
    ThreadEnded              nothing is held any more

Rules
1. A task is held until its stores are closed, and a worker's answer, or its death, is the only proof of that (correctness.md,
   rule 12). Closing is an instruction, CloseTasks; the proof is an event, TasksClosed; between the two the task is ``closing``:
   still claimed, in no batch.
2. What goes in one step is closed by one batch: actives that are revoked and standbys that are no longer wanted here.
3. Offsets are committed before the stores are closed, and never after a loss of membership.
4. A task that changes its role keeps its epoch, so the worker closes nothing. An active one that becomes a standby is no active
   from the moment when it is revoked; it is closed after all if it is no longer wanted here when that is done.
5. A proof of something that is not closing, or an unknown event, is a fault of this library: it raises, with the last events.

Invariant: ``tasks.violations`` finds nothing after any event. Sources: TaskManager, StreamThread of Kafka Streams; KIP-429.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tidemill.errors import UnexpectedEventError, assert_never
from tidemill.ids import TaskId
from tidemill.membership import member_state as machine
from tidemill.membership.member import step
from tidemill.membership.member_state import Hold, TasksReleased
from tidemill.task import lifecycle, standby
from tidemill.task.lifecycle import ActiveTask
from tidemill.task.standby import StandbyTask
from tidemill.task.tasks import (
    BatchLost,
    BatchReported,
    BoundsFetched,
    CloseTasks,
    CommitOffsets,
    Event,
    ForgetOffsets,
    Instruction,
    LimitsFetched,
    PositionsRead,
    RunTasks,
    StandbyBoundsFetched,
    Tasks,
    TasksClosed,
    ThreadEnded,
)

REVOKED, NOT_ASSIGNED = "revoked", "not assigned any more"
"""Why a task is closed: an active one, a standby."""

_STORY_LENGTH = 20
_LONGEST_LINE = 300

Handled: TypeAlias = tuple[Tasks, tuple[Instruction, ...]]


def handle(tasks: Tasks, event: Event, now_ms: int) -> Handled:
    """The tasks after ``event``, and what to do about it, in this order. ``now_ms``: since 1970.

    Raises UnexpectedEventError by rule 5; the tasks are as they were then.
    """
    try:
        after, instructions = _handled(tasks, event, now_ms)
    except UnexpectedEventError as problem:
        raise UnexpectedEventError(f"{problem}; {_story(tasks)}") from problem
    if isinstance(event, machine.TimePassed) and not instructions:
        return after, instructions  # there are ten of them a second
    return replace(after, story=(*tasks.story[1 - _STORY_LENGTH :], (now_ms, event))), instructions


def _handled(tasks: Tasks, event: Event, now_ms: int) -> Handled:
    match event:
        case (
            machine.Assigned()
            | machine.MembershipLost()
            | machine.RevokeAllRequested()
            | machine.TimePassed()
            | machine.ApplicationShutdownRequested()
            | machine.DrainRequested()
            | machine.TopicsAdded()
            | machine.CloseRequested()
        ):
            return _stepped(tasks, event, now_ms)
        case TasksClosed():
            return _closed(tasks, event, now_ms)
        case PositionsRead(stores=stores):
            return _with_positions(tasks, stores), ()
        case BoundsFetched(bounds=bounds):
            return replace(tasks, active=lifecycle.bounds_fetched(tasks.active, bounds)), ()
        case StandbyBoundsFetched(bounds=standby_bounds):
            return replace(tasks, standby=standby.bounds_fetched(tasks.standby, standby_bounds)), ()
        case LimitsFetched(committed=committed):
            return replace(tasks, standby=standby.limited(tasks.standby, committed)), ()
        case BatchReported(report=report):
            active, standbys = lifecycle.reported(tasks.active, report), standby.reported(tasks.standby, report)
            return replace(tasks, active=active, standby=standbys), ()
        case BatchLost():
            return replace(tasks, active=lifecycle.lost(tasks.active), standby=standby.lost(tasks.standby)), ()
        case ThreadEnded():
            member = replace(tasks.member, phase=machine.MemberPhase.ENDED, held={}, active={}, standby={})
            return replace(tasks, member=member, active={}, standby={}, closing={}), ()
        case _:
            return assert_never(event)


# --- what the member's machine says -------------------------------------------------------------------------------------


def _stepped(tasks: Tasks, event: machine.Event, now_ms: int) -> Handled:
    """Passes the event to the member's machine, and follows its instructions."""
    member, instructions = step(tasks.member, event, now_ms)
    if member is tasks.member and not instructions:
        return tasks, ()
    return _followed(replace(tasks, member=member), instructions)


def _followed(tasks: Tasks, instructions: Sequence[machine.Instruction]) -> Handled:
    """The tables after the instructions of the member's machine, and the thread's own instructions."""
    found: list[Instruction] = []
    going: dict[TaskId, str] = {}
    kept: frozenset[TaskId] = frozenset()
    for instruction in instructions:
        # Rule 2: revoked tasks and unwanted standbys are collected, and closed before anything else is done.
        if (going or kept) and not isinstance(instruction, machine.RevokeTasks | machine.CloseStandbys):
            tasks, close = _close(tasks, going, kept)
            found.append(close)
            going, kept = {}, frozenset()
        match instruction:
            case machine.RevokeTasks(tasks=revoked, becomes_standby=kept):
                found.append(CommitOffsets(partitions=tasks.inputs(revoked)))
                tasks = _demoted(tasks, kept)
                going |= dict.fromkeys(sorted(revoked - kept), REVOKED)
            case machine.CloseStandbys(tasks=unwanted):
                going |= dict.fromkeys(sorted(unwanted), NOT_ASSIGNED)
            case machine.GiveUpTasks(tasks=lost, reason=reason):
                found.append(ForgetOffsets())  # rule 3: they may have another owner by now, whose commits ours would set back
                going |= {task: reason for task in sorted(lost) if task not in tasks.closing}
            case machine.AssignTasks(active=active, standby=standbys):
                tasks, opened = _opened(tasks, active, standbys)
                found.append(opened)
            case (
                machine.RejoinNow()
                | machine.ScheduleRejoin()
                | machine.ConfirmRevoked()
                | machine.ShutDownApplication()
                | machine.ReportFatal()
                | machine.LeaveGroup()
            ):
                found.append(instruction)
            case _:
                assert_never(instruction)
    if going or kept:
        tasks, close = _close(tasks, going, kept)
        found.append(close)
    return tasks, tuple(found)


def _close(tasks: Tasks, going: Mapping[TaskId, str], kept: frozenset[TaskId]) -> tuple[Tasks, CloseTasks]:
    """Stores count as open also if no task is left to run: an empty batch makes the readers release their partitions."""
    tasks = replace(tasks, closing={**tasks.closing, **going})
    have_stores = any(task in tasks.standby or tasks.active[task].directory for task in going) or not any(tasks.at_work)
    return tasks, CloseTasks(tasks=going, kept=kept, have_stores=have_stores)


def _demoted(tasks: Tasks, becoming: frozenset[TaskId]) -> Tasks:
    active = {name: task for name, task in tasks.active.items() if name not in becoming}
    standbys = {name: standby.demoted(tasks.active[name]) for name in sorted(becoming)}
    return replace(tasks, active=active, standby={**tasks.standby, **standbys})


def _opened(
    tasks: Tasks, active: machine.TasksWithPartitions, standbys: machine.TasksWithPartitions
) -> tuple[Tasks, RunTasks]:
    """New tasks are created. A standby that becomes active keeps its stores; an active one that becomes a standby is one already
    (``_demoted``)."""
    here = tasks.ids
    actives, copies, layout, epochs = dict(tasks.active), dict(tasks.standby), tasks.layout, tasks.epochs
    for task, partitions in active.items():
        warm = copies.pop(task, None)
        if warm is not None:
            actives[task] = standby.promoted(warm, partitions)
            continue
        epochs += 1
        actives[task] = ActiveTask(
            task=task,
            directory=layout.path(task) if task.subtopology in layout.has_stores else "",
            epoch=f"{tasks.session}-{epochs}",
            inputs=tuple(sorted(partitions)),
            changelogs=layout.changelogs_of(task),
        )
    for task in sorted(standbys.keys() - copies.keys()):
        epochs += 1
        copies[task] = StandbyTask(
            task=task, directory=layout.path(task), epoch=f"{tasks.session}-{epochs}", changelogs=layout.changelogs_of(task)
        )
    named = RunTasks(
        active=frozenset(active), standby=frozenset(standbys), new=frozenset((*active, *standbys)) - here
    )
    return replace(tasks, active=actives, standby=copies, epochs=epochs), named


# --- what the stream thread reports -------------------------------------------------------------------------------------


def _closed(tasks: Tasks, event: TasksClosed, now_ms: int) -> Handled:
    """Rules 1 and 4. A task that was kept open and has been lost since is closing by now; a later event is its proof."""
    wrong = sorted(event.tasks.keys() - tasks.closing.keys())
    if wrong:
        raise UnexpectedEventError(f"expected the proof of tasks that are closing, found one of {_ids(wrong)}")
    kept = [task for task in sorted(event.kept) if _is_kept_open(tasks, task)]
    wanted = tasks.member.active.keys() | tasks.member.standby.keys()
    unwanted = {task: NOT_ASSIGNED for task in kept if task not in wanted}
    gone = event.tasks.keys()
    tasks = replace(
        tasks,
        active={name: task for name, task in tasks.active.items() if name not in gone},
        standby={name: task for name, task in tasks.standby.items() if name not in gone},
        closing={name: cause for name, cause in tasks.closing.items() if name not in gone},
    )
    closing: tuple[Instruction, ...] = ()
    if unwanted:
        tasks, close = _close(tasks, unwanted, frozenset())
        closing = (close,)
    released = frozenset(gone).union(kept).difference(unwanted)
    tasks, more = _stepped(tasks, TasksReleased(tasks=released), now_ms)
    return tasks, (*closing, *more)


def _is_kept_open(tasks: Tasks, task: TaskId) -> bool:
    had = tasks.member.held.get(task)
    return had is not None and had.hold is Hold.RELEASING and task not in tasks.closing


def _with_positions(tasks: Tasks, found: Mapping[TaskId, Mapping[str, int]]) -> Tasks:
    """A worker checks them when it opens the stores (correctness.md, rule 15); other stores' positions are ignored."""
    active = {
        name: replace(task, stores=found[name]) if _are_its_own(task, found.get(name)) else task
        for name, task in tasks.active.items()
    }
    standbys = {
        name: replace(task, stores=found[name]) if _are_its_own(task, found.get(name)) else task
        for name, task in tasks.standby.items()
    }
    return replace(tasks, active=active, standby=standbys)


def _are_its_own(task: ActiveTask | StandbyTask, found: Mapping[str, int] | None) -> bool:
    is_new = task.stores is None and task.bounds is None and not task.wipe
    return is_new and found is not None and found.keys() == task.changelogs.keys()


# --- the story ----------------------------------------------------------------------------------------------------------


def _story(tasks: Tasks) -> str:
    """The tasks held, and the last events, the newest last."""
    story = "\n".join(f"  {at_ms} {repr(event)[:_LONGEST_LINE]}" for at_ms, event in tasks.story) or "  none"
    return (
        f"active {_ids(tasks.active)}, standby {_ids(tasks.standby)}, closing {_ids(tasks.closing)}. "
        f"This is a fault of Tidemill: report it with the events before it, times in ms:\n{story}"
    )


def _ids(tasks: Iterable[TaskId]) -> str:
    return ", ".join(map(str, sorted(tasks))) or "none"
