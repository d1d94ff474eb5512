"""A thread that takes the place of one that has failed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.thread_alone import Engine, ThreadAlone
from tests.waiting import until
from tidemill.config.slices import ThreadConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import StopError
from tidemill.runtime.thread import stream_thread
from tidemill.runtime.thread.stream_thread import StreamThread
from tidemill.runtime.thread.uncaught_exception import StreamThreadExceptionResponse

LIMIT_S = 240.0


class WithoutPlan(StreamThread):
    """Its plan can't be made. ``tries``: how often that was tried."""

    def __init__(self, folder: Path, problem: BaseException | None = None) -> None:
        self.tries, self._problem = 0, problem or StopError("no plan can be made")
        parts = ThreadAlone(Engine(None), folder).parts
        member: Any = parts.group.member
        member.close = lambda leave: None
        nobody: Any = SimpleNamespace(is_at_once=lambda: False, ready=lambda name: None)
        replaced = StreamThreadExceptionResponse.REPLACE_THREAD
        instance: Any = SimpleNamespace(
            is_cut_short=lambda: False, on_failure=lambda error: replaced, on_change=lambda: None
        )
        parts.runner.close = parts.runner.end_workers = lambda: None  # type: ignore[method-assign]
        config = StreamsConfig.read_slice(ThreadConfig, {})
        super().__init__(
            name="thread", number=1, config=config, parts=parts, make_engine=self._fails, first_join=nobody, instance=instance
        )

    def _fails(self, thread: StreamThread) -> Any:
        self.tries += 1
        raise self._problem


def test_a_thread_whose_predecessor_had_no_plan_waits_before_it_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would fail at once: fifty plans a second."""
    monkeypatch.setattr(stream_thread, "_REPLACED_AFTER_S", 4 * LIMIT_S)
    failed, successor = WithoutPlan(tmp_path / "one"), WithoutPlan(tmp_path / "two")
    failed.start()
    failed.join(LIMIT_S)
    assert (failed.tries, str(failed.error)) == (1, "no plan can be made")
    successor.continue_from(failed)
    successor.start()
    assert not until(lambda: successor.tries > 0, limit_s=0.3)
    successor.stop()
    successor.join(LIMIT_S)
    assert not successor.is_alive(), "who closes the instance does not wait for the pause"


def test_a_thread_whose_predecessor_had_a_plan_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_thread, "_REPLACED_AFTER_S", 4 * LIMIT_S)
    failed, successor = WithoutPlan(tmp_path / "one"), WithoutPlan(tmp_path / "two")
    failed._has_plan = True
    successor.continue_from(failed)
    successor.start()
    successor.join(LIMIT_S)
    assert successor.tries == 1


def test_a_part_that_can_not_be_closed_keeps_a_failure_neither_from_being_told_nor_the_rest_open(tmp_path: Path) -> None:
    """Where the JVM is gone a job can't be cancelled. The instance would be RUNNING, without a thread that is replaced."""

    def fail() -> None:
        raise ConnectionRefusedError("the JVM does not answer")

    failed, told, ended = WithoutPlan(tmp_path), list[object](), list[str]()
    failed._runner.close = fail  # type: ignore[method-assign]
    failed._runner.end_workers = lambda: ended.append("workers")  # type: ignore[method-assign]
    failed._local.ended = lambda: ended.append("tasks")  # type: ignore[method-assign]
    instance: Any = failed._instance
    instance.on_change = lambda: told.append(failed.response)
    failed.start()
    failed.join(LIMIT_S)
    assert (ended, told) == (["workers", "tasks"], [StreamThreadExceptionResponse.REPLACE_THREAD])


def test_what_would_end_only_the_thread_is_a_failure_that_the_handler_is_asked_about(tmp_path: Path) -> None:
    """Python says nothing of a SystemExit that ends a thread: the instance would be RUNNING, and nothing would be processed."""
    failed = WithoutPlan(tmp_path, SystemExit(3))
    failed.start()
    failed.join(LIMIT_S)
    assert (str(failed.error), failed.response) == ("SystemExit: 3", StreamThreadExceptionResponse.REPLACE_THREAD)
