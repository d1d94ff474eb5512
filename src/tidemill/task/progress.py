"""Events of stores on their way to their changelogs' ends: of active tasks and of standbys.

    active    RestoreStarted, RestoredBatch ..., then RestoreEnded, or RestoreSuspended if the task goes before its end
    standby   UpdateStarted, BatchLoaded ..., then UpdateSuspended: PROMOTED here, or MIGRATED away

Decides the events from what a thread holds before and after each change, in the meaning of Kafka Streams' StateRestoreListener
and StandbyUpdateListener (KIP-988). A store has one sequence of events each time that its task takes up a role, or loses a batch
and its stores' positions must be read again. A store that lacks nothing is started and ended at once, with no records. Offsets
are positions (the next to read), so ``end`` is a changelog's end. Listeners and durations are the stream thread's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tidemill.ids import TaskId, TopicPartition
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.standby import StandbyTask

LEAST_LEFT_S = 1.0
"""The least time left of anything that is under way."""

Restored = Mapping[TaskId, Mapping[str, int]]
"""Numbers of changelog records that a batch has applied, by task and store."""


class SuspendReason(Enum):
    """Why a standby follows its changelog no more (KIP-988)."""

    MIGRATED = "MIGRATED"
    """The copy was closed here."""
    PROMOTED = "PROMOTED"
    """The copy became the active task, here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEvent:
    """Fields of all events: the task, its store, and the changelog partition."""

    task: TaskId
    store: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreStarted(StoreEvent):
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredBatch(StoreEvent):
    batch_end: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreEnded(StoreEvent):
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSuspended(StoreEvent):
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStarted(StoreEvent):
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLoaded(StoreEvent):
    batch_end: int
    records: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSuspended(StoreEvent):
    at: int
    end: int
    reason: SuspendReason


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProgress:
    """A store that is under way; ``total``: records so far; ``at`` and ``end`` as last known."""

    partition: TopicPartition
    epoch: str
    total: int = 0
    at: int = 0
    end: int = 0


_Key = tuple[TaskId, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Stores under way. ``settled``: the epochs of active tasks whose stores have ended and that still run."""

    restoring: Mapping[_Key, StoreProgress] = field(default_factory=dict)
    following: Mapping[_Key, StoreProgress] = field(default_factory=dict)
    settled: Mapping[TaskId, str] = field(default_factory=dict)


def advanced(
    before: Progress,
    active: Mapping[TaskId, ActiveTask],
    standbys: Mapping[TaskId, StandbyTask],
    restored: Restored | None = None,
) -> tuple[Progress, tuple[StoreEvent, ...]]:
    """The progress when a thread holds this, and what has happened since: ends of old roles first, then beginnings."""
    events: list[StoreEvent] = []
    records = restored or {}
    following = _followed(before.following, active, standbys, records, events)
    restoring, settled = _restored(before, active, records, events)
    _begin_following(following, standbys, events)
    return Progress(restoring=restoring, following=following, settled=settled), tuple(events)


def _followed(
    before: Mapping[_Key, StoreProgress],
    active: Mapping[TaskId, ActiveTask],
    standbys: Mapping[TaskId, StandbyTask],
    records: Restored,
    events: list[StoreEvent],
) -> dict[_Key, StoreProgress]:
    """Copies that were followed: further, or ended."""
    after: dict[_Key, StoreProgress] = {}
    for (task, store), so_far in before.items():
        held = standbys.get(task)
        what: dict[str, Any] = {"task": task, "store": store, "partition": so_far.partition}
        if held is None or held.epoch != so_far.epoch:
            promoted = task in active and active[task].epoch == so_far.epoch
            reason = SuspendReason.PROMOTED if promoted else SuspendReason.MIGRATED
            events.append(UpdateSuspended(**what, at=so_far.at, end=so_far.end, reason=reason))
            continue
        at = so_far.at if held.stores is None else held.stores.get(store, 0)
        end = max(at, so_far.end if held.bounds is None else held.end_of(so_far.partition))
        count = records.get(task, {}).get(store, 0)
        if count:
            events.append(BatchLoaded(**what, batch_end=at, records=count, end=end))
        after[task, store] = replace(so_far, at=at, end=end, total=so_far.total + count)
    return after


def _begin_following(
    following: dict[_Key, StoreProgress], standbys: Mapping[TaskId, StandbyTask], events: list[StoreEvent]
) -> None:
    for task, held in standbys.items():
        if held.bounds is None or held.stores is None or held.wipe:
            continue
        for store, partition in held.changelogs.items():
            if (task, store) not in following:
                at = held.stores.get(store, 0)
                following[task, store] = StoreProgress(
                    partition=partition, epoch=held.epoch, at=at, end=max(at, held.end_of(partition))
                )
                events.append(UpdateStarted(task=task, store=store, partition=partition, start=at))


def _restored(
    before: Progress, active: Mapping[TaskId, ActiveTask], records: Restored, events: list[StoreEvent]
) -> tuple[dict[_Key, StoreProgress], dict[TaskId, str]]:
    restoring = dict(before.restoring)
    for (task, store), so_far in before.restoring.items():
        held = active.get(task)
        if held is None or held.epoch != so_far.epoch or held.phase is Phase.CREATED:
            events.append(RestoreSuspended(task=task, store=store, partition=so_far.partition, total=so_far.total))
            del restoring[task, store]
    settled = {
        task: epoch
        for task, epoch in before.settled.items()
        if task in active and active[task].epoch == epoch and active[task].phase is not Phase.CREATED
    }
    for task, held in active.items():
        if held.phase is not Phase.CREATED and held.stores is not None and held.bounds is not None:
            if task not in settled:
                _begin_restoring(restoring, held, events)
                settled[task] = held.epoch
            _go_on_restoring(restoring, held, records.get(task, {}), events)
    return restoring, settled


def _begin_restoring(restoring: dict[_Key, StoreProgress], held: ActiveTask, events: list[StoreEvent]) -> None:
    assert held.stores is not None
    assert held.bounds is not None
    for store, partition in held.changelogs.items():
        at = held.stores.get(store, 0)
        end = max(at, held.bounds.changelog_ends.get(partition, 0))
        if (held.task, store) not in restoring:
            restoring[held.task, store] = StoreProgress(partition=partition, epoch=held.epoch, at=at, end=end)
            events.append(RestoreStarted(task=held.task, store=store, partition=partition, start=at, end=end))


def _go_on_restoring(
    restoring: dict[_Key, StoreProgress], held: ActiveTask, records: Mapping[str, int], events: list[StoreEvent]
) -> None:
    left = held.restore_from()
    for store, partition in held.changelogs.items():
        so_far = restoring.get((held.task, store))
        if so_far is None:
            continue
        at, count = (held.stores or {}).get(store, 0), records.get(store, 0)
        so_far = replace(so_far, at=at, total=so_far.total + count)
        what: dict[str, Any] = {"task": held.task, "store": store, "partition": partition}
        if count:
            events.append(RestoredBatch(**what, batch_end=at, records=count))
        if partition in left:
            restoring[held.task, store] = so_far
        else:
            events.append(RestoreEnded(**what, total=so_far.total))
            del restoring[held.task, store]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """Distance of a task's stores from their changelogs' ends, in offsets, and the rate at which it shrinks.

    ``offsets_per_s``: as lately measured; None while nothing was. ``is_active``: it will run once it is there.
    """

    task: TaskId
    is_active: bool
    lag: int
    offsets_per_s: float | None

    @property
    def seconds_left(self) -> float | None:
        """Until its end as it is now; None if that is not known. Of an active task never less than ``LEAST_LEFT_S``: it runs
        once a batch has shown that nothing is missing."""
        least = LEAST_LEFT_S if self.is_active else 0.0
        if self.lag == 0:
            return least
        return max(least, self.lag / self.offsets_per_s) if self.offsets_per_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreProgress:
    """The changelog records that active tasks lack before they run.

    ``offsets_left``: None while it is not known of a task how much that is. ``offsets_per_s``: None while nothing was measured.
    """

    tasks: tuple[TaskId, ...]
    offsets_left: int | None
    offsets_per_s: float | None

    @property
    def seconds_left(self) -> float | None:
        """Until the last one runs, at the speed of now; None if that is not known, and never less than ``LEAST_LEFT_S``."""
        if self.offsets_left == 0:
            return LEAST_LEFT_S
        if self.offsets_left is None or not self.offsets_per_s:
            return None
        return max(LEAST_LEFT_S, self.offsets_left / self.offsets_per_s)


def restoring(active: Iterable[ActiveTask], under_way: Iterable[CopyProgress]) -> RestoreProgress | None:
    """Progress of restoring active tasks; None if there is none."""
    waiting = sorted(task.task for task in active if task.changelogs and task.phase is not Phase.RUNNING)
    if not waiting:
        return None
    measured = {copy.task: copy for copy in under_way if copy.is_active}
    known = [measured[task] for task in waiting if task in measured]
    rates = [copy.offsets_per_s for copy in known if copy.offsets_per_s is not None]
    return RestoreProgress(
        tasks=tuple(waiting),
        offsets_left=sum(copy.lag for copy in known) if len(known) == len(waiting) else None,
        offsets_per_s=sum(rates) if rates else None,
    )


def copies(progress: Progress, rates: Mapping[TaskId, float]) -> tuple[CopyProgress, ...]:
    """Every task that is under way, by id; ``rates``: offsets per second."""
    lags: dict[TaskId, int] = {}
    for stores in (progress.following, progress.restoring):
        for (task, _), so_far in stores.items():
            lags[task] = lags.get(task, 0) + max(0, so_far.end - so_far.at)
    active = {task for task, _ in progress.restoring}
    return tuple(
        CopyProgress(task=task, is_active=task in active, lag=lag, offsets_per_s=rates.get(task))
        for task, lag in sorted(lags.items())
    )
