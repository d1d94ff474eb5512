"""A standby's life: it follows its changelogs, keeps its stores when it is promoted or demoted, and is never believed blindly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.ids import TaskId, TopicPartition
from tidemill.task import lifecycle, standby
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, StorePositions
from tidemill.task.lifecycle import ActiveTask, Bounds, Phase
from tidemill.task.message_pack import pack, unpack
from tidemill.task.standby import StandbyBounds, StandbyTask

TASK = TaskId(1, 0)
IN = TopicPartition("repartition", 0)
LOG = TopicPartition("changelog", 0)
BOUNDS = StandbyBounds(begins={LOG: 0}, ends={LOG: 10})
Standbys = dict[TaskId, StandbyTask]


def opened(**changes: object) -> Standbys:
    return {TASK: StandbyTask(task=TASK, directory="d", epoch="e", changelogs={"counts": LOG}, **changes)}  # type: ignore[arg-type]


def fetched(standbys: Standbys, bounds: StandbyBounds = BOUNDS) -> Standbys:
    return standby.bounds_fetched(standbys, {TASK: bounds})


def reported(standbys: Standbys, position: int | None, outcome: Outcome = Outcome.COMMITTED, **report: object) -> Standbys:
    stores = () if position is None else (StorePositions(task=TASK, changelog={"counts": position}),)
    return standby.reported(standbys, BatchReport(batch_id=1, outcome=outcome, stores=stores, **report))  # type: ignore[arg-type]


def request(standbys: Standbys) -> BatchRequest:
    return standby.with_standbys(BatchRequest(batch_id=1, inputs={IN: 1}), standbys.values(), max_records=7)


def following(position: int = 4) -> Standbys:
    return reported(fetched(opened()), position)


def active(phase: Phase, stores: dict[str, int] | None) -> ActiveTask:
    return ActiveTask(
        task=TASK, directory="d", epoch="e", inputs=(IN,), changelogs={"counts": LOG}, phase=phase, stores=stores
    )


def test_nothing_is_followed_before_the_stores_positions_and_the_changelogs_bounds_are_known() -> None:
    assert request(opened()).standbys == {}
    assert request(fetched(opened())).standbys == {}
    assert request(reported(opened(), 4)).standbys == {}
    assert request(following()).standbys == {LOG: 4}


def test_a_standby_is_followed_beyond_the_end_that_was_fetched_and_is_never_done() -> None:
    standbys = reported(following(), 25)
    assert request(standbys).standbys == {LOG: 25}
    assert not standbys[TASK].wipe
    [run] = request(standbys).tasks
    assert run.changelog == {"counts": 25}, "a worker that has the stores elsewhere must say so"


def test_its_lag_is_reported_by_the_ends_that_batches_hear_of() -> None:
    assert following(4)[TASK].lag == 6
    assert reported(following(4), 8, high_watermarks={LOG: 30})[TASK].lag == 22
    assert reported(following(4), 12)[TASK].lag == 0
    assert opened()[TASK].lag is None


def test_following_begins_where_the_changelog_does_when_the_stores_are_empty() -> None:
    assert request(reported(fetched(opened(), StandbyBounds(begins={LOG: 6}, ends={LOG: 10})), 0)).standbys == {LOG: 6}


@pytest.mark.parametrize(("position", "begin"), [(11, 0), (4, 6)], ids=["beyond its end", "before its begin"])
def test_stores_that_are_not_part_of_the_changelog_are_emptied_first(position: int, begin: int) -> None:
    standbys = reported(fetched(opened(), StandbyBounds(begins={LOG: begin}, ends={LOG: 10})), position)
    [run] = request(standbys).tasks
    assert (run.wipe, run.changelog, request(standbys).standbys) == (True, None, {})
    [run] = request(reported(standbys, 0)).tasks
    assert not run.wipe
    assert request(reported(standbys, 0)).standbys == {LOG: begin}


def test_after_a_lost_batch_stores_and_bounds_are_asked_for_again() -> None:
    for standbys in (standby.lost(following()), reported(following(), None, Outcome.LOST)):
        assert request(standbys).standbys == {}
        assert standbys[TASK].needs_bounds
        [run] = request(standbys).tasks
        assert run.changelog is None
        assert request(fetched(reported(standbys, 9))).standbys == {LOG: 9}


def test_a_refused_batch_has_followed_its_changelogs_all_the_same() -> None:
    assert request(reported(following(4), 8, Outcome.REFUSED)).standbys == {LOG: 8}


def test_a_standby_of_a_truncated_changelog_begins_again_however_long_that_is_by_now() -> None:
    standbys = reported(following(), 4, Outcome.LOST, out_of_range=(LOG,), truncated={LOG: 2})
    assert (standbys[TASK].wipe, standbys[TASK].needs_bounds) == (True, True)
    [run] = request(standbys).tasks
    assert run.wipe
    assert request(reported(fetched(standbys), 0)).standbys == {LOG: 0}


def test_a_changelog_that_is_out_of_range_is_looked_at_again() -> None:
    standbys = reported(following(), None, Outcome.LOST, out_of_range=(LOG,))
    assert standbys[TASK].needs_bounds
    emptied = reported(fetched(standbys, StandbyBounds(begins={LOG: 50}, ends={LOG: 50})), 4)
    assert emptied[TASK].wipe
    restarted = reported(emptied, 0)
    assert request(restarted).standbys == {LOG: 50}
    assert reported(restarted, 50)[TASK].lag == 0, "an emptied changelog lets its standbys catch up (KAFKA-14302)"


def test_a_promoted_standby_restores_only_what_it_lacks_and_then_runs() -> None:
    bounds = Bounds(inputs={IN: 40}, changelog_begins={LOG: 0}, changelog_ends={LOG: 12})
    for position, phase in ((10, Phase.RESTORING), (12, Phase.RUNNING)):
        task = standby.promoted(reported(following(), position)[TASK], [IN])
        assert (task.epoch, task.inputs, task.needs_bounds) == ("e", (IN,), True)
        assert lifecycle.bounds_fetched({TASK: task}, {TASK: bounds})[TASK].phase is phase


def test_a_standby_promoted_before_its_stores_are_known_waits_for_them() -> None:
    task = standby.promoted(opened()[TASK], [IN])
    bounds = Bounds(inputs={IN: 40}, changelog_begins={LOG: 0}, changelog_ends={LOG: 12})
    assert lifecycle.bounds_fetched({TASK: task}, {TASK: bounds})[TASK].phase is Phase.CREATED


def test_a_demoted_task_goes_on_where_it_has_left_its_stores() -> None:
    demoted = {TASK: standby.demoted(active(Phase.RUNNING, {"counts": 10}))}
    assert demoted[TASK].epoch == "e"
    assert request(fetched(demoted)).standbys == {LOG: 10}


def test_a_source_topic_that_serves_as_changelog_is_followed_only_up_to_what_is_committed() -> None:
    bounds = StandbyBounds(begins={LOG: 0}, ends={LOG: 100}, limits={LOG: 6})
    standbys = reported(fetched(opened(), bounds), 4)
    assert (request(standbys).standbys, request(standbys).limits) == ({LOG: 4}, {LOG: 6})
    standbys = reported(standbys, 6)
    assert (request(standbys).standbys, standbys[TASK].lag) == ({}, 0)
    assert request(standby.limited(standbys, {LOG: 9})).standbys == {LOG: 6}


@pytest.mark.parametrize(("position", "begin"), [(101, 0), (4, 5)], ids=["beyond its end", "before its begin"])
def test_stores_that_are_not_part_of_a_source_topic_are_emptied_like_any_others(position: int, begin: int) -> None:
    bounds = StandbyBounds(begins={LOG: begin}, ends={LOG: 100}, limits={LOG: 6})
    assert reported(fetched(opened(), bounds), position)[TASK].wipe


def test_a_source_topic_that_serves_as_changelog_may_have_been_read_further_than_is_committed_yet() -> None:
    standbys = reported(fetched(opened(), StandbyBounds(begins={LOG: 0}, ends={LOG: 100}, limits={LOG: 6})), 8)
    assert (request(standbys).standbys, standbys[TASK].wipe) == ({}, False)
    assert request(standby.limited(standbys, {LOG: 9})).standbys == {LOG: 8}


def test_an_active_tasks_limits_are_those_of_the_batch_beside_the_standbys() -> None:
    bounds = StandbyBounds(begins={LOG: 0}, ends={LOG: 100}, limits={LOG: 6})
    asked = BatchRequest(batch_id=1, inputs={}, changelogs={IN: 1}, limits={IN: 3})
    both = standby.with_standbys(asked, reported(fetched(opened(), bounds), 4).values(), max_records=7)
    assert both.limits == {IN: 3, LOG: 6}


def test_a_standbys_worker_is_given_the_topic_ids_that_its_stores_must_follow() -> None:
    standbys = fetched(opened(), replace(BOUNDS, topic_ids={"counts": "id"}))
    assert [run.topic_ids for run in request(standbys).tasks] == [{"counts": "id"}]


def test_standbys_are_added_to_what_a_batch_reads_and_keep_their_stores_open() -> None:
    asked = request(following())
    assert (asked.inputs, asked.max_standby_records) == ({IN: 1}, 7)
    assert [run.task for run in asked.tasks] == [TASK]
    assert unpack(pack(asked), BatchRequest) == asked
