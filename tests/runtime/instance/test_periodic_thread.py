"""A periodic thread goes on after a call that failed, and its end waits for the call under way."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tidemill.errors import RetriableError
from tidemill.runtime.instance.periodic_thread import PeriodicThread

LIMIT_S = 60.0


def test_a_call_that_fails_is_reported_and_made_again(caplog: Any) -> None:
    calls, again = iter([RetriableError("no broker"), OSError("no disk"), RuntimeError("a fault"), None]), threading.Event()

    def call() -> None:
        if problem := next(calls, None):
            raise problem
        again.set()

    periodic = PeriodicThread("it", 0.001, call, failed="it-failed")
    periodic.start()
    assert again.wait(LIMIT_S)
    periodic.close()
    assert [message for message in caplog.messages if "it-failed" in message] == [
        "event=it-failed problem='no broker'", "event=it-failed problem='no disk'", "event=it-failed"
    ]  # fmt: skip
    [fault] = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert repr(fault) == "RuntimeError('a fault')"  # PySpark's logger, once it is there, writes texts in another form


def test_its_end_waits_for_the_call_under_way_and_no_other_is_made(caplog: Any) -> None:
    called, may_end, calls = threading.Event(), threading.Event(), []

    def call() -> None:
        calls.append(None)
        called.set()
        may_end.wait(LIMIT_S)

    periodic = PeriodicThread("it", 0.001, call, failed="it-failed")
    periodic.start()
    assert called.wait(LIMIT_S)
    periodic.close(timeout_s=0.01)
    assert "event=thread-not-ended thread=it" in caplog.text
    may_end.set()
    periodic.close(timeout_s=LIMIT_S)
    assert len(calls) == 1


def test_an_interval_beyond_what_a_lock_can_wait_is_waited_for_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return True

    with monkeypatch.context() as patched:
        patched.setattr(threading, "Event", Ended)
        periodic = PeriodicThread("it", ((1 << 63) - 1) / 1e3, lambda: None, failed="it-failed")
    periodic._run()
    assert waits == [threading.TIMEOUT_MAX]
