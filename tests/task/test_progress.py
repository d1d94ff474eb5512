"""What is reported of stores on their way: each store once from start to end, in Kafka Streams' meaning."""

from __future__ import annotations

from dataclasses import replace

from tidemill.ids import TaskId, TopicPartition
from tidemill.task import standby as standbys
from tidemill.task.lifecycle import ActiveTask, Bounds, Phase
from tidemill.task.progress import (
    LEAST_LEFT_S,
    BatchLoaded,
    CopyProgress,
    Progress,
    RestoredBatch,
    RestoreEnded,
    RestoreStarted,
    RestoreSuspended,
    StoreEvent,
    SuspendReason,
    UpdateStarted,
    UpdateSuspended,
    advanced,
    copies,
    restoring,
)
from tidemill.task.standby import StandbyBounds, StandbyTask

TASK = TaskId(1, 0)
LOG = TopicPartition("changelog", 0)
OTHER_LOG = TopicPartition("other", 0)
WHAT = {"task": TASK, "store": "counts", "partition": LOG}


def active(phase: Phase, at: int | None, end: int = 10, epoch: str = "e") -> ActiveTask:
    return ActiveTask(
        task=TASK,
        directory="d",
        epoch=epoch,
        inputs=(),
        changelogs={"counts": LOG},
        phase=phase,
        stores=None if at is None else {"counts": at},
        bounds=Bounds(inputs={}, changelog_ends={LOG: end}),
    )


def copy(at: int | None, end: int = 10, **changes: object) -> StandbyTask:
    made = StandbyTask(
        task=TASK,
        directory="d",
        epoch="e",
        changelogs={"counts": LOG},
        stores=None if at is None else {"counts": at},
        bounds=StandbyBounds(begins={}, ends={LOG: end}),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def told(*steps: tuple[ActiveTask | None, StandbyTask | None, int]) -> list[StoreEvent]:
    """What is reported when a thread holds this, one after the other; the number: records that the batch before it applied."""
    progress, events = Progress(), list[StoreEvent]()
    for task, followed, records in steps:
        progress, new = advanced(
            progress,
            {} if task is None else {TASK: task},
            {} if followed is None else {TASK: followed},
            {TASK: {"counts": records}} if records else {},
        )
        events += new
    return events


def test_a_restoration_is_started_told_batch_by_batch_and_ended_with_its_sum() -> None:
    events = told(
        (active(Phase.CREATED, None), None, 0),
        (active(Phase.RESTORING, 2), None, 0),
        (active(Phase.RESTORING, 6), None, 3),
        (active(Phase.RUNNING, 10), None, 4),
        (active(Phase.RUNNING, 14), None, 0),
        (None, None, 0),
    )
    assert events == [
        RestoreStarted(**WHAT, start=2, end=10),
        RestoredBatch(**WHAT, batch_end=6, records=3),
        RestoredBatch(**WHAT, batch_end=10, records=4),
        RestoreEnded(**WHAT, total=7),
    ]


def test_a_store_that_lacks_nothing_is_started_and_ended_at_once() -> None:
    events = told((active(Phase.CREATED, 10), None, 0), (active(Phase.RUNNING, 10), None, 0))
    assert events == [RestoreStarted(**WHAT, start=10, end=10), RestoreEnded(**WHAT, total=0)]


def test_of_two_stores_each_ends_when_it_is_there() -> None:
    both = {"counts": LOG, "sums": OTHER_LOG}
    ends = Bounds(inputs={}, changelog_ends={LOG: 10, OTHER_LOG: 20})
    task = replace(active(Phase.RESTORING, 0), changelogs=both, bounds=ends, stores={"counts": 0, "sums": 0})
    progress, _ = advanced(Progress(), {TASK: task}, {})
    task = replace(task, stores={"counts": 10, "sums": 12})
    progress, events = advanced(progress, {TASK: task}, {}, {TASK: {"counts": 8, "sums": 9}})
    assert [type(event) for event in events] == [RestoredBatch, RestoreEnded, RestoredBatch]
    assert [event.store for event in events] == ["counts", "counts", "sums"]
    assert [found.lag for found in copies(progress, {TASK: 4.0})] == [8]
    assert copies(progress, {TASK: 4.0})[0].seconds_left == 2.0
    assert copies(progress, {})[0].seconds_left is None


def test_a_task_that_goes_before_its_end_is_suspended() -> None:
    events = told((active(Phase.RESTORING, 2), None, 0), (active(Phase.RESTORING, 6), None, 3), (None, None, 0))
    assert events[-1] == RestoreSuspended(**WHAT, total=3)


def test_a_task_that_comes_back_under_another_epoch_starts_again() -> None:
    events = told((active(Phase.RESTORING, 2), None, 0), (active(Phase.RESTORING, 0, epoch="f"), None, 0))
    assert events == [
        RestoreStarted(**WHAT, start=2, end=10),
        RestoreSuspended(**WHAT, total=0),
        RestoreStarted(**WHAT, start=0, end=10),
    ]


def test_a_task_that_has_to_fetch_its_bounds_again_starts_again() -> None:
    restoring_again = (active(Phase.RESTORING, 4), None, 0)
    events = told((active(Phase.RESTORING, 2), None, 0), (active(Phase.CREATED, 4), None, 0), restoring_again)
    assert events == [
        RestoreStarted(**WHAT, start=2, end=10),
        RestoreSuspended(**WHAT, total=0),
        RestoreStarted(**WHAT, start=4, end=10),
    ]


def test_after_a_lost_batch_a_running_task_is_started_and_ended_again() -> None:
    lost = replace(active(Phase.CREATED, None), bounds=None)
    events = told((active(Phase.RUNNING, 10), None, 0), (lost, None, 0), (active(Phase.RUNNING, 10), None, 0))
    assert [type(event) for event in events] == [RestoreStarted, RestoreEnded] * 2


def test_a_standby_is_started_once_its_stores_and_bounds_are_known_and_each_batch_tells_the_end() -> None:
    events = told(
        (None, copy(None), 0),
        (None, copy(4, bounds=None), 0),
        (None, copy(4, wipe=True), 0),
        (None, copy(4), 0),
        (None, copy(9, end=12), 5),
        (None, copy(None), 0),
        (None, copy(12, end=12), 3),
    )
    assert events == [
        UpdateStarted(**WHAT, start=4),
        BatchLoaded(**WHAT, batch_end=9, records=5, end=12),
        BatchLoaded(**WHAT, batch_end=12, records=3, end=12),
    ]


def test_a_promoted_standby_and_one_that_goes_away_are_told_apart() -> None:
    promoted = standbys.promoted(copy(9), ())
    assert told((None, copy(9), 0), (promoted, None, 0)) == [
        UpdateStarted(**WHAT, start=9),
        UpdateSuspended(**WHAT, at=9, end=10, reason=SuspendReason.PROMOTED),
    ]
    for now in (None, active(Phase.CREATED, None, epoch="f")):
        assert told((None, copy(9), 0), (now, None, 0))[-1] == UpdateSuspended(
            **WHAT, at=9, end=10, reason=SuspendReason.MIGRATED
        )


def test_what_is_under_way_says_whether_it_is_active() -> None:
    other = replace(copy(3), task=TaskId(1, 1))
    progress, _ = advanced(Progress(), {TASK: active(Phase.RESTORING, 2)}, {TaskId(1, 1): other})
    assert copies(progress, {}) == (under_way(0, 8, None), under_way(1, 7, None, is_active=False))


def test_a_demoted_task_goes_on_as_a_standby() -> None:
    demoted = standbys.demoted(active(Phase.RUNNING, 14))
    events = told(
        (active(Phase.RUNNING, 10), None, 0),
        (None, demoted, 0),
        (None, replace(demoted, bounds=StandbyBounds(begins={}, ends={LOG: 14})), 0),
    )
    assert events[2:] == [UpdateStarted(**WHAT, start=14)]


def test_a_source_topics_standby_ends_at_what_is_committed() -> None:
    limited = StandbyBounds(begins={}, ends={LOG: 50}, limits={LOG: 12})
    progress, _ = advanced(Progress(), {}, {TASK: copy(4, bounds=limited)})
    assert [found.lag for found in copies(progress, {})] == [8]


def under_way(task: int, lag: int, per_s: float | None, *, is_active: bool = True) -> CopyProgress:
    return CopyProgress(task=TaskId(1, task), is_active=is_active, lag=lag, offsets_per_s=per_s)


def waits(task: int, phase: Phase = Phase.RESTORING) -> ActiveTask:
    return replace(active(phase, 0), task=TaskId(1, task))


def test_what_an_instance_restores_is_the_sum_of_its_tasks() -> None:
    found = restoring([waits(1), waits(0)], [under_way(0, 600, 20.0), under_way(1, 300, 10.0), under_way(2, 9, 9.0)])
    assert found is not None
    assert (found.tasks, found.offsets_left, found.offsets_per_s) == ((TaskId(1, 0), TaskId(1, 1)), 900, 30.0)
    assert found.seconds_left == 30.0


def test_nothing_is_restored_where_all_tasks_run_or_have_no_state() -> None:
    stateless = replace(waits(1, Phase.CREATED), changelogs={})
    assert restoring([waits(0, Phase.RUNNING), stateless], [under_way(2, 9, 9.0, is_active=False)]) is None


def test_what_is_not_known_of_one_task_is_not_known_of_all() -> None:
    found = restoring([waits(0), waits(1, Phase.CREATED)], [under_way(0, 600, 20.0)])
    assert found is not None
    assert (found.offsets_left, found.seconds_left) == (None, None)
    unmeasured = restoring([waits(0)], [under_way(0, 600, None)])
    assert unmeasured is not None
    assert (unmeasured.offsets_per_s, unmeasured.seconds_left) == (None, None)
    at_rest = restoring([waits(0)], [under_way(0, 600, 0.0)])
    assert at_rest is not None
    assert at_rest.seconds_left is None


def test_what_is_restored_still_takes_a_moment_until_it_runs() -> None:
    for lag, per_s in ((0, None), (0, 50.0), (1, 5_000.0)):
        found = restoring([waits(0)], [under_way(0, lag, per_s)])
        assert found is not None
        assert found.seconds_left == LEAST_LEFT_S
        assert under_way(0, lag, per_s or 50.0).seconds_left == LEAST_LEFT_S
    assert under_way(0, 0, 50.0, is_active=False).seconds_left == 0.0
