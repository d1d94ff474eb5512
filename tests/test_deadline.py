"""How much of a limit is left, by a clock that the test sets."""

from __future__ import annotations

import math
import threading
import time

import pytest

from tidemill.deadline import Deadline


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
