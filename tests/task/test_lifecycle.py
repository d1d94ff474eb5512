"""An active task's life: nothing is read before its stores are at the changelog's end (correctness.md, rule 10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidemill.ids import TaskId, TopicPartition
from tidemill.task import lifecycle
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, PartitionStats, Positions, StorePositions
from tidemill.task.lifecycle import ActiveTask, Bounds, Phase
from tidemill.task.message_pack import pack, unpack
from tidemill.task.partition_time import PartitionTime

TASK = TaskId(1, 0)
IN = TopicPartition("repartition", 0)
LOG = TopicPartition("changelog", 0)
BOUNDS = Bounds(inputs={IN: 40}, changelog_begins={LOG: 0}, changelog_ends={LOG: 10})
Tasks = dict[TaskId, ActiveTask]


def new_task(**changes: object) -> Tasks:
    return {
        TASK: ActiveTask(task=TASK, directory="d", epoch="e", inputs=(IN,), changelogs={"counts": LOG}, **changes)  # type: ignore[arg-type]
    }


def fetched(tasks: Tasks, bounds: Bounds = BOUNDS) -> Tasks:
    return lifecycle.bounds_fetched(tasks, {TASK: bounds})


def reported(tasks: Tasks, position: int | None = None, outcome: Outcome = Outcome.COMMITTED, **report: object) -> Tasks:
    more: Any = report.pop("stores_at", {})
    stores = () if position is None else (StorePositions(task=TASK, changelog={"counts": position}, **more),)
    return lifecycle.reported(tasks, BatchReport(batch_id=1, outcome=outcome, stores=stores, **report))  # type: ignore[arg-type]


def request(tasks: Tasks) -> BatchRequest:
    return lifecycle.request(
        tasks, batch_id=1, internal=frozenset(), max_records=1, max_restore_records=1, wait_ms=0, now_ms=0, incarnation=0
    )


def running() -> Tasks:
    return reported(fetched(new_task()), 10)


def test_a_task_reads_nothing_before_its_offsets_are_fetched_and_its_stores_are_known() -> None:
    assert request(new_task()).inputs == {}
    assert request(fetched(new_task())).inputs == {}
    assert request(reported(new_task(), 10)).inputs == {}


def test_a_task_without_stores_runs_as_soon_as_its_offsets_are_fetched_and_no_worker_opens_anything_for_it() -> None:
    tasks = {TASK: ActiveTask(task=TASK, directory="", epoch="e", inputs=(IN,), changelogs={})}
    assert (request(fetched(tasks)).inputs, request(fetched(tasks)).tasks) == ({IN: 40}, ())


def test_a_task_whose_stores_have_no_changelogs_runs_at_once_and_a_worker_opens_them() -> None:
    tasks = {TASK: ActiveTask(task=TASK, directory="d", epoch="e", inputs=(IN,), changelogs={})}
    asked = request(fetched(tasks))
    assert (asked.inputs, [run.directory for run in asked.tasks]) == ({IN: 40}, ["d"])


def test_stores_behind_the_changelogs_end_are_restored_from_where_they_are_before_any_input_is_read() -> None:
    tasks = reported(fetched(new_task()), 4)
    assert (tasks[TASK].phase, request(tasks).changelogs, request(tasks).inputs) == (Phase.RESTORING, {LOG: 4}, {})
    tasks = reported(tasks, 9)
    assert (tasks[TASK].phase, request(tasks).changelogs) == (Phase.RESTORING, {LOG: 9})
    tasks = reported(tasks, 10)
    assert (tasks[TASK].phase, request(tasks).changelogs, request(tasks).inputs) == (Phase.RUNNING, {}, {IN: 40})


def test_restoring_begins_where_the_changelog_does_when_records_before_are_gone() -> None:
    bounds = Bounds(inputs={IN: 40}, changelog_begins={LOG: 6}, changelog_ends={LOG: 10})
    assert request(reported(fetched(new_task(), bounds), 0)).changelogs == {LOG: 6}


def test_a_source_topic_that_serves_as_changelog_is_restored_only_up_to_what_is_committed() -> None:
    bounds = Bounds(inputs={LOG: 7}, changelog_begins={LOG: 0}, changelog_ends={LOG: 7}, limits={LOG: 7})
    tasks = reported(fetched(new_task(), bounds), 4)
    assert (request(tasks).changelogs, request(tasks).limits) == ({LOG: 4}, {LOG: 7})
    tasks = reported(tasks, 7)
    assert (tasks[TASK].phase, request(tasks).changelogs, request(tasks).limits) == (Phase.RUNNING, {}, {})


def test_the_worker_is_given_the_topic_ids_that_stores_must_follow_as_soon_as_they_are_known() -> None:
    assert request(new_task()).tasks[0].topic_ids == {}
    asked = request(fetched(new_task(), replace(BOUNDS, topic_ids={"counts": "id"})))
    assert asked.tasks[0].topic_ids == {"counts": "id"}
    assert unpack(pack(asked), BatchRequest) == asked


def test_stores_beyond_the_changelogs_end_are_wiped_and_restored_whole() -> None:
    tasks = reported(fetched(new_task()), 11)
    [run] = request(tasks).tasks
    assert run.wipe
    assert request(tasks).inputs == {}
    tasks = reported(tasks, 0)
    [run] = request(tasks).tasks
    assert not run.wipe
    assert request(tasks).changelogs == {LOG: 0}


@pytest.mark.parametrize(("position", "wiped"), [(0, False), (1, True), (5, True), (6, False), (10, False), (11, True)])
def test_stores_that_lack_records_which_are_gone_are_wiped_empty_ones_lack_none(position: int, wiped: bool) -> None:
    bounds = Bounds(inputs={IN: 40}, changelog_begins={LOG: 6}, changelog_ends={LOG: 10})
    assert reported(fetched(new_task(), bounds), position)[TASK].wipe is wiped


def test_a_restoring_task_whose_changelog_was_truncated_is_restored_from_its_beginning() -> None:
    """Its end is known, and may be behind the stores by now; they have rows that it lacks."""
    restoring = reported(fetched(new_task()), 4)
    after = reported(restoring, None, Outcome.LOST, out_of_range=(LOG,), truncated={LOG: 2})[TASK]
    assert (after.phase, after.needs_bounds, after.stores, after.wipe) == (Phase.CREATED, True, None, True)


def test_a_restoring_task_whose_changelog_is_out_of_range_fetches_its_bounds_again() -> None:
    restoring = reported(fetched(new_task()), 4)
    out_of_range = reported(restoring, None, Outcome.LOST, out_of_range=(LOG,))[TASK]
    assert (out_of_range.phase, out_of_range.needs_bounds, out_of_range.stores) == (Phase.CREATED, True, {"counts": 4})
    assert reported(restoring, None, Outcome.REFUSED, out_of_range=(IN,)) == restoring
    assert reported(running(), None, Outcome.REFUSED, out_of_range=(LOG,)) == running()


def test_a_restoring_task_goes_on_from_where_its_worker_finds_the_stores() -> None:
    tasks = reported(reported(fetched(new_task()), 4), 3, stores_at={"is_behind": True})
    assert (tasks[TASK].phase, request(tasks).changelogs) == (Phase.RESTORING, {LOG: 3})


@pytest.mark.parametrize("position", [10, 3])
def test_after_a_lost_batch_a_task_starts_again_at_the_committed_offsets_with_stores_as_they_are(position: int) -> None:
    tasks = lifecycle.lost(running())
    assert tasks[TASK].needs_bounds
    assert request(tasks).inputs == {}
    [run] = request(tasks).tasks
    assert run.changelog is None, "the worker says where the stores are, the driver does not know"
    tasks = reported(fetched(tasks, Bounds(inputs={IN: 50}, changelog_begins={LOG: 0}, changelog_ends={LOG: 10})), position)
    assert request(tasks).inputs == ({IN: 50} if position == 10 else {})


def test_a_lost_batch_leaves_a_restoring_task_where_it_is() -> None:
    tasks = reported(fetched(new_task()), 4)
    assert lifecycle.lost(tasks) == tasks


def test_a_committed_batch_moves_the_positions_and_tells_the_next_where_the_stores_must_be() -> None:
    tasks = reported(running(), 13, ends={IN: 44})
    assert request(tasks).inputs == {IN: 44}
    [run] = request(tasks).tasks
    assert run.changelog == {"counts": 13}


def test_a_store_that_missed_its_batch_catches_up_before_the_next_one_reads_it() -> None:
    tasks = reported(running(), 10, ends={IN: 44}, stores_at={"is_behind": True})
    assert tasks[TASK].needs_bounds
    assert request(tasks).inputs == {}
    [run] = request(tasks).tasks
    assert not run.wipe


def test_a_fenced_batch_moves_nothing() -> None:
    assert request(reported(running(), None, Outcome.FENCED, ends={IN: 44})).inputs == {IN: 40}


def test_tasks_that_lack_little_can_be_restored_before_the_others() -> None:
    lacks_six = reported(fetched(new_task()), 4)
    assert lacks_six[TASK].lacks == 6
    assert lifecycle.nearly_restored(lacks_six, 6) == {TASK}
    assert lifecycle.nearly_restored(lacks_six, 5) == frozenset()
    assert lifecycle.nearly_restored(running(), 100) == frozenset()
    assert lifecycle.nearly_restored(new_task(), 100) == frozenset()
    assert lifecycle.nearly_restored(reported(fetched(new_task()), 9), 1) == {TASK}

    def changelogs(*only: TaskId) -> Positions:
        return lifecycle.request(
            lacks_six, batch_id=1, internal=frozenset(), max_records=1, max_restore_records=1, wait_ms=0, now_ms=0,
            incarnation=0, restore_only=frozenset(only),
        ).changelogs  # fmt: skip

    assert changelogs() == changelogs(TASK) == {LOG: 4}
    assert changelogs(TaskId(9, 9)) == {}


def read_to(ms: int) -> dict[TopicPartition, PartitionStats]:
    return {IN: PartitionStats(2, 1, ms, ms, ms), TopicPartition("of another task", 0): PartitionStats(1, 1, 99, 99, 99)}


def test_a_tasks_times_begin_at_what_was_committed_and_follow_what_is_read() -> None:
    committed = PartitionTime(50, (("a store of Java's", 7),))
    tasks = reported(fetched(new_task(), replace(BOUNDS, times={IN: committed})), 10)
    assert request(tasks).times == {IN: committed}
    tasks = reported(tasks, 10, partition_stats=read_to(40))
    assert request(tasks).times == {IN: committed}, "a record from before"
    tasks = reported(tasks, 10, partition_stats=read_to(60))
    assert request(tasks).times == {IN: committed._replace(ms=60)}
    tasks = reported(tasks, 10, partition_stats={IN: PartitionStats(3, 0, 0, 0, 0)})
    assert request(tasks).times == {IN: committed._replace(ms=60)}, "records without a time"


def test_what_was_emitted_on_window_close_is_kept_with_the_times_of_the_tasks_inputs() -> None:
    tasks = reported(running(), 10, emitted={TASK: {"closed": 7}, TaskId(9, 9): {"others": 8}})
    assert request(tasks).times == {IN: PartitionTime(processors=(("closed", 7),))}
    tasks = reported(tasks, 10, partition_stats=read_to(60))
    assert request(tasks).times == {IN: PartitionTime(60, (("closed", 7),))}


def test_after_a_lost_batch_times_come_from_the_committed_offsets_again() -> None:
    tasks = reported(running(), 10, partition_stats=read_to(60))
    tasks = reported(tasks, outcome=Outcome.LOST, partition_stats=read_to(70))
    assert request(tasks).times == {}
    again = reported(fetched(tasks, replace(BOUNDS, times={IN: PartitionTime(60)})), 10)
    assert request(again).times == {IN: PartitionTime(60)}


def test_a_refused_batch_is_run_again_from_where_it_began() -> None:
    before = reported(running(), 10, partition_stats=read_to(60))
    after = reported(before, 10, outcome=Outcome.REFUSED, partition_stats=read_to(70))
    assert after[TASK].phase is Phase.RUNNING
    assert (request(after).inputs, request(after).times) == (request(before).inputs, request(before).times)


def test_a_request_carries_times() -> None:
    asked = replace(request(running()), times={IN: PartitionTime(50, (("store", -1), ("b", 2))), LOG: PartitionTime()})
    assert unpack(pack(asked), BatchRequest) == asked
