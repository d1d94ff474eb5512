"""A deadline: the end of a wait, or the time from which something is due again.

Decides only how much time is left, on the monotonic clock. What is waited for, and what happens at the deadline, is up to
the caller.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta


def seconds(timeout: float | timedelta) -> float:
    """The limit of a wait as a program gives it.

    Raises:
        TypeError: it is neither a number of seconds nor a ``timedelta``.
        ValueError: it is negative.
    """
    limit_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not isinstance(limit_s, (int, float)):
        raise TypeError(f"timeout is {timeout!r} of type {type(timeout).__name__}, expected seconds or a timedelta")
    if not limit_s >= 0:
        raise ValueError(f"timeout is {limit_s} s, expected one from 0 on")
    return limit_s


@dataclass(frozen=True, slots=True)
class Deadline:
    """``at_s``: on ``time.monotonic``, so of this process only."""

    at_s: float

    @classmethod
    def after(cls, limit_s: float) -> Deadline:
        """The deadline that is ``limit_s`` seconds from now."""
        return cls(time.monotonic() + limit_s)

    @property
    def left_s(self) -> float:
        """Seconds that are left; 0 when it is over, and never more than a lock can wait (so of infinity, some 292 years)."""
        return min(max(0.0, self.at_s - time.monotonic()), threading.TIMEOUT_MAX)

    @property
    def is_over(self) -> bool:
        """True from the deadline on."""
        return time.monotonic() >= self.at_s
