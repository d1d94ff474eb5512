"""Giving tasks up (correctness.md, rule 12): the workers' word that their stores are closed, or the workers' death."""

from __future__ import annotations

import queue
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.config import StreamsConfig
from tidemill.errors import BatchLostError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka.group_metadata import Membership
from tidemill.membership.member_state import AssignTasks, CloseStandbys, MemberConfig, RevokeTasks
from tidemill.runtime.global_topics import GlobalTopics
from tidemill.runtime.local_state import LocalState
from tidemill.runtime.offsets import TaskFacts
from tidemill.runtime.restore_listeners import RestoreListeners
from tidemill.runtime.stream_thread import StreamThread
from tidemill.runtime.uncaught import StreamThreadExceptionResponse
from tidemill.state.directory import StateDirectory
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, request_from_json, request_to_json
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.standby import StandbyTask

KEPT, GIVEN = TaskId(0, 0), TaskId(0, 1)
NONE: frozenset[Any] = frozenset()
FACTS = TaskFacts(changelogs={}, has_stores=NONE, internal_topics=NONE, source_changelogs=NONE, topics=("in",), offset_resets={})


class Engine:
    """Its batches end as told; ``asked`` is what they were."""

    def __init__(self, outcome: Outcome | None) -> None:
        self._outcome = outcome
        self.worker_pids = {"step-1": 1}
        self.was_killed = False
        self.asked: list[BatchRequest] = []
        self.thread: StreamThread | None = None

    def run(self, patience: int = 1) -> BatchReport:
        assert self.thread is not None
        self.asked.append(self.thread.desk.current_request())
        if self._outcome is None:
            raise BatchLostError("the Spark task failed")
        return BatchReport(batch_id=1, outcome=self._outcome)

    def kill_workers(self) -> None:
        self.was_killed = True


def running(task: TaskId) -> ActiveTask:
    inputs = (TopicPartition("in", task.partition),)
    return ActiveTask(task=task, directory="d", epoch="e", inputs=inputs, changelogs={}, phase=Phase.RUNNING)


def thread_with(engine: Engine, tmp_path: Path) -> StreamThread:
    member: Any = SimpleNamespace(membership=Membership(), events=queue.SimpleQueue(), request_rejoin=lambda reason: None)
    unused: Any = None
    thread = StreamThread(
        name="thread",
        number=1,
        config=StreamsConfig.of({"application.id": "app", "bootstrap.servers": "none:1", "state.dir": str(tmp_path)}),
        facts=FACTS,
        admin=unused,
        leader=unused,
        identity=MemberConfig(process_id=ProcessId.parse("00000000-0000-0000-0000-000000000001")),
        local=LocalState(StateDirectory(tmp_path, "app"), unused, logged=(), reporter="thread"),
        make_member=lambda protocol: member,
        make_engine=unused,
        fence=lambda: None,
        first_join=unused,
        on_change=lambda: None,
        on_failure=lambda error: StreamThreadExceptionResponse.SHUTDOWN_CLIENT,
        is_paused=lambda: False,
        listeners=RestoreListeners(),
        global_topics=GlobalTopics((), unused),
    )
    engine.thread = thread
    thread._batches.engine = engine  # type: ignore[assignment]
    thread._held.take_up(AssignTasks(active=dict.fromkeys((KEPT, GIVEN), ())))
    thread._held.active = {task: running(task) for task in (KEPT, GIVEN)}
    return thread


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
