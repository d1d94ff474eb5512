"""Giving tasks up (correctness.md, rule 12): the workers' word that their stores are closed, or the workers' death."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.thread_alone import GIVEN, KEPT, Engine, ThreadAlone, thread_with
from tidemill.errors import CorruptReadError, WorkerDiedError
from tidemill.ids import TaskId
from tidemill.membership.member_state import CloseRequested, MembershipLost, RevokeAllRequested
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, SourceProgress
from tidemill.task.message_pack import pack, unpack

COPY = TaskId(1, 0)
NEW = TaskId(1, 1)


def held(thread: ThreadAlone) -> tuple[set[TaskId], set[TaskId]]:
    return set(thread.registry.now.active), set(thread.registry.now.standby)


def test_a_batch_without_the_tasks_that_reads_nothing_is_the_acknowledgement(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED)
    thread = thread_with(engine, tmp_path)
    thread.assign(KEPT)
    [request] = engine.asked
    assert [run.task for run in request.tasks] == [KEPT]
    assert (request.inputs, request.changelogs) == ({}, {})
    assert not request.reads, "what was fetched for the task that stays is not thrown away"
    assert not engine.was_killed
    assert held(thread) == ({KEPT}, set())


def test_when_nothing_is_left_the_readers_hold_nothing_either(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED)
    thread = thread_with(engine, tmp_path)
    thread.assign()
    [request] = engine.asked
    assert request.reads
    assert (request.inputs, request.tasks) == ({}, ())


def test_actives_and_standbys_that_go_are_closed_in_one_batch(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED)
    thread = thread_with(engine, tmp_path)
    thread.assign(KEPT, GIVEN, standby=[COPY])
    assert held(thread) == ({KEPT, GIVEN}, {COPY})
    thread.assign(KEPT)
    [request] = engine.asked
    assert [run.task for run in request.tasks] == [KEPT]
    assert held(thread) == ({KEPT}, set())
    thread.assign()
    assert len(engine.asked) == 2, "what was closed once is forgotten"


def test_a_task_without_stores_is_given_up_at_once(tmp_path: Path) -> None:
    engine = Engine(None)
    thread = thread_with(engine, tmp_path, has_stores=())
    thread.assign(KEPT)
    assert engine.asked == []
    assert held(thread) == ({KEPT}, set())


def test_but_not_while_it_is_unknown_what_a_worker_does(tmp_path: Path) -> None:
    engine = Engine(None)
    thread = thread_with(engine, tmp_path, has_stores=())
    thread.runner.run()
    thread.assign(KEPT)
    assert engine.was_killed


def test_that_stores_could_be_closed_says_nothing_of_the_files_that_batches_failed_over(tmp_path: Path) -> None:
    failed = (SourceProgress(), WorkerDiedError("the worker died"))
    engine = Engine(Outcome.COMMITTED, [failed, failed])
    thread = thread_with(engine, tmp_path)
    thread.runner.run()
    thread.runner.run()
    thread.assign(KEPT)
    thread.runner.run()
    thread.runner.run()
    assert [[run.inspect for run in request.tasks] for request in engine.asked[-2:]] == [[True], [False]]


def test_a_state_that_a_step_before_its_owner_has_found_corrupt_is_looked_through_by_the_owner(tmp_path: Path) -> None:
    """A batch that this step fails over never gets to the owner; the next one, which only opens stores, does."""
    found = (SourceProgress(), CorruptReadError("the Spark task failed: /state/1_0/data.mdb is corrupt"))
    engine = Engine(Outcome.COMMITTED, [found])
    thread = thread_with(engine, tmp_path)
    for _ in range(3):
        thread.runner.run()
    inspected = [any(run.inspect for run in request.tasks) for request in engine.asked]
    assert inspected == [False, True, False]
    assert not engine.asked[1].inputs


def test_nor_does_it_that_they_could_be_opened_unless_all_of_them_was_read(tmp_path: Path) -> None:
    died = (SourceProgress(), WorkerDiedError("the worker died"))
    opened = (SourceProgress(), BatchReport(batch_id=1, outcome=Outcome.COMMITTED))
    engine = Engine(Outcome.COMMITTED, [opened, died, opened, died, opened])
    thread = thread_with(engine, tmp_path)
    for _ in range(6):
        thread.runner.run()
    inspected = [any(run.inspect for run in request.tasks) for request in engine.asked]
    assert inspected == [False, False, False, False, True, False]


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.FENCED, None], ids=["lost", "fenced", "failed"])
def test_without_the_acknowledgement_the_workers_are_killed(tmp_path: Path, outcome: Outcome | None) -> None:
    engine = Engine(outcome)
    thread = thread_with(engine, tmp_path)
    thread.assign(KEPT)
    assert engine.was_killed
    assert held(thread) == ({KEPT}, set())


def test_a_thread_that_has_failed_runs_no_batch_to_close_its_stores(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED)
    thread = thread_with(engine, tmp_path)
    thread.runner.fail()
    thread.assign()
    assert engine.asked == []
    assert engine.was_killed


def test_a_task_that_becomes_a_standby_keeps_its_stores_open_and_asks_for_no_acknowledgement(tmp_path: Path) -> None:
    engine = Engine(None)
    thread = thread_with(engine, tmp_path)
    epoch = thread.registry.now.active[GIVEN].epoch
    thread.assign(KEPT, standby=[GIVEN])
    assert engine.asked == []
    assert held(thread) == ({KEPT}, {GIVEN})
    assert thread.registry.now.standby[GIVEN].epoch == epoch, "the owner's epoch stays, so the worker closes nothing"


def test_a_task_that_was_a_standby_meanwhile_is_told_from_the_one_before(tmp_path: Path) -> None:
    """Operators of before keep in memory what the changelog has moved on from."""
    thread = thread_with(Engine(None), tmp_path)
    before = thread.registry.now.active[GIVEN]
    thread.assign(KEPT, standby=[GIVEN])
    thread.assign(KEPT, GIVEN)
    after = thread.registry.now.active[GIVEN]
    assert (after.epoch, after.demotions) == (before.epoch, before.demotions + 1)


def test_a_thread_that_is_to_end_leaves_when_its_stores_are_closed(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED)
    thread = thread_with(engine, tmp_path)
    thread.changes.step(CloseRequested())
    [request] = engine.asked
    assert request.tasks == ()
    assert thread.changes.are_over
    assert held(thread) == (set(), set())


@pytest.mark.parametrize("outcome", [None, Outcome.LOST], ids=["failed", "lost"])
def test_workers_are_told_that_the_driver_has_fenced_their_producer(tmp_path: Path, outcome: Outcome | None) -> None:
    engine = Engine(outcome)
    thread = thread_with(engine, tmp_path)
    thread.runner.run()
    thread.runner.run()
    before, after = (unpack(pack(request), BatchRequest).fences for request in engine.asked)
    assert after == before + 1


def test_the_instance_hears_of_new_tasks_before_anything_is_done_for_them(tmp_path: Path) -> None:
    """It is RUNNING until then, with tasks that don't run yet."""
    thread = thread_with(Engine(Outcome.COMMITTED), tmp_path, has_stores=())
    thread.told.clear()
    thread.assign(KEPT, GIVEN, NEW)
    assert thread.told == [frozenset({KEPT, GIVEN, NEW})]


@pytest.mark.parametrize(
    "event", [MembershipLost(reason="evicted", incarnation=1), RevokeAllRequested(reason="a join")], ids=["lost", "revoked"]
)
def test_the_instance_hears_that_a_thread_without_tasks_is_no_longer_assigned(
    tmp_path: Path, event: MembershipLost | RevokeAllRequested
) -> None:
    thread = ThreadAlone(Engine(None), tmp_path)
    thread.assign()
    thread.told.clear()
    thread.events.put(event)
    thread.changes.take_events(0)
    assert not thread.changes.is_assigned
    assert thread.told == [frozenset()]
