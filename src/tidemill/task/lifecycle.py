"""The life of an active task on its stream thread, as values: opened, restored, running, gone.

    CREATED     assigned; stores not open yet, offsets not fetched
    RESTORING   stores open and behind the changelog's end
    RUNNING     its inputs are read

    event              CREATED            RESTORING          RUNNING
    offsets fetched    same, with bounds  same, new bounds   -
    stores reported    RESTORING/RUNNING  RUNNING at bounds  same
    stores behind      RESTORING          RESTORING          CREATED (fetches its offsets)
    batch lost         same               same               CREATED (fetches its offsets)
    changelog out of   same               CREATED (fetches   -
    range                                 its offsets)

If a task was a standby on this instance (``standby``), or its stores are still here from before, the positions of its stores are
known from the beginning. Then only its offsets must be fetched, and the worker compares the positions with the files (rule 15).

Decides phases, what a batch reads for each task, and which tasks wait for offsets; the stream thread fetches these. The order is
rule 10 of correctness.md: old owner fenced, committed offsets stable, end of the changelog, restore up to it, only then run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from tidemill.ids import TaskId, TopicPartition
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, Positions, StorePositions, TaskRun, times_after
from tidemill.task.partition_time import PartitionTime, Times, keeping


class Phase(Enum):
    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Offsets fetched for a task that was taken over: the committed positions and times of its inputs, the beginnings and ends
    of its changelogs. ``limits``: for source topics that serve as changelogs, the first offset that must not be restored, as the
    group has not processed it. Behind the end of any other changelog there are only transaction markers."""

    inputs: Mapping[TopicPartition, int]
    changelog_begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    changelog_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    limits: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic ids of the stores' changelogs."""
    times: Times = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveTask:
    """One task. ``changelogs``: store -> the partition that it is restored from; ``stores``: positions as last reported."""

    task: TaskId
    directory: str
    epoch: str
    inputs: tuple[TopicPartition, ...]
    changelogs: Mapping[str, TopicPartition]
    phase: Phase = Phase.CREATED
    bounds: Bounds | None = None
    stores: Mapping[str, int] | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """RUNNING: where its inputs are read next."""
    times: Times = field(default_factory=dict)
    """RUNNING: the highest timestamps of what was read of them."""
    wipe: bool = False
    """Its stores claim to be beyond their changelog: empty them before restoring."""
    demotions: int = 0
    """How often it has become a standby in this epoch."""

    @property
    def needs_bounds(self) -> bool:
        return self.bounds is None

    def restore_from(self) -> dict[TopicPartition, int]:
        """The changelog partitions that are not restored to their end, with the next offset to read."""
        if self.phase is not Phase.RESTORING or self.bounds is None:
            return {}
        found = {}
        for store, partition in self.changelogs.items():
            at = max((self.stores or {}).get(store, 0), self.bounds.changelog_begins.get(partition, 0))
            if at < self.bounds.changelog_ends.get(partition, 0):
                found[partition] = at
        return found

    @property
    def lacks(self) -> int:
        """Offsets that its stores are to be given before it runs."""
        if self.bounds is None:
            return 0
        ends = self.bounds.changelog_ends
        return sum(ends.get(partition, 0) - at for partition, at in self.restore_from().items())

    def to_run(self) -> TaskRun:
        """What a batch's workers need to know of it. While it is CREATED, they report its stores' positions."""
        return TaskRun(
            task=self.task,
            directory=self.directory,
            epoch=self.epoch,
            demotions=self.demotions,
            changelog=None if self.phase is Phase.CREATED else self.stores,
            wipe=self.wipe,
            topic_ids={} if self.bounds is None else self.bounds.topic_ids,
        )


Tasks = Mapping[TaskId, ActiveTask]


def nearly_restored(tasks: Tasks, offsets: int) -> frozenset[TaskId]:
    """Tasks that lack at most ``offsets`` records: they run after one batch that does not restore others."""
    return frozenset(name for name, task in tasks.items() if 0 < task.lacks <= offsets)


def is_foreign(position: int, *, begin: int, end: int) -> bool:
    """True if a store at ``position`` must be emptied, because its changelog goes from ``begin`` to ``end``: the store was made
    from another changelog, or records that it lacks are deleted."""
    return position > end or 0 < position < begin


def bounds_fetched(tasks: Tasks, found: Mapping[TaskId, Bounds]) -> dict[TaskId, ActiveTask]:
    """Tasks with what was fetched for them."""
    return {
        name: _moved_on(replace(task, bounds=found[name])) if name in found else task for name, task in tasks.items()
    }


def reported(tasks: Tasks, report: BatchReport) -> dict[TaskId, ActiveTask]:
    """The tasks after a batch."""
    stores = {at.task: at for at in report.stores}
    gone = frozenset(report.out_of_range)
    after = {
        name: _without_bounds(task, gone, report.truncated, _with_stores(task, stores[name]) if name in stores else task)
        for name, task in tasks.items()
    }
    if report.outcome is Outcome.LOST:
        return lost(after)
    if report.outcome is Outcome.COMMITTED:
        return {name: _read_on(task, report) if tasks[name].phase is Phase.RUNNING else task for name, task in after.items()}
    return after


def _without_bounds(
    before: ActiveTask, gone: frozenset[TopicPartition], truncated: Positions, task: ActiveTask
) -> ActiveTask:
    """If a changelog was read out of range, its bounds have changed: they are fetched again. If it was truncated, the stores have
    rows that it lacks."""
    if before.phase is Phase.RUNNING or gone.isdisjoint(task.changelogs.values()):
        return task
    if not truncated.keys().isdisjoint(task.changelogs.values()):
        return replace(task, phase=Phase.CREATED, bounds=None, stores=None, wipe=True)
    return replace(task, phase=Phase.CREATED, bounds=None)


def _read_on(task: ActiveTask, report: BatchReport) -> ActiveTask:
    stats = {tp: report.partition_stats[tp] for tp in task.inputs if tp in report.partition_stats}
    positions = {tp: report.ends.get(tp, offset) for tp, offset in task.positions.items()}
    times = keeping(times_after(task.times, stats), task.inputs, report.emitted.get(task.task, {}))
    return replace(task, positions=positions, times=times)


def lost(tasks: Tasks) -> dict[TaskId, ActiveTask]:
    """After a batch of which it is unknown whether it was committed: running tasks begin again at the committed offsets, with
    their stores as they are."""
    return {
        name: replace(task, phase=Phase.CREATED, bounds=None, stores=None) if task.phase is Phase.RUNNING else task
        for name, task in tasks.items()
    }


def _with_stores(task: ActiveTask, at: StorePositions) -> ActiveTask:
    if task.phase is Phase.RUNNING and at.is_behind:
        return replace(task, phase=Phase.CREATED, bounds=None, stores=dict(at.changelog), wipe=False)
    return _moved_on(replace(task, stores=dict(at.changelog), wipe=False))


def _moved_on(task: ActiveTask) -> ActiveTask:
    if task.phase is Phase.RUNNING or task.bounds is None:
        return task
    if task.changelogs and task.stores is None:
        return task  # a worker has yet to open the stores and report their positions
    # A task that is being restored may find markers behind the end that was fetched: its stores were judged before.
    for store, partition in task.changelogs.items() if task.phase is Phase.CREATED else ():
        at = (task.stores or {}).get(store, 0)
        begin, end = task.bounds.changelog_begins.get(partition, 0), task.bounds.changelog_ends.get(partition, 0)
        if is_foreign(at, begin=begin, end=end):
            return replace(task, phase=Phase.CREATED, stores=None, wipe=True)
    restoring = replace(task, phase=Phase.RESTORING)
    if restoring.restore_from():
        return restoring
    # Inputs are read from the committed offsets, never from a position that the stores imply (rule 10).
    return replace(task, phase=Phase.RUNNING, positions=dict(task.bounds.inputs), times=task.bounds.times)


def request(
    tasks: Tasks,
    *,
    batch_id: int,
    internal: frozenset[str],
    max_records: int,
    max_restore_records: int,
    wait_ms: int,
    now_ms: int,
    incarnation: int,
    max_bytes: int = 64 << 20,
    restore_only: frozenset[TaskId] = frozenset(),
) -> BatchRequest:
    """The next micro-batch of these tasks; ``restore_only``: if any are named, no others are restored by it."""
    inputs: dict[TopicPartition, int] = {}
    changelogs: dict[TopicPartition, int] = {}
    limits: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, PartitionTime] = {}
    for task in tasks.values():
        if task.phase is Phase.RUNNING:
            inputs.update(task.positions)
            times.update(task.times)
        if not restore_only or task.task in restore_only:
            changelogs.update(task.restore_from())
            limits.update({} if task.bounds is None else task.bounds.limits)
    return BatchRequest(
        batch_id=batch_id,
        inputs=inputs,
        internal=internal,
        changelogs=changelogs,
        limits={tp: at for tp, at in limits.items() if tp in changelogs},
        tasks=tuple(task.to_run() for task in tasks.values() if task.changelogs or task.directory),
        max_records=max_records,
        max_restore_records=max_restore_records,
        max_bytes=max_bytes,
        wait_ms=wait_ms,
        now_ms=now_ms,
        incarnation=incarnation,
        times=times,
    )
