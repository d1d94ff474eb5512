"""Phases of a start, in order, with the time that each took: what an instance does until every task that it was assigned runs.

Decides the phases and which of them an instance is in, by its stream threads: the earliest phase of any. Phases overlap (the
JVM starts while topics are checked, the group is joined while plans are built): what is timed is the wait for each, and a phase
that was over before it was waited for has none. How that is shown is ``cli.start_line``'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum


class StartPhase(Enum):
    """The phases of a start, in their order. The value is the name shown once the phase is over."""

    IMPORTS = "imports"
    STATE_DIRECTORY = "state directory"
    TOPICS = "topics"
    SPARK = "Spark"
    PLAN = "plan"
    JOIN = "group"
    RESTORE = "restore"


_ORDER = tuple(StartPhase)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """``over``: phases with the seconds that each took. ``now``: the one under way since ``since_s``; None if none is."""

    over: tuple[tuple[StartPhase, float], ...] = ()
    now: StartPhase | None = None
    since_s: float = 0.0


def began(times: PhaseTimes, phase: StartPhase | None, now_s: float) -> PhaseTimes:
    """The times when ``phase`` begins, which ends the one before; None: everything runs. Another start after that, such as a
    rebalance that brings tasks, is timed from its own beginning."""
    if phase is times.now:
        return times
    over = () if times.now is None else (*times.over, (times.now, now_s - times.since_s))
    return PhaseTimes(over=over, now=phase, since_s=now_s)


class StartPhases:
    """``times`` may be read by any thread; ``begin`` is called by whichever begins a phase."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s, self._lock = now_s, threading.Lock()
        self.times = PhaseTimes()

    def begin(self, phase: StartPhase | None) -> None:
        with self._lock:
            self.times = began(self.times, phase, self._now_s())


def earliest(phases: Iterable[StartPhase | None]) -> StartPhase | None:
    """The phase of an instance whose stream threads are in these; None if every one of them runs its tasks."""
    return min((phase for phase in phases if phase is not None), key=_ORDER.index, default=None)
