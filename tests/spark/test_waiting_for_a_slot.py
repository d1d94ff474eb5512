"""A batch whose job waits for a task slot is told apart from one whose job Spark has only just queued; nobody waits for one that
is given up, and a job that does not end is said in the log."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.errors import NoExecutorError, NoSlotError
from tidemill.spark.engine import BatchEngine

DONE = object()


class Unbegun:
    """A run whose request nobody has taken, for so many looks."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def wait(self, limit_s: float) -> object:
        assert limit_s > 0
        self._left -= 1
        if self._left < 0:
            return DONE
        raise TimeoutError

    def withdraw(self) -> bool:
        return True


def awaited(monkeypatch: pytest.MonkeyPatch, looks: Sequence[bool]) -> object:
    seen = iter(looks)
    monkeypatch.setattr(BatchEngine, "_waits_for_a_slot", lambda self, run: next(seen))
    engine: Any = BatchEngine.__new__(BatchEngine)
    engine._thread, engine._placement, engine._is_given_up = "thread-1", SimpleNamespace(slots=2), lambda: False
    return engine._await_report(Unbegun(len(looks)), 60.0)


@pytest.mark.parametrize("looks", [(), (True,), (True, False, True), (False, True)])
def test_a_job_that_runs_no_task_at_one_look_is_waited_for(monkeypatch: pytest.MonkeyPatch, looks: Sequence[bool]) -> None:
    assert awaited(monkeypatch, looks) is DONE


def test_a_job_that_runs_no_task_at_two_looks_in_a_row_has_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoSlotError, match="no task slot is free for thread-1: other jobs have all 2"):
        awaited(monkeypatch, (False, True, True))


def test_a_batch_that_nobody_waits_for_any_more_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was to start the workers of a thread that is stopped meanwhile."""
    looks = iter((False, True))
    ended: list[object] = []
    monkeypatch.setattr(BatchEngine, "_waits_for_a_slot", lambda self, run: False)
    monkeypatch.setattr(BatchEngine, "_end_by_force", lambda self, run, cancel_at_once: ended.append((run, cancel_at_once)))
    engine: Any = BatchEngine.__new__(BatchEngine)
    engine._is_given_up = lambda: next(looks)
    run = Unbegun(5)
    with pytest.raises(NoExecutorError, match="its thread was stopped before its workers had begun"):
        engine._await_report(run, 60.0)
    assert ended == [(run, True)]


def test_the_job_of_one_that_is_given_up_is_cancelled_after_its_workers_are_ended() -> None:
    done: list[str] = []
    run: Any = SimpleNamespace(number=7, end=lambda: done.append("ended"), wait_over=lambda limit_s: True)
    engine: Any = BatchEngine.__new__(BatchEngine)
    engine._thread, engine.kill_workers = "thread-1", lambda: done.append("workers killed")
    engine._session = SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=lambda group: done.append("cancelled")))
    engine._end_by_force(run, cancel_at_once=True)
    assert done == ["ended", "workers killed", "cancelled"]


def test_a_job_that_goes_on_is_cancelled_again_and_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    looks, cancelled = iter((False, False, True)), list[str]()
    run: Any = SimpleNamespace(number=7, end=lambda: None, wait_over=lambda limit_s: next(looks))
    engine: Any = BatchEngine.__new__(BatchEngine)
    engine._thread, engine._workers = "thread-1", {}
    engine._session = SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=cancelled.append))
    engine._end_by_force(run)
    assert cancelled == ["tidemill-run-7"] * 2
    said = [line for line in caplog.messages if "event=run-goes-on thread=thread-1 job_group=tidemill-run-7" in line]
    assert len(said) == len(cancelled)
