"""Aggregations in sliding windows (KStreamSlidingWindowAggregate).

A window holds records that are at most ``difference`` apart, both ends included. A record at t makes the window that ends at
t (its left one), and the one that begins at t + 1 (its right one) once a later record lies in it; so does, for its sake, the
record before it. Records before ``difference`` share the window [0, difference] for their left one. Null keys and null values
are dropped; a record is too late if t + difference < stream time - grace, a window if its end is.

The order of results is Kafka Streams': existing windows from the newest to the oldest, then the previous record's right
window, the left one, the right one. Of early records: existing ones from the oldest, the right one, the previous record's
right one, [0, difference]. Kafka Streams emits no final results after an early record; neither is it done here.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.operators.context import AsOfGetter, Context
from tidemill.operators.emit_final import NONE_YET, CloseRounds
from tidemill.operators.record import Change, Record
from tidemill.operators.segments import LONG_MAX
from tidemill.operators.time_windows import TimeWindowAggregate
from tidemill.operators.window_store import TimestampedWindowStore
from tidemill.operators.windowed_aggregation import has_for_itself, require_windowed, steps_of
from tidemill.topology import operations as op
from tidemill.topology.values import TableRow, Value, is_immutable
from tidemill.topology.windows import SlidingWindows, Windowed

_Aggregate = TableRow
"""(aggregate, the latest timestamp in it)"""


class _Neighbours(NamedTuple):
    """The existing windows around a record: their starts, the aggregates on both sides, the record before it. ``left_start``:
    of the window whose aggregate is ``left``."""

    starts: set[int]
    left: _Aggregate | None
    right: _Aggregate | None
    left_start: int | None
    has_left_window: bool
    previous: int | None


class SlidingWindowAggregate:
    """KStreamSlidingWindowAggregate, of updates or, where the operation says so, of final results."""

    get_as_of: AsOfGetter | None = None

    def __init__(self, operation: op.WindowAggregate, context: Context) -> None:
        assert isinstance(operation.windows, SlidingWindows)
        self._difference, self._grace = operation.windows.difference, operation.windows.grace
        self._begin, self._add, _ = steps_of(operation.aggregation)
        self._store: TimestampedWindowStore = context.store(operation.store)
        self._clock = self._store.clock(context.node, is_alone=has_for_itself(context.topology, operation.store))
        self._drop, self._sends_old = context.drop, context.sends_old
        self._sends_initial = context.sends_old and not context.is_cached(operation.store)
        self._changed = context.changed(operation.store)
        self._rounds = (
            CloseRounds(context, self._clock, operation.store, self._store, self._closing) if operation.emit_final else None
        )
        self._raw = b""
        self._close_time = 0

    def process(self, record: Record) -> None:
        key, value, timestamp, _headers = record
        if key is None or value is None:
            self._drop()
            return
        clock, difference = self._clock, self._difference
        if timestamp > clock.stream_time:
            clock.stream_time = timestamp
        self._close_time = close_time = clock.stream_time - self._grace
        if timestamp + difference < close_time:
            self._drop()
            return
        self._raw = self._store.encode_key(key) or b""
        if timestamp < difference:
            self._process_early(record)
            return
        if self._rounds is not None:
            self._rounds.before(record, close_time)
        neighbours = self._update_existing(record)
        if neighbours is not None:
            self._make_new(record, neighbours)
        if self._rounds is not None:
            self._rounds.after(record, close_time)

    def _closing(self, close_time: int, emitted: int) -> tuple[int, int] | None:
        """``Closing``, by the starts of windows."""
        last = close_time - self._difference - 1
        first = 0 if emitted == NONE_YET else max(0, emitted - self._difference)
        return (first, last) if last >= 0 else None

    def _update_existing(self, record: Record) -> _Neighbours | None:
        """Adds the record to the windows that it lies in; None if all that it needs exist."""
        timestamp, difference = record.timestamp, self._difference
        starts: set[int] = set()
        left = right = left_start = previous = None
        has_left_window = False
        windows = self._store.range_at(self._raw, max(0, timestamp - 2 * difference), timestamp + 1, reverse=True)
        for start, aggregate in windows:
            starts.add(start)
            end, latest = start + difference, aggregate[1]
            if start == timestamp + 1:
                continue
            if end > timestamp:
                right = right or aggregate
                self._update(record, start, aggregate)
            elif end == timestamp:
                has_left_window = True
                self._update(record, start, aggregate)
                if latest >= timestamp:
                    return None
                previous = latest
            else:
                left, left_start, previous = aggregate, start, latest
                break
        return _Neighbours(starts, left, right, left_start, has_left_window, previous)

    def _make_new(self, record: Record, neighbours: _Neighbours) -> None:
        timestamp, difference = record.timestamp, self._difference
        starts, left, right, left_start, has_left_window, previous = neighbours
        if previous is not None and previous + 1 not in starts and previous + 1 + difference >= timestamp:
            self._update(record, previous + 1, (self._begin(), timestamp), is_new=True)
        if not has_left_window:
            is_empty = previous is None or previous < timestamp - difference or left is None
            before = self._begin() if is_empty or left is None else left[0]
            begins_as = None if is_empty else left_start
            self._update(record, timestamp - difference, (before, timestamp), is_new=True, begins_as=begins_as)
        if timestamp + 1 not in starts and right is not None and right[1] > timestamp:
            self._copy_to_right(record, right)

    def _process_early(self, record: Record) -> None:
        timestamp = record.timestamp
        starts: set[int] = set()
        shared = right = previous = None
        for start, aggregate in self._store.range_at(self._raw, 0, timestamp + 1):
            starts.add(start)
            if start == 0:
                shared = aggregate
                if aggregate[1] < timestamp:
                    previous = aggregate[1]
            elif start <= timestamp:
                right = aggregate
                self._update(record, start, aggregate)
        if right is None and shared is not None and shared[1] > timestamp:
            right = shared
        if timestamp + 1 not in starts and right is not None and right[1] > timestamp:
            self._copy_to_right(record, right)
        if previous is not None and previous + 1 not in starts:
            self._update(record, previous + 1, (self._begin(), timestamp), is_new=True)
        self._update(record, 0, shared or (self._begin(), timestamp), is_new=shared is None)

    def _update(
        self, record: Record, start: int, aggregate: _Aggregate, *, is_new: bool = False, begins_as: int | None = None
    ) -> None:
        """Adds the record to one window, if that is still open; to a new one from ``aggregate`` on, which is that of the window
        at ``begins_as``, else the initializer's."""
        end = min(start + self._difference, LONG_MAX)
        if end < self._close_time:
            self._drop()
            return
        key, value, timestamp, headers = record
        before, latest = aggregate
        new = self._add(key, value, before if is_immutable(before) else self._unshared(before, begins_as if is_new else start))
        updated = timestamp if before is None else max(timestamp, latest)
        if not self._store.put_at(self._raw, new, start, timestamp if new is None else updated, headers):
            self._drop()
        if self._rounds is None:
            old = before if self._sends_initial or (self._sends_old and not is_new) else None
            self._changed((self._raw, start), Record(Windowed(key, start, end), Change(new, old), updated, headers), is_new)

    def _unshared(self, before: Value, start: int | None) -> Value:
        """The aggregate for the function, which may change it in place: those before are still needed as they were. ``start``:
        of the window that it is of; None: the initializer's."""
        if start is None:
            return self._begin() if self._sends_initial else before
        again = self._store.fetch_at(self._raw, start)
        return before if again is None else again[0]

    def _copy_to_right(self, record: Record, aggregate: _Aggregate) -> None:
        """Makes the record's right window: what lies behind it in the windows that it is in."""
        start = record.timestamp + 1
        value, latest = aggregate
        if not self._store.put_at(self._raw, value, start, latest):
            self._drop()
        if self._rounds is None:
            windowed = Windowed(record.key, start, min(start + self._difference, LONG_MAX))
            self._changed((self._raw, start), Record(windowed, Change(value), latest, record.headers), True)

    def get(self, windowed: Windowed) -> TableRow | None:
        """The row of a window: (value, timestamp)."""
        require_windowed(windowed)
        found: TableRow | None = self._store.fetch(windowed.key, windowed.start)
        return found


def window_aggregate(operation: op.WindowAggregate, context: Context) -> TimeWindowAggregate | SlidingWindowAggregate:
    """The operator for the kind of windows."""
    kind = SlidingWindowAggregate if isinstance(operation.windows, SlidingWindows) else TimeWindowAggregate
    return kind(operation, context)
