"""The log of a stream thread's tasks: a line for each that comes, changes its role or phase, is restored, or goes.

Decides the lines by comparing what was held before an event and after it, and how long things took; what happens to tasks is
``task.manager``'s. A task is the same one as long as its epoch is: one that was closed and taken up again by one event has two
lines.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidemill.ids import TaskId, TopicPartition
from tidemill.log_format import LogEvent, as_text
from tidemill.task.batch import Positions
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.standby import StandbyTask
from tidemill.task.tasks import BatchLost, BatchReported, BoundsFetched, Event, PositionsRead, Tasks, TasksClosed, ThreadEnded

log = logging.getLogger("tidemill.thread")

_Roles = Mapping[TaskId, ActiveTask | StandbyTask]
_SENTENCES = {Phase.RESTORING: "Initialized", Phase.RUNNING: "Restored and ready to run"}


@dataclass(frozen=True, slots=True)
class _Began:
    """Time at which a task took up its role or fell back in its phase, and the positions of its stores then, once known: a
    later line says how far it has come since."""

    at_s: float
    stores: Mapping[str, int] | None = None
    is_caught_up: bool = False


class TaskLog:
    """Hears of each change on the stream thread."""

    def __init__(self, thread: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._thread, self._now_s = thread, now_s
        self._said_by = f"stream-thread [{thread}]"
        self._began: dict[TaskId, _Began] = {}
        self._waits_since: float | None = None
        """Since when an active task does not run; None if all do."""

    def changed(self, before: Tasks, after: Tasks, event: Event) -> None:
        self._tell_roles(_roles(before), _roles(after), event)
        match event:
            case PositionsRead():
                for task, active in after.active.items():
                    if active.stores != before.active[task].stores:
                        self._began[task] = replace(self._began[task], stores=active.stores)
            case BatchReported(report=report):
                self._tell_standbys(after.standby)
                self._tell_phases(before.active, after.active, report.message)
            case BatchLost(reason=reason):
                self._tell_phases(before.active, after.active, reason)
            case BoundsFetched():
                self._tell_phases(before.active, after.active, "")
            case _:
                pass  # of the others there are only tasks that come, go or change their role
        self._tell_if_all_run(after.active)

    # --- roles -----------------------------------------------------------------------------------------------------

    def _tell_roles(self, before: _Roles, after: _Roles, event: Event) -> None:
        for task in sorted(before):
            if task not in after or after[task].epoch != before[task].epoch:
                self._tell_closed(before[task], _cause_of_closing(task, event))
        for task in sorted(after):
            was, now = before.get(task), after[task]
            if was is None or was.epoch != now.epoch:
                self._tell_assigned(now)
            elif isinstance(was, StandbyTask) and isinstance(now, ActiveTask):
                self._began[task] = _Began(self._now_s(), was.stores)
                stores = dict(was.stores or {})
                log.info(LogEvent("standby-promoted", task=task, thread=self._thread, lag=was.lag, stores=stores))
            elif isinstance(was, ActiveTask) and isinstance(now, StandbyTask):
                self._began[task] = _Began(self._now_s(), was.stores)
                log.info(LogEvent("task-demoted", task=task, thread=self._thread, stores=dict(was.stores or {})))

    def _tell_assigned(self, task: ActiveTask | StandbyTask) -> None:
        self._began[task.task] = _Began(self._now_s())
        event = "task-assigned" if isinstance(task, ActiveTask) else "standby-assigned"
        log.info(LogEvent(event, task=task.task, thread=self._thread))

    def _tell_closed(self, task: ActiveTask | StandbyTask, cause: str) -> None:
        role = "task" if isinstance(task, ActiveTask) else "standby"
        began = self._began.pop(task.task)
        log.info(
            LogEvent(f"{role}-closed", task=task.task, thread=self._thread, after_ms=self._since_ms(began), cause=cause)
        )

    # --- phases ----------------------------------------------------------------------------------------------------

    def _tell_phases(self, before: Mapping[TaskId, ActiveTask], after: Mapping[TaskId, ActiveTask], cause: str) -> None:
        for name, task in after.items():
            self._note_if_emptied(name, task.stores)
        for name, task in after.items():
            if before[name].phase is not task.phase:
                self._tell_transition(task, cause)
                if task.bounds is not None:
                    self._tell_gaps(name, task.stores, task.changelogs, task.bounds.changelog_begins)

    def _note_if_emptied(self, task: TaskId, at: Mapping[str, int] | None) -> None:
        """A restore begins again from the start of the changelog where stores were found broken in the middle of it."""
        began = self._began[task]
        if began.stores and at is not None and any(at.get(store, 0) < begin for store, begin in began.stores.items()):
            self._began[task] = replace(began, stores=dict(at))

    def _tell_transition(self, task: ActiveTask, cause: str) -> None:
        began = self._began[task.task]
        if task.phase is Phase.RESTORING:
            self._began[task.task] = replace(began, stores=dict(task.stores or {}))
        elif task.phase is Phase.CREATED:
            self._began[task.task] = _Began(self._now_s())
        sentence = _SENTENCES.get(task.phase)
        log.info(
            LogEvent(
                f"task-{task.phase.value}",
                says=f"{self._said_by} task [{task.task}] {sentence}" if sentence else "",
                task=task.task,
                thread=self._thread,
                after_ms=self._since_ms(began),
                stores=dict(task.stores or {}),
                cause=_cause_of_phase(task, cause),
            )
        )
        if task.phase is Phase.RUNNING and began.stores is not None:
            self._tell_restored(task, began.stores)

    def _tell_if_all_run(self, active: Mapping[TaskId, ActiveTask]) -> None:
        if any(task.phase is not Phase.RUNNING for task in active.values()):
            self._waits_since = self._now_s() if self._waits_since is None else self._waits_since
            return
        since_s, self._waits_since = self._waits_since, None
        if since_s is None or not active:
            return
        took_ms, tasks = round((self._now_s() - since_s) * 1e3), sorted(active)
        says = f"{self._said_by} Restoration took {took_ms} ms for all active tasks {as_text(tasks)}"
        log.info(LogEvent("restoration-over", says=says, thread=self._thread, took_ms=took_ms, tasks=tasks))

    def _tell_restored(self, task: ActiveTask, before: Mapping[str, int]) -> None:
        """Offsets, so transaction markers and compacted records count too."""
        after = task.stores or {}
        for store, partition in task.changelogs.items():
            begin, end = before.get(store, 0), after.get(store, 0)
            read = end - begin
            says = f"{self._said_by} Finished restoring changelog {partition} to store {store}"
            log.info(
                LogEvent(
                    "restored", says=says, task=task.task, store=store, changelog=partition, offsets=read, from_=begin, to=end
                )
            )

    def _tell_standbys(self, standbys: Mapping[TaskId, StandbyTask]) -> None:
        for name, held in standbys.items():
            self._note_if_emptied(name, held.stores)
            began = self._began[name]
            if began.stores is None and held.stores is not None:
                began = self._began[name] = replace(began, stores=dict(held.stores))
                if held.bounds is not None:
                    self._tell_gaps(name, began.stores, held.changelogs, held.bounds.begins)
            if held.lag == 0 and not began.is_caught_up:
                self._began[name] = replace(began, is_caught_up=True)
                read = sum((held.stores or {}).values()) - sum((began.stores or {}).values())
                after_ms = self._since_ms(began)
                log.info(LogEvent("standby-caught-up", task=name, thread=self._thread, offsets=read, after_ms=after_ms))

    def _tell_gaps(
        self, task: TaskId, stores: Mapping[str, int] | None, changelogs: Mapping[str, TopicPartition], begins: Positions
    ) -> None:
        """Logs records that a store lacks and its changelog no longer has: waiting for them would never end."""
        for store, partition in changelogs.items():
            at, begin = (stores or {}).get(store, 0), begins.get(partition, 0)
            if stores is not None and at < begin:
                log.warning(
                    LogEvent(
                        "changelog-cut",
                        task=task,
                        store=store,
                        changelog=partition,
                        position=at,
                        begin=begin,
                        problem="its first records were deleted: the store is without them",
                    )
                )

    def _since_ms(self, began: _Began) -> int:
        return round((self._now_s() - began.at_s) * 1e3)


def _roles(tasks: Tasks) -> _Roles:
    return {**tasks.active, **tasks.standby}


def _cause_of_closing(task: TaskId, event: Event) -> str:
    if isinstance(event, TasksClosed):
        return event.tasks[task]
    assert isinstance(event, ThreadEnded)
    return event.reason


def _cause_of_phase(task: ActiveTask, cause: str) -> str:
    """Why a task is in its phase."""
    if task.phase is Phase.RUNNING:
        return "its stores are at their changelogs' ends" if task.changelogs else "its offsets are known"
    if task.phase is Phase.RESTORING:
        return f"its stores lack offsets of {len(task.restore_from())} changelogs"
    return cause or "its stores are not part of their changelogs"
