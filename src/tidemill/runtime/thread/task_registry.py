"""The tasks that a stream thread has, active and standby, and the log of what becomes of them.

Keeps the values of ``task.lifecycle`` and ``task.standby`` and turns the member's instructions into changes of them. A task
that changes its role keeps its stores open: its epoch stays, so the worker closes nothing. The tables are replaced, never
changed, so any thread may read them. What a batch does for the tasks is decided by ``task``, when one runs by the stream thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from uuid import uuid4

from tidemill.ids import TaskId, TopicPartition
from tidemill.log_format import LogEvent
from tidemill.membership.member_state import AssignTasks
from tidemill.runtime.instance.local_state import LocalState
from tidemill.runtime.observe.restore_watch import RestoreWatch
from tidemill.runtime.thread.start_offsets import TaskFacts
from tidemill.task import lifecycle, standby
from tidemill.task.batch import BatchReport, Positions
from tidemill.task.lifecycle import ActiveTask, Bounds, Phase
from tidemill.task.partition_time import Times
from tidemill.task.progress import Restored
from tidemill.task.standby import StandbyBounds, StandbyTask

log = logging.getLogger("tidemill.thread")


class HeldTasks:
    """``active`` and ``standby`` by task. Changed by the stream thread only."""

    def __init__(self, thread: str, facts: TaskFacts, local: LocalState, watch: RestoreWatch) -> None:
        self._thread, self._facts, self._local, self._watch = thread, facts, local, watch
        self.active: Mapping[TaskId, ActiveTask] = {}
        self.standby: Mapping[TaskId, StandbyTask] = {}
        self._began: dict[TaskId, tuple[float, Mapping[str, int] | None]] = {}
        """When a task took up its role, and where its stores were, once known: what a later line tells the way from."""
        self._caught_up: set[TaskId] = set()
        self._waiting: frozenset[TaskId] = frozenset()
        """Another thread of the instance has not closed their stores yet."""

    def __bool__(self) -> bool:
        return bool(self.active or self.standby)

    @property
    def times(self) -> Times:
        """The partition times of all inputs that are read."""
        return {tp: time for task in self.active.values() for tp, time in task.times.items()}

    def inputs(self, tasks: Collection[TaskId]) -> frozenset[TopicPartition]:
        """What those of these tasks that are active read."""
        return frozenset(tp for task in tasks if task in self.active for tp in self.active[task].inputs)

    # --- what the member is told -----------------------------------------------------------------------------------

    def take_up(self, told: AssignTasks) -> None:
        active, standbys = dict(self.active), dict(self.standby)
        self._local.holds(self._thread, {*active, *standbys, *told.active, *told.standby})
        for task, partitions in told.active.items():
            warm = standbys.pop(task, None)
            if warm is None:
                active[task] = self._new_active(task, partitions)
                self._began_now(task, active[task].stores)
                log.info(LogEvent("task-assigned", task=task, thread=self._thread))
            else:
                active[task] = standby.promoted(warm, partitions)
                self._began_now(task, warm.stores)
                log.info(
                    LogEvent("standby-promoted", task=task, thread=self._thread, lag=warm.lag, stores=dict(warm.stores or {}))
                )
        for task in told.standby:
            if task not in standbys:  # one that was active until now is there already
                standbys[task] = self._new_standby(task)
                self._began_now(task, None)
                log.info(LogEvent("standby-assigned", task=task, thread=self._thread))
        self.active, self.standby = active, standbys
        self._look()

    def demote(self, tasks: Collection[TaskId]) -> None:
        """Committed, and no batch reads for them any more: their stores go on as standbys'."""
        for task in sorted(tasks):
            held = self.active[task]
            self.active = {name: other for name, other in self.active.items() if name != task}
            self.standby = {**self.standby, task: standby.demoted(held)}
            self._began_now(task, held.stores)
            log.info(LogEvent("task-demoted", task=task, thread=self._thread, stores=dict(held.stores or {})))
        self._look()

    def without(self, tasks: Collection[TaskId]) -> tuple[dict[TaskId, ActiveTask], dict[TaskId, StandbyTask]]:
        """What is left when these are given up."""
        return (
            {name: task for name, task in self.active.items() if name not in tasks},
            {name: task for name, task in self.standby.items() if name not in tasks},
        )

    def have_stores(self, tasks: Collection[TaskId]) -> bool:
        """Whether a worker may have something of theirs open."""
        return any(task in self.standby or (task in self.active and self.active[task].directory) for task in tasks)

    def to_open(self) -> frozenset[TaskId]:
        """What a batch may work on: all that no other thread of the instance still has open."""
        held = {*self.active, *self.standby}
        may_open = self._local.opens(self._thread, held)
        waiting = frozenset(held - may_open)
        if waiting - self._waiting:
            log.info(LogEvent("tasks-wait", thread=self._thread, tasks=sorted(waiting), cause="another thread has them open"))
        self._waiting = waiting
        return may_open

    def drop(self, tasks: Collection[TaskId], cause: str) -> None:
        """Their stores are closed."""
        self._tell_closed(tasks, cause)
        self.active, self.standby = self.without(tasks)
        self._local.holds(self._thread, {*self.active, *self.standby})
        self._look()

    def _tell_closed(self, tasks: Collection[TaskId], cause: str) -> None:
        for task in sorted(tasks):
            role = "task" if task in self.active else "standby"
            began_s, _ = self._began.pop(task, (time.monotonic(), None))
            log.info(
                LogEvent(
                    f"{role}-closed",
                    task=task,
                    thread=self._thread,
                    after_ms=round((time.monotonic() - began_s) * 1e3),
                    cause=cause,
                )
            )
            self._caught_up.discard(task)

    def end(self) -> None:
        """The thread ends: no batch runs any more, its worker closes the stores or dies."""
        self._tell_closed([*self.active, *self.standby], "the thread ends")
        self.active, self.standby = {}, {}
        self._watch.end()

    def _look(self, restored: Restored | None = None) -> None:
        self._watch.look(self.active, self.standby, restored)

    def _new_active(self, task: TaskId, partitions: Sequence[TopicPartition]) -> ActiveTask:
        return ActiveTask(
            task=task,
            directory=self._path(task) if task.subtopology in self._facts.has_stores else "",
            epoch=str(uuid4()),
            inputs=tuple(sorted(partitions)),
            changelogs=self._changelogs(task),
            stores=self._left_at(task),
        )

    def _new_standby(self, task: TaskId) -> StandbyTask:
        return StandbyTask(
            task=task,
            directory=self._path(task),
            epoch=str(uuid4()),
            changelogs=self._changelogs(task),
            stores=self._left_at(task),
        )

    def _left_at(self, task: TaskId) -> Mapping[str, int] | None:
        """What the worker checks when it opens them (rule 15)."""
        found = self._local.positions(self._thread, task)
        return found if found is not None and found.keys() == self._changelogs(task).keys() else None

    def _path(self, task: TaskId) -> str:
        return str(self._local.directory.task_path(task))

    def _changelogs(self, task: TaskId) -> dict[str, TopicPartition]:
        topics = self._facts.changelogs.get(task.subtopology, {})
        return {store: TopicPartition(topic, task.partition) for store, topic in topics.items()}

    # --- what batches and brokers tell; each says whether a phase has changed, or stores were opened ----------------------

    def reported(self, report: BatchReport) -> bool:
        before, self.standby = self.standby, standby.reported(self.standby, report)
        self._tell_standbys()
        has_opened = any(held.stores is not None and before[name].stores is None for name, held in self.standby.items())
        has_changed = self._changed_to(lifecycle.reported(self.active, report), report.message)
        self._look(report.restored)
        return has_changed or has_opened

    def have_written(self, report: BatchReport) -> bool:
        """Whether the batch has read anything whose results go to topics of the user's."""
        writing = [task for name, task in self.active.items() if name.subtopology in self._facts.has_output]
        return any(partition in report.arrived for task in writing for partition in task.inputs)

    def lost(self, cause: str) -> bool:
        self.standby = standby.lost(self.standby)
        has_changed = self._changed_to(lifecycle.lost(self.active), cause)
        self._look()
        return has_changed

    def bounds_fetched(self, found: Mapping[TaskId, Bounds]) -> bool:
        has_changed = self._changed_to(lifecycle.bounds_fetched(self.active, found), "")
        self._look()
        return has_changed

    def standby_bounds_fetched(self, found: Mapping[TaskId, StandbyBounds]) -> None:
        self.standby = standby.bounds_fetched(self.standby, found)
        self._look()

    def limits_fetched(self, committed: Positions) -> None:
        self.standby = standby.limited(self.standby, committed)

    def offset_sums(self) -> tuple[dict[TaskId, int], frozenset[TaskId]]:
        """Any thread, at a join: the offset sums that this thread answers for, and which of its tasks run."""
        active, standbys = self.active, self.standby
        held = {**{n: t.stores for n, t in standbys.items()}, **{n: t.stores for n, t in active.items() if t.changelogs}}
        known = {name: None if stores is None else sum(stores.values()) for name, stores in held.items()}
        running = frozenset(name for name, task in active.items() if task.phase is Phase.RUNNING)
        return self._local.joins(self._thread, known), running

    # --- the log ---------------------------------------------------------------------------------------------------

    def _changed_to(self, after: Mapping[TaskId, ActiveTask], cause: str) -> bool:
        before, self.active = self.active, after
        for name, task in after.items():
            self._note_if_emptied(name, task.stores)
        changed = [name for name, task in after.items() if before[name].phase is not task.phase]
        for name in changed:
            self._tell_transition(after[name], cause)
            bounds = after[name].bounds
            if bounds is not None:
                self._tell_gaps(name, after[name].stores, after[name].changelogs, bounds.changelog_begins)
        return bool(changed)

    def _note_if_emptied(self, task: TaskId, at: Mapping[str, int] | None) -> None:
        """A restore begins again from the start of the changelog where stores were found broken in the middle of it."""
        began_s, stores = self._began[task]
        if stores and at is not None and any(at.get(store, 0) < begin for store, begin in stores.items()):
            self._began[task] = began_s, dict(at)

    def _tell_transition(self, task: ActiveTask, cause: str) -> None:
        began_s, stores = self._began[task.task]
        if task.phase is Phase.RESTORING:
            self._began[task.task] = began_s, dict(task.stores or {})
        elif task.phase is Phase.CREATED:
            self._began_now(task.task, None)
        log.info(
            LogEvent(
                f"task-{task.phase.value}",
                task=task.task,
                thread=self._thread,
                after_ms=round((time.monotonic() - began_s) * 1e3),
                stores=dict(task.stores or {}),
                cause=_cause_of(task, cause),
            )
        )
        if task.phase is Phase.RUNNING and stores is not None:
            self._tell_restored(task, stores)

    def _tell_restored(self, task: ActiveTask, before: Mapping[str, int]) -> None:
        """Offsets, so transaction markers and compacted records count too."""
        after = task.stores or {}
        for store, partition in task.changelogs.items():
            begin, end = before.get(store, 0), after.get(store, 0)
            read = end - begin
            log.info(LogEvent("restored", task=task.task, store=store, changelog=partition, offsets=read, from_=begin, to=end))

    def _tell_standbys(self) -> None:
        for name, held in self.standby.items():
            self._note_if_emptied(name, held.stores)
            began_s, stores = self._began[name]
            if stores is None and held.stores is not None:
                stores = dict(held.stores)
                self._began[name] = began_s, stores
                if held.bounds is not None:
                    self._tell_gaps(name, stores, held.changelogs, held.bounds.begins)
            if held.lag == 0 and name not in self._caught_up:
                self._caught_up.add(name)
                read = sum((held.stores or {}).values()) - sum((stores or {}).values())
                after_ms = round((time.monotonic() - began_s) * 1e3)
                log.info(LogEvent("standby-caught-up", task=name, thread=self._thread, offsets=read, after_ms=after_ms))

    def _tell_gaps(
        self, task: TaskId, stores: Mapping[str, int] | None, changelogs: Mapping[str, TopicPartition], begins: Positions
    ) -> None:
        """What a store lacks and its changelog no longer has: it can't come back, and waiting for it would never end."""
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

    def _began_now(self, task: TaskId, stores: Mapping[str, int] | None) -> None:
        self._began[task] = time.monotonic(), stores
        self._caught_up.discard(task)


def _cause_of(task: ActiveTask, cause: str) -> str:
    """Why a task is in its phase."""
    if task.phase is Phase.RUNNING:
        return "its stores are at their changelogs' ends" if task.changelogs else "its offsets are known"
    if task.phase is Phase.RESTORING:
        return f"its stores lack offsets of {len(task.restore_from())} changelogs"
    return cause or "its stores are not part of their changelogs"
