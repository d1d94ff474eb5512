"""The life of a standby task on its stream thread, as values: a copy of a task's stores that follows the changelog.

    opened      its stores' positions are not known yet, or where its changelogs begin and end is not
    following   its changelogs are read, batch by batch, to their end and beyond

    event                        becomes
    bounds fetched, positions    following; emptied first if the stores can't belong to this changelog
    known
    batch lost                   opened: the stores are asked where they are
    changelog out of range       opened: the bounds are asked for again
    promoted                     an active task that has the same stores, restores what it lacks and then runs
    (an active one) demoted      following, from where the active one has left its stores

Decides what a batch reads for standbys, when their stores are given up and how far behind they are. A warm-up task is a standby
task that the leader means to promote: its client can't distinguish the two (KIP-441). A source topic that serves as changelog is
followed only up to what the group has committed, since the next owner begins there. Reading and applying are the steps'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemill.ids import TaskId, TopicPartition
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, Positions, StorePositions, TaskRun
from tidemill.task.lifecycle import ActiveTask, is_foreign


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyBounds:
    """First and end offsets of a standby's changelogs; ``limits``: of source topics, where following must stop for now;
    ``topic_ids``: by store, of its changelog."""

    begins: Positions
    ends: Positions
    limits: Positions = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyTask:
    """One copy. ``changelogs``: store -> partition; ``stores``: positions as last reported, None until the worker has reported
    them."""

    task: TaskId
    directory: str
    epoch: str
    changelogs: Mapping[str, TopicPartition]
    stores: Mapping[str, int] | None = None
    bounds: StandbyBounds | None = None
    wipe: bool = False
    """Its stores can't be brought to the changelog's end: empty them first."""
    demotions: int = 0
    """How often it has become a standby in this epoch."""

    @property
    def needs_bounds(self) -> bool:
        return self.bounds is None

    @property
    def lag(self) -> int | None:
        """Offsets to the changelogs' ends as last heard of; None while not known."""
        if self.bounds is None or self.stores is None:
            return None
        return sum(max(0, self.end_of(tp) - self.stores.get(store, 0)) for store, tp in self.changelogs.items())

    def end_of(self, changelog: TopicPartition) -> int:
        """The offset up to which the changelog is to be followed, as last known; 0 while it is not known."""
        if self.bounds is None:
            return 0
        return self.bounds.limits.get(changelog, self.bounds.ends.get(changelog, 0))

    def read_from(self) -> dict[TopicPartition, int]:
        """The changelog partitions to follow, with the next offset to read."""
        if self.bounds is None or self.stores is None or self.wipe:
            return {}
        found = {}
        for store, partition in self.changelogs.items():
            at = max(self.stores.get(store, 0), self.bounds.begins.get(partition, 0))
            if at < self.bounds.limits.get(partition, at + 1):
                found[partition] = at
        return found

    def to_run(self) -> TaskRun:
        """What a batch's workers need to know of it."""
        return TaskRun(
            task=self.task,
            directory=self.directory,
            epoch=self.epoch,
            demotions=self.demotions,
            changelog=None if self.wipe else self.stores,
            wipe=self.wipe,
            topic_ids={} if self.bounds is None else self.bounds.topic_ids,
        )


Standbys = Mapping[TaskId, StandbyTask]


def promoted(standby: StandbyTask, inputs: Iterable[TopicPartition]) -> ActiveTask:
    """The same stores, as those of an active task whose offsets are to be fetched."""
    return ActiveTask(
        task=standby.task,
        directory=standby.directory,
        epoch=standby.epoch,
        demotions=standby.demotions,
        inputs=tuple(sorted(inputs)),
        changelogs=standby.changelogs,
        stores=None if standby.wipe else standby.stores,
        wipe=standby.wipe,
    )


def demoted(active: ActiveTask) -> StandbyTask:
    """The same stores, which follow their changelogs from now on."""
    return StandbyTask(
        task=active.task,
        directory=active.directory,
        epoch=active.epoch,
        demotions=active.demotions + 1,
        changelogs=active.changelogs,
        stores=None if active.wipe else active.stores,
        wipe=active.wipe,
    )


def bounds_fetched(standbys: Standbys, found: Mapping[TaskId, StandbyBounds]) -> dict[TaskId, StandbyTask]:
    """Standbys with what was fetched for them."""
    return {
        name: _settled(replace(standby, bounds=found[name])) if name in found else standby
        for name, standby in standbys.items()
    }


def limited(standbys: Standbys, committed: Positions) -> dict[TaskId, StandbyTask]:
    """Standbys with new limits."""
    return {name: _limited(standby, committed) for name, standby in standbys.items()}


def _limited(standby: StandbyTask, committed: Positions) -> StandbyTask:
    if standby.bounds is None:
        return standby
    limits = {tp: committed.get(tp, limit) for tp, limit in standby.bounds.limits.items()}
    return replace(standby, bounds=replace(standby.bounds, limits=limits))


def reported(standbys: Standbys, report: BatchReport) -> dict[TaskId, StandbyTask]:
    """The standbys after a batch."""
    stores = {at.task: at for at in report.stores}
    gone = frozenset(report.out_of_range)
    return {name: _after(standby, stores.get(name), gone, report) for name, standby in standbys.items()}


def lost(standbys: Standbys) -> dict[TaskId, StandbyTask]:
    """After a batch whose fate is unknown: their stores may have been written."""
    return {name: replace(standby, stores=None, bounds=None) for name, standby in standbys.items()}


def _after(
    standby: StandbyTask, at: StorePositions | None, gone: frozenset[TopicPartition], report: BatchReport
) -> StandbyTask:
    was_unknown = standby.stores is None
    if not report.truncated.keys().isdisjoint(standby.changelogs.values()):  # the stores have rows that it lacks
        return replace(standby, stores=None, bounds=None, wipe=True)
    if at is not None:
        standby = replace(standby, stores=dict(at.changelog), wipe=False)
    if report.outcome not in (Outcome.COMMITTED, Outcome.REFUSED, Outcome.TRIED):
        return replace(standby, stores=standby.stores if at is not None else None, bounds=None)
    if standby.bounds is None or not gone.isdisjoint(standby.changelogs.values()):
        return replace(standby, bounds=None)
    ends = {tp: report.high_watermarks.get(tp, end) for tp, end in standby.bounds.ends.items()}
    standby = replace(standby, bounds=replace(standby.bounds, ends=ends))
    # Only stores that no batch has followed yet: ends are heard of once a second, so a position may be ahead of them.
    return _settled(standby) if was_unknown else standby


def _settled(standby: StandbyTask) -> StandbyTask:
    """Wiped if its stores are not part of this changelog: beyond its end, or left behind by records that are gone."""
    bounds, stores = standby.bounds, standby.stores
    if bounds is None or stores is None:
        return standby
    if any(
        is_foreign(stores.get(store, 0), begin=bounds.begins.get(tp, 0), end=bounds.ends.get(tp, 0))
        for store, tp in standby.changelogs.items()
    ):
        return replace(standby, stores=None, wipe=True)
    return standby


def with_standbys(request: BatchRequest, standbys: Iterable[StandbyTask], *, max_records: int) -> BatchRequest:
    """The batch that also follows the changelogs of these standbys."""
    positions: dict[TopicPartition, int] = {}
    limits = dict(request.limits)
    runs = []
    for standby in standbys:
        positions.update(standby.read_from())
        limits.update({} if standby.bounds is None else standby.bounds.limits)
        runs.append(standby.to_run())
    return replace(
        request, standbys=positions, limits=limits, tasks=(*request.tasks, *runs), max_standby_records=max_records
    )
