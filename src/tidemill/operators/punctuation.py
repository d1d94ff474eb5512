"""When punctuators are due: schedules by stream time or by the wall clock, as Kafka Streams' PunctuationQueue.

Decides times only: a schedule that is due is called once however far time has jumped, and is next due on its grid. The grid
of stream time begins at 0, so that the first known stream time is a call; that of the wall clock at the time of scheduling.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Schedule:
    interval_ms: int
    call: Callable[[int], None]
    cancelled: bool = False


class Punctuations:
    """The schedules of one task by one clock. Earlier due ones go first, ties in the order of scheduling."""

    def __init__(self) -> None:
        self.due: list[tuple[int, int, _Schedule]] = []
        """A heap of what is scheduled; empty if nothing is."""
        self._made = 0

    def schedule(self, first: int, interval_ms: int, call: Callable[[int], None]) -> Callable[[], None]:
        """Calls ``call(now)`` from ``first`` on, every ``interval_ms``; the result ends it."""
        if interval_ms < 1:
            raise ValueError(f"schedule: the interval is {interval_ms} ms, expected 1 ms or more")
        schedule = _Schedule(interval_ms, call)
        self._add(first, schedule)

        def cancel() -> None:
            schedule.cancelled = True

        return cancel

    def run(self, now: int) -> None:
        """Calls what is due."""
        while self.due and self.due[0][0] <= now:
            at, _order, schedule = heapq.heappop(self.due)
            if not schedule.cancelled:
                schedule.call(now)
                missed = (now - at) // schedule.interval_ms
                self._add(at + (missed + 1) * schedule.interval_ms, schedule)

    def _add(self, at: int, schedule: _Schedule) -> None:
        self._made += 1
        heapq.heappush(self.due, (at, self._made, schedule))
