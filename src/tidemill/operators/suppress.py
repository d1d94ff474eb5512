"""Suppression of a table's changes until a window has closed, or for a time (KTableSuppressProcessor).

After each change, the changes that are due by the highest timestamp that this node has seen are forwarded, the oldest first;
then, if the buffer is beyond its limits, more of the oldest, or the instance stops. Until the window closes: due at the window's
end + grace, tombstones vanish. Until a time limit: due at the time of the key's first change + the limit, tombstones are
forwarded. By the wall clock this time is when the change came here, and what is due leaves whether or not records come.
"""

from __future__ import annotations

import math

from tidemill.errors import StopError
from tidemill.operators.context import AsOfGetter, Context
from tidemill.operators.record import Record
from tidemill.operators.suppress_buffer import SuppressBuffer
from tidemill.topology import operations as op
from tidemill.topology.values import TableRow

_EARLY = "give it a larger limit or a shorter wait, or leave out shut_down_when_full, so that the oldest is sent early"


class Suppress:
    """KTableSuppressProcessor."""

    get_as_of: AsOfGetter | None = None

    def __init__(self, operation: op.Suppress, context: Context) -> None:
        self._until_close = operation.grace_ms is not None
        self._delay = (operation.grace_ms if operation.grace_ms is not None else operation.wait_ms) or 0
        self._max_records, self._max_bytes = operation.max_records, operation.max_bytes
        self._is_limited = operation.max_records is not None or operation.max_bytes is not None
        self._shut_down_when_full = operation.shut_down_when_full
        self._context = context
        self._buffer: SuppressBuffer = context.store(operation.store)
        self._buffer.load()
        self._on_wall_clock, self._latest = operation.on_wall_clock, math.inf
        if operation.on_wall_clock:
            context.schedule(0, True, self._look)

    def process(self, record: Record) -> None:
        buffer = self._buffer
        if record.timestamp > buffer.stream_time:
            buffer.stream_time = record.timestamp
        now = self._by_wall_clock(self._context.wall_clock) if self._on_wall_clock else buffer.stream_time
        came = now if self._on_wall_clock else record.timestamp
        buffer.put(record.key.end if self._until_close else came, record, self._context.origin)
        self._emit_until(now)
        if self._is_limited and self._is_full():
            if self._shut_down_when_full:
                raise StopError(self._full_message())
            while self._is_full() and not self._is_deferred:
                self._emit()

    def _look(self, now: int) -> None:
        self._emit_until(self._by_wall_clock(now))

    def _by_wall_clock(self, now: int) -> int:
        """What is held came at ``now`` at the latest: where the clock has been set back, or another machine's is ahead, it would
        wait for as much longer."""
        if now < self._latest:
            self._buffer.came_until(now)
        self._latest = now
        return now

    def _emit_until(self, now: int) -> None:
        due = now - self._delay
        while (oldest := self._buffer.oldest_time) is not None and oldest <= due and not self._is_deferred:
            self._emit()

    @property
    def _is_deferred(self) -> bool:
        """True if nothing may be forwarded now that has waited. Without a delay, or without room, nothing ever waits."""
        waits = self._until_close or (self._delay > 0 and self._max_records != 0 and self._max_bytes != 0)
        return waits and self._context.defers

    def _is_full(self) -> bool:
        buffer, most = self._buffer, self._max_records
        if most is not None and len(buffer) > most:
            return True
        return self._max_bytes is not None and len(buffer) > 0 and buffer.bytes_held > self._max_bytes

    def _full_message(self) -> str:
        limits = [
            f"{held} {unit} (at most {most})"
            for held, most, unit in (
                (len(self._buffer), self._max_records, "records"), (self._buffer.bytes_held, self._max_bytes, "bytes"),
            )
            if most is not None
        ]
        return (
            f"{self._context.node}: the buffer of suppress holds {' and '.join(limits)}, and is set to shut down when full:"
            f" {'give it a larger limit, or a shorter window or grace' if self._until_close else _EARLY}"
        )

    def _emit(self) -> None:
        held = self._buffer.oldest()
        if held.record.value.new is not None or not self._until_close:
            self._context.forward_as(held, held.record)
        self._buffer.drop_oldest()

    def get(self, key: object) -> TableRow | None:
        """The row as the suppressed table shows it: what it was before a change that is still held, else the parent's."""
        is_held, value = self._buffer.prior(key)
        if is_held:
            return None if value is None else (value, -1)
        return self._context.table(self._context.parents[0])(key)
