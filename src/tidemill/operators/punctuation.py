"""When punctuators are due: schedules by stream time or by the wall clock, as Kafka Streams' PunctuationQueue.

Decides times, and the order of schedules that are due at once: the earlier goes first; of equal times, that which Java's priority
queue gives, which is not always the order of scheduling. A schedule that is due is called once however far time has jumped, and
is next due on its grid. The grid of stream time begins at 0, so that the first known stream time is a call; that of the wall
clock an interval after the time of scheduling. A schedule may name the begin of its grid itself (``first_from``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.java_queue import JavaPriorityQueue


def first_from(start: int, interval_ms: int, now: int) -> int:
    """When a schedule that is anchored at ``start`` is first due (KIP-1146): then, or, where that is over, next on its grid."""
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
        """The schedules that are not cancelled, by when they are due."""

    def schedule(self, first: int, interval_ms: int, call: Callable[[int], None]) -> Callable[[], None]:
        """Calls ``call(now)`` from ``first`` on, every ``interval_ms``; the result ends it."""
        schedule = _Schedule(first, interval_ms, call)
        self.due.add(first, schedule)

        def cancel() -> None:
            schedule.cancelled = True

        return cancel

    def run(self, now: int) -> None:
        """Calls what is due."""
        while self.due and (schedule := self.due.peek()).due <= now:
            self.due.poll()
            if schedule.cancelled:
                continue
            schedule.call(now)
            if not schedule.cancelled:
                missed = (now - schedule.due) // schedule.interval_ms
                schedule.due += (missed + 1) * schedule.interval_ms
                self.due.add(schedule.due, schedule)
