"""Emission of closed windows (EmitStrategy.onWindowClose): the times at which it happens, and the records forwarded.

A round is due after a record if the close time has grown since the last one that emitted, and at most once in
``emit_interval_ms`` of the wall clock. The operators choose the windows; a store ordered by time gives each
of them once. Windows that have expired meanwhile are lost, as in Kafka Streams: a jump of stream time beyond the
retention (by default size + grace) skips the windows before it.
"""

from __future__ import annotations

from tidemill.operators.context import Context
from tidemill.operators.record import Change, Record
from tidemill.operators.segments import Clock
from tidemill.operators.session_store import SessionStore
from tidemill.operators.window_store import TimestampedWindowStore

NONE_YET = -1


class CloseRounds:
    """The rounds of one operator; what it has emitted is remembered by its clock, and by the task's commits."""

    __slots__ = ("_clock", "_context", "_interval", "_next")

    def __init__(self, context: Context, clock: Clock, store: str) -> None:
        self._context, self._clock = context, clock
        self._interval = context.emit_interval_ms
        self._next = 0
        clock.emitted = max(clock.emitted, context.emitted(store))

    def is_due(self, close_time: int) -> bool:
        """True if windows that closed by ``close_time`` are to be looked for; by the clock, the next interval then begins."""
        now = self._context.wall_clock
        if self._next - self._interval <= now < self._next:  # before that, the clock has been set back
            return False
        if self._context.defers:
            return False
        self._next = now + self._interval
        return self._clock.emitted == NONE_YET or self._clock.emitted < close_time

    def emit_windows(self, store: TimestampedWindowStore, cause: Record, first: int, last: int, close_time: int) -> None:
        """Forwards the windows that begin at ``first .. last``, in the order of start and key, with their own timestamps."""
        headers = cause.headers
        for windowed, (value, timestamp) in store.take_closed(first, last):
            self._context.forward(Record(windowed, Change(value), timestamp, headers))
        self._clock.emitted = close_time

    def emit_sessions(self, store: SessionStore, cause: Record, first: int, last: int, close_time: int) -> None:
        """Forwards the sessions that end at ``first .. last``, in the order of end, start and key; their end is the timestamp."""
        headers = cause.headers
        for windowed, value in store.take_closed(first, last):
            self._context.forward(Record(windowed, Change(value), windowed.end, headers))
        self._clock.emitted = close_time
