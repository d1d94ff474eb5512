"""Schedules of punctuators by stream time or by the wall clock: Kafka Streams' PunctuationQueue.

Decides the times, and the order of schedules that are due together: the earlier first; for equal times the order of Java's
priority queue, which is not always the order of scheduling. A schedule that is due is called once however far time has jumped,
and is next due on its grid. The grid of stream time begins at 0, so that the first known stream time is a call; that of the wall
clock an interval after the time of scheduling. A schedule may name the start of its grid (``first_from``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.java_collections.priority_queue import JavaPriorityQueue


def first_from(start: int, interval_ms: int, now: int) -> int:
    """First time of a schedule that is anchored at ``start`` (KIP-1146): ``start``, or the next time of its grid after
    ``now``."""
    return start if start >= now else start + ((now - start) // interval_ms + 1) * interval_ms


@dataclass(slots=True)
class _Schedule:
    due: int
    interval_ms: int
    call: Callable[[int], None]
    cancelled: bool = False


class Punctuations:
    """The schedules of one task by one clock."""

    def __init__(self) -> None:
        self.due: JavaPriorityQueue[_Schedule] = JavaPriorityQueue()
        """The schedules that are not cancelled, by their next time."""
        self._each: list[Callable[[int], None]] = []

    def schedule(self, first: int, interval_ms: int, call: Callable[[int], None]) -> Callable[[], None]:
        """Calls ``call(now)`` from ``first`` on, every ``interval_ms``; the result ends it. 0: each time, whatever the clock
        shows, though it be set back."""
        if not interval_ms:
            self._each.append(call)
            return lambda: self._each.remove(call)
        schedule = _Schedule(first, interval_ms, call)
        self.due.add(first, schedule)

        def cancel() -> None:
            schedule.cancelled = True

        return cancel

    def run(self, now: int) -> None:
        """Calls what is due."""
        for call in self._each:
            call(now)
        while self.due and (schedule := self.due.peek()).due <= now:
            self.due.poll()
            if schedule.cancelled:
                continue
            schedule.call(now)
            if not schedule.cancelled:
                missed = (now - schedule.due) // schedule.interval_ms
                schedule.due += (missed + 1) * schedule.interval_ms
                self.due.add(schedule.due, schedule)
