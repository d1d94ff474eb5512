"""Giving tasks up (correctness.md, rule 12): the workers' word that their stores are closed, or the workers' death."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime.thread_alone import GIVEN, KEPT, Engine, running, thread_with
from tidemill.ids import TaskId
from tidemill.membership.member_state import CloseStandbys, RevokeTasks
from tidemill.task.batch import Outcome, request_from_json, request_to_json
from tidemill.task.standby import StandbyTask


def test_a_batch_without_the_tasks_that_reads_nothing_is_the_acknowledgement(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED)
    thread = thread_with(engine, tmp_path)
    thread._changes._act([RevokeTasks(tasks=frozenset({GIVEN}))])
    [request] = engine.asked
    assert [run.task for run in request.tasks] == [KEPT]
    assert (request.inputs, request.changelogs) == ({}, {})
    assert not request.reads, "what was fetched for the task that stays is not thrown away"
    assert not engine.was_killed
    assert set(thread.tasks) == {KEPT}


def test_when_nothing_is_left_the_readers_hold_nothing_either(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED)
    thread = thread_with(engine, tmp_path)
    thread._changes._act([RevokeTasks(tasks=frozenset({KEPT, GIVEN}))])
    [request] = engine.asked
    assert request.reads
    assert (request.inputs, request.tasks) == ({}, ())


def test_actives_and_standbys_that_go_are_closed_in_one_batch(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED)
    thread = thread_with(engine, tmp_path)
    copy = TaskId(1, 0)
    thread._held.standby = {copy: StandbyTask(task=copy, directory="s", epoch="e", changelogs={})}
    thread._changes._act([RevokeTasks(tasks=frozenset({GIVEN})), CloseStandbys(tasks=frozenset({copy}))])
    [request] = engine.asked
    assert [run.task for run in request.tasks] == [KEPT]
    assert (set(thread.tasks), set(thread.standbys)) == ({KEPT}, set())
    thread._changes._act([RevokeTasks(tasks=frozenset({KEPT}))])
    assert len(engine.asked) == 2, "what was closed once is forgotten"


def test_a_task_without_stores_is_given_up_at_once(tmp_path: Path) -> None:
    engine = Engine(None)
    thread = thread_with(engine, tmp_path)
    thread._held.active = {**thread._held.active, GIVEN: replace(running(GIVEN), directory="")}
    thread._changes._act([RevokeTasks(tasks=frozenset({GIVEN}))])
    assert engine.asked == []
    assert set(thread.tasks) == {KEPT}


def test_but_not_while_it_is_unknown_what_a_worker_does(tmp_path: Path) -> None:
    engine = Engine(None)
    thread = thread_with(engine, tmp_path)
    thread._held.active = {**thread._held.active, GIVEN: replace(running(GIVEN), directory="")}
    thread._runner.run()
    thread._changes._act([RevokeTasks(tasks=frozenset({GIVEN}))])
    assert engine.was_killed


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.FENCED, None], ids=["lost", "fenced", "failed"])
def test_without_the_acknowledgement_the_workers_are_killed(tmp_path: Path, outcome: Outcome | None) -> None:
    engine = Engine(outcome)
    thread = thread_with(engine, tmp_path)
    thread._changes._act([RevokeTasks(tasks=frozenset({GIVEN}))])
    assert engine.was_killed
    assert set(thread.tasks) == {KEPT}


def test_a_task_that_becomes_a_standby_keeps_its_stores_open_and_asks_for_no_acknowledgement(tmp_path: Path) -> None:
    engine = Engine(None)
    thread = thread_with(engine, tmp_path)
    thread._changes._act([RevokeTasks(tasks=frozenset({GIVEN}), becomes_standby=frozenset({GIVEN}))])
    assert engine.asked == []
    assert (set(thread.tasks), set(thread.standbys)) == ({KEPT}, {GIVEN})
    assert thread.standbys[GIVEN].epoch == "e", "the owner's epoch stays, so the worker closes nothing"


def test_workers_are_told_that_the_driver_has_fenced_their_producer(tmp_path: Path) -> None:
    engine = Engine(None)
    thread = thread_with(engine, tmp_path)
    thread._runner.run()
    thread._runner.run()
    before, after = (request_from_json(request_to_json(request)).fences for request in engine.asked)
    assert after == before + 1


def test_who_waits_for_a_thread_only_so_long_leaves_it_time_to_close(tmp_path: Path) -> None:
    thread = thread_with(Engine(None), tmp_path)
    usual_s = thread._leaving.limit_s
    thread.stop(within_s=60.0)
    assert thread._leaving.limit_s == usual_s
    thread.stop(within_s=1.0)
    assert thread._leaving.limit_s == 0.5
