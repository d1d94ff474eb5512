"""How much of a limit is left, by a clock that the test sets."""

from __future__ import annotations

import math
import threading
import time
from datetime import timedelta

import pytest

from tidemill.deadline import Deadline, seconds


@pytest.mark.parametrize(
    ("passed_s", "left_s", "is_over"), [(0.0, 2.5, False), (2.0, 0.5, False), (2.5, 0.0, True), (9.0, 0.0, True)]
)
def test_what_is_left_never_falls_below_nothing(
    monkeypatch: pytest.MonkeyPatch, passed_s: float, left_s: float, is_over: bool
) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    deadline = Deadline.after(2.5)
    now_s += passed_s
    assert (deadline.left_s, deadline.is_over) == (left_s, is_over)


def test_without_an_end_no_more_is_left_than_can_be_waited() -> None:
    assert threading.Lock().acquire(timeout=Deadline.after(math.inf).left_s)
    assert not Deadline.after(math.inf).is_over


@pytest.mark.parametrize("timeout", [-1, -0.5, timedelta(seconds=-1), math.nan])
def test_a_limit_before_now_is_refused(timeout: float | timedelta) -> None:
    with pytest.raises(ValueError, match="expected one from 0 on"):
        seconds(timeout)


def test_a_limit_is_in_seconds_or_a_timedelta() -> None:
    assert [seconds(0), seconds(1.5), seconds(timedelta(minutes=1)), seconds(math.inf)] == [0, 1.5, 60, math.inf]
