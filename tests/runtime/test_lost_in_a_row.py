"""What a stream thread does after batches that did not count: smaller ones, more time, a word in the log, or the end."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.thread_alone import Engine, ThreadAlone, thread_with
from tidemill.errors import (
    BatchLostError,
    BatchTimeoutError,
    FunctionFailedError,
    MisfitError,
    NoExecutorError,
    StopError,
    WorkerDiedError,
)
from tidemill.ids import TopicPartition
from tidemill.runtime.instance.instance_state import State
from tidemill.runtime.instance.instance_status import InstanceStatus
from tidemill.runtime.thread import batch_runner
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, SourceProgress
from tidemill.task.lost_batches import MOST_MISFITS

IN = TopicPartition("in", 0)
LIMIT_S = 240
NOTHING = SourceProgress()
COUNTS = BatchReport(batch_id=1, outcome=Outcome.COMMITTED, records_in=1)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_runner, "_RETRY_PAUSE_S", 0.0)


def taken(records: int) -> SourceProgress:
    return SourceProgress(records=records, first=(IN, 0), ends={IN: records})


def test_after_a_function_has_failed_the_next_batch_has_half_of_the_records_and_of_those_alone(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED, [(taken(8), FunctionFailedError("org.X", "by zero")), (taken(4), COUNTS)])
    thread = thread_with(engine, tmp_path)
    thread.runner.run()
    thread.runner.run()
    first, second = engine.asked
    assert (first.max_inputs, first.until) == (None, {})
    assert (second.max_inputs, second.until) == (4, {IN: 8})


def test_what_is_told_of_a_batch_when_the_next_one_is_under_way_is_not_told_of_that(tmp_path: Path) -> None:
    """Else a record would be refused that no function has failed on."""
    looked, next_is_under_way = threading.Event(), threading.Event()
    late: list[threading.Thread] = []

    class ComparedSlowly(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            is_equal = super().__eq__(other)
            looked.set()
            next_is_under_way.wait(LIMIT_S)
            return is_equal

    class Slow(Engine):
        def run(self, request: BatchRequest, patience: int = 1, *, has_backlog: bool = False) -> BatchReport:
            self.asked.append(request)
            if len(self.asked) == 1:
                assert self.driver is not None
                told = ComparedSlowly(request.batch_id), taken(1)
                late.append(threading.Thread(target=self.driver.source_advanced, args=told, daemon=True))
                late[0].start()
                assert looked.wait(LIMIT_S)
                raise WorkerDiedError("killed")
            next_is_under_way.set()
            late[0].join(LIMIT_S)
            raise FunctionFailedError("org.X", "by zero")

    thread = thread_with(engine := Slow(Outcome.COMMITTED), tmp_path)
    for _ in range(3):
        thread.runner.run()
    assert engine.asked[2].refused == ()


def test_a_batch_whose_functions_were_done_has_run_however_late_the_word_of_what_it_read_comes(tmp_path: Path) -> None:
    class Late(Engine):
        def run(self, request: BatchRequest, patience: int = 1, *, has_backlog: bool = False) -> BatchReport:
            assert self.driver is not None
            self.driver.has_run(request.batch_id)
            return super().run(request, patience, has_backlog=has_backlog)

    thread = thread_with(engine := Late(Outcome.COMMITTED, [(taken(1), BatchTimeoutError("too long"))]), tmp_path)
    thread.runner.run()
    thread.runner.run()
    assert engine.patience == [1, 1], "it was the commit that took so long"


def test_global_topics_hear_of_a_batch_that_gave_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bool] = []
    monkeypatch.setattr(GlobalTopics, "lost", lambda topics: heard.append(topics.are_any))
    thread = thread_with(Engine(Outcome.COMMITTED, [(taken(1), WorkerDiedError("killed")), (taken(1), COUNTS)]), tmp_path)
    thread.runner.run()
    thread.runner.run()
    assert len(heard) == 1


def test_the_record_that_is_to_blame_is_named_in_the_requests_that_follow(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED, [(taken(1), FunctionFailedError("org.X", "by zero"))])
    thread = thread_with(engine, tmp_path)
    thread.runner.run()
    thread.runner.run()
    [refused] = engine.asked[1].refused
    assert (refused.at, refused.offset, refused.error, refused.message) == (IN, 0, "org.X", "by zero")


def test_what_took_too_long_alone_gets_more_time_and_the_log_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(Outcome.COMMITTED, [(taken(1), BatchTimeoutError("too long"))])
    thread = thread_with(engine, tmp_path)
    with caplog.at_level(logging.WARNING):
        thread.runner.run()
    thread.runner.run()
    assert engine.patience == [1, 2]
    [said] = [line for line in caplog.messages if "event=batch-resized" in line]
    assert "first=in-0@0" in said
    assert "next_limit_s=120" in said


def test_a_worker_that_died_over_restored_records_gets_fewer_of_them(tmp_path: Path) -> None:
    engine = Engine(Outcome.COMMITTED, [(SourceProgress(restored=100), WorkerDiedError("killed"))])
    thread = thread_with(engine, tmp_path)
    thread.runner.run()
    thread.runner.run()
    assert (engine.asked[1].max_restore_records, engine.asked[1].max_standby_records) == (50, 50)
    assert engine.asked[1].max_inputs is None


def test_what_does_not_fit_together_ends_the_thread_after_so_many_batches_with_its_cause(tmp_path: Path) -> None:
    misfit = BatchReport(batch_id=1, outcome=Outcome.LOST, message="in-0 was read from 5", is_misfit=True)
    thread = thread_with(Engine(None, [(NOTHING, misfit), (NOTHING, MisfitError("no plan"))] * MOST_MISFITS), tmp_path)
    for _ in range(MOST_MISFITS - 1):
        thread.runner.run()
    with pytest.raises(StopError, match=f"{MOST_MISFITS} batches in a row could not be used, the last because no plan"):
        thread.runner.run()


def test_what_brokers_and_clusters_cause_is_tried_on_said_now_and_then_and_makes_the_instance_not_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    causes = [BatchLostError("no coordinator"), NoExecutorError("no executor has a slot"), BatchLostError("no coordinator")]
    fenced = BatchReport(batch_id=1, outcome=Outcome.FENCED, message="the group has moved on")
    script = [(NOTHING, end) for end in [*causes, fenced] * 10]
    thread = thread_with(Engine(Outcome.COMMITTED, script), tmp_path)
    status = _status(thread)
    with caplog.at_level(logging.WARNING):
        for number in range(40):
            assert status.ready()[0] == (number < 5)
            thread.runner.run()
    assert "thread 1: the last 40 batches did not count: the group has moved on" in status.ready()[1][0]
    said = [line for line in caplog.messages if "event=no-batch-counts" in line]
    assert [int(line.split("count=")[1].split()[0]) for line in said] == [5, 10, 20, 40]
    assert thread.metrics.lost == 30, "what did not begin is no lost batch"
    thread.run_all()
    thread.runner.run()
    assert status.ready() == (True, ())


def test_a_batch_that_only_opens_stores_again_does_not_hide_that_the_same_record_is_lost_over_and_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow = BatchTimeoutError("too long")
    opened = BatchReport(batch_id=1, outcome=Outcome.COMMITTED)
    thread = thread_with(Engine(Outcome.COMMITTED, [(taken(1), slow), (NOTHING, opened)] * 5), tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            thread.runner.run()  # lost: the tasks look up again where they begin
            thread.runner.run()  # reads nothing until they know
            thread.run_all()
    assert "the last 5 batches did not count: too long" in _status(thread).ready()[1][0]
    assert "event=no-batch-counts" in caplog.text
    said = [line for line in caplog.messages if "event=batch-lost" in line]
    assert [int(line.split("failures=")[1]) for line in said] == [1, 2, 3, 4, 5]
    thread.runner.run()
    assert _status(thread).ready() == (True, ())


def test_a_batch_that_restores_or_a_thread_without_active_tasks_has_got_on(tmp_path: Path) -> None:
    restored = BatchReport(batch_id=1, outcome=Outcome.COMMITTED, records_restored=3)
    thread = thread_with(Engine(Outcome.COMMITTED, [(taken(1), WorkerDiedError("killed")), (NOTHING, restored)]), tmp_path)
    thread.runner.run()
    assert thread.lost_in_a_row.count == 1
    thread.runner.run()
    assert thread.lost_in_a_row.count == 0
    idle = ThreadAlone(Engine(Outcome.COMMITTED, [(NOTHING, WorkerDiedError("killed"))]), tmp_path / "idle")
    idle.runner.run()
    idle.runner.run()
    assert idle.lost_in_a_row.count == 0


def test_a_batch_that_has_outlasted_its_membership_says_which_setting_and_over_which_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an endless round of rebalances tells only that the group has moved on."""
    fenced = BatchReport(batch_id=1, outcome=Outcome.FENCED, message="the group has moved on")
    now = [0.0]

    class Slow(Engine):
        def run(self, request: BatchRequest, patience: int = 1, *, has_backlog: bool = False) -> BatchReport:
            now[0] += 301 if len(self.asked) else 299
            return super().run(request, patience, has_backlog=has_backlog)

    monkeypatch.setattr(batch_runner, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _s: None))
    thread = thread_with(Slow(None, [(taken(2), fenced), (taken(2), fenced)]), tmp_path)
    thread.runner.run()
    assert thread.lost_in_a_row.reason == "the group has moved on"
    thread.runner.run()
    said = thread.lost_in_a_row.reason
    assert "of 2 records, the first in-0@0, has taken 301.0 s, longer than max.poll.interval.ms=300000" in said


def _status(thread: object) -> InstanceStatus:
    """Of an instance that is RUNNING, with this thread."""
    status: Any = object.__new__(InstanceStatus)
    status._state, status._threads, status._error = SimpleNamespace(now=State.RUNNING), [thread], lambda: None
    return status  # type: ignore[no-any-return]
