"""Aggregations in tumbling, hopping and unlimited windows, and in those of the program's own (KStreamWindowAggregate).

Null keys are dropped; null values are not, the aggregation gets them. A window takes records while its end is later than
stream time - grace, where stream time is the highest timestamp that this operator has seen with a key; each window that a
record comes too late for counts as a drop. The result's timestamp is the later of the stored one and the record's.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.operators.aggregates import beginning
from tidemill.operators.context import AsOfGetter, Context
from tidemill.operators.emit_final import NONE_YET, CloseRounds
from tidemill.operators.record import Change, Record
from tidemill.operators.segments import LONG_MAX
from tidemill.operators.window_store import TimestampedWindowStore
from tidemill.operators.windowed_aggregation import has_for_itself, require_windowed, steps_of
from tidemill.topology import operations as op
from tidemill.topology.values import TableRow, is_immutable
from tidemill.topology.windows import TimeWindows, Windowed, Windows


class TimeWindowAggregate:
    """KStreamWindowAggregate, of updates or, where the operation says so, of final results."""

    get_as_of: AsOfGetter | None = None

    def __init__(self, operation: op.WindowAggregate, context: Context) -> None:
        windows = operation.windows
        assert isinstance(windows, Windows)
        self._windows_at, self._advance = windows.windows_at, windows.advance if isinstance(windows, TimeWindows) else 0
        self._size, self._grace = LONG_MAX if windows.size is None else windows.size, windows.grace
        self._is_tumbling = self._advance == windows.size
        initializer, self._add, _ = steps_of(operation.aggregation)
        self._begin = beginning(initializer, context, operation.store)
        self._store: TimestampedWindowStore = context.store(operation.store)
        self._clock = self._store.clock(context.node, is_alone=has_for_itself(context.topology, operation.store))
        self._drop, self._sends_old = context.drop, context.sends_old
        self._changed = context.changed(operation.store)
        self._rounds = (
            CloseRounds(context, self._clock, operation.store, self._store, self._closing) if operation.emit_final else None
        )

    def process(self, record: Record) -> None:
        key, value, timestamp, headers = record
        if key is None:
            self._drop()
            return
        clock, store = self._clock, self._store
        if timestamp > clock.stream_time:
            clock.stream_time = timestamp
        close_time = clock.stream_time - self._grace
        if self._rounds is not None:
            self._rounds.before(record, close_time)
        raw = store.encode_key(key) or b""
        if self._is_tumbling:
            begin = timestamp - timestamp % self._size
            windows: Iterable[tuple[int, int]] = ((begin, min(begin + self._size, LONG_MAX)),)
        else:
            windows = self._windows_at(timestamp)
        for start, end in windows:
            if end <= close_time:
                self._drop()
                continue
            found = store.fetch_at(raw, start)
            if found is None:
                (before, old), updated = self._begin(), timestamp
            else:
                old, updated = found
                # The function may change it in place, and the old one is to be sent as it was.
                before = store.fetch_at(raw, start)[0] if self._sends_old and not is_immutable(old) else old
                if updated < timestamp:
                    updated = timestamp
            new = self._add(key, value, before)
            if not store.put_at(raw, new, start, timestamp if new is None else updated, headers):
                self._drop()
            if self._rounds is None:
                change = Change(new, old if self._sends_old else None)
                self._changed((raw, start), Record(Windowed(key, start, end), change, updated, headers), found is None)
        if self._rounds is not None:
            self._rounds.after(record, close_time)

    def _closing(self, close_time: int, emitted: int) -> tuple[int, int] | None:
        """``Closing``, by the starts of windows; None while no new window can have closed."""
        last = close_time - self._size
        if last < 0:
            return None
        if emitted == NONE_YET:
            return 0, last
        before = max(0, emitted - self._size)
        return None if last // self._advance == before // self._advance else (before + 1, last)

    def get(self, windowed: Windowed) -> TableRow | None:
        """The row of a window: (value, timestamp)."""
        require_windowed(windowed)
        found: TableRow | None = self._store.fetch(windowed.key, windowed.start)
        return found
