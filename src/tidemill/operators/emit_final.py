"""Emission of closed windows (EmitStrategy.onWindowClose): the times at which it happens, and the records forwarded.

A round is due after a record if the close time has grown since the last one that emitted, and at most once in
``emit_interval_ms`` of the wall clock. The operators say which windows close; a store ordered by time gives each of them once.

The record that closes windows may also move the store's time so far that they expire: a jump beyond the retention (by default
size + grace). So the round comes before the record is added, which is in none of them. Where the store has no cache it comes
after, and what has expired is lost, as in Kafka Streams, whose cache still gives those of time windows.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.operators.context import Context
from tidemill.operators.record import Change, Record
from tidemill.operators.segments import Clock
from tidemill.operators.session_store import SessionStore
from tidemill.operators.window_store import TimestampedWindowStore

NONE_YET = -1
Closing = Callable[[int, int], "tuple[int, int] | None"]
"""``closing(close_time, emitted)``: the first and last time, as the store orders windows, of those that closed after ``emitted``
(or ``NONE_YET``) and by ``close_time``; None: there are none."""


class CloseRounds:
    """The rounds of one operator; what it has emitted is remembered by its clock, and by the task's commits."""

    __slots__ = ("_clock", "_closing", "_context", "_interval", "_is_first", "_next", "_store")

    def __init__(
        self, context: Context, clock: Clock, name: str, store: TimestampedWindowStore | SessionStore, closing: Closing
    ) -> None:
        self._context, self._clock, self._store, self._closing = context, clock, store, closing
        self._interval = context.emit_interval_ms
        self._next = 0
        self._is_first = context.is_cached(name)
        clock.emitted = max(clock.emitted, context.emitted(name))

    def before(self, cause: Record, close_time: int) -> None:
        """To be called before ``cause`` is added."""
        if self._is_first:
            self._emit(cause, close_time)

    def after(self, cause: Record, close_time: int) -> None:
        """To be called after that."""
        if not self._is_first:
            self._emit(cause, close_time)

    def _emit(self, cause: Record, close_time: int) -> None:
        """Forwards what has closed by ``close_time``, with its own timestamps, in the store's order."""
        if not self._is_due(close_time):
            return
        times = self._closing(close_time, self._clock.emitted)
        if times is not None:
            for windowed, (value, timestamp) in self._store.take_closed(*times):
                self._context.forward(Record(windowed, Change(value), timestamp, cause.headers))
            self._clock.emitted = close_time

    def _is_due(self, close_time: int) -> bool:
        """True if closed windows are to be looked for now; then the next interval of the wall clock begins."""
        now = self._context.wall_clock
        if self._next - self._interval <= now < self._next:  # before that, the clock has been set back
            return False
        if self._context.defers:
            return False
        self._next = now + self._interval
        return self._clock.emitted == NONE_YET or self._clock.emitted < close_time
