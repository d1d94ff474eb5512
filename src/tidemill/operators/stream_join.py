"""Joins of two streams in windows of time: each side's record joins what the other side's window store holds.

Decides with Kafka Streams' rules. A record of the right side matches a left one if it is from ``before`` earlier to ``after``
later, and the store still shows it. A record that waited without a match is forwarded once its window is closed for the highest
timestamp of both sides, at the next record that has this timestamp. Leaves how long rows are
kept to ``window_store``, the order of what waits to ``outer_join_store``.

A record that comes after its window has closed is forwarded without a match at once, whatever the grace period. Null values
are dropped; so are null keys, except on a side whose records are forwarded without a match: these are at once (KIP-962).
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.operators.context import Context
from tidemill.operators.outer_join_store import NOT_LOOKED_YET, NOTHING_WAITS, OuterJoinStore
from tidemill.operators.record import Record
from tidemill.operators.stateless import plain
from tidemill.operators.window_store import WindowStore
from tidemill.topology import join_operations as op
from tidemill.topology.functions import JoinFunction, OfColumns
from tidemill.topology.values import Key, Value

Joiner = Callable[[Key, Value, Value], Value]
"""(key, left, right) -> value."""


def with_key(joiner: JoinFunction, takes_key: bool) -> Joiner:
    """A joiner as a function of key and both values."""
    assert not isinstance(joiner, OfColumns), "the plan has such joins in another form"
    function = plain(joiner)
    return function if takes_key else lambda _key, left, right: function(left, right)


class JoinWindowed:
    """KSTREAM-WINDOWED: passes the record on, then keeps it for the other side's later records."""

    def __init__(self, operation: op.JoinWindowed, context: Context) -> None:
        self._context = context
        self._forward = context.forward
        self._store: WindowStore = context.store(operation.store)

    def process(self, record: Record) -> None:
        self._forward(record)
        key, value, timestamp, headers = record
        if key is not None and not self._store.put(key, value, timestamp, timestamp, headers):
            self._context.drop()


class StreamStreamJoin:
    """KStreamKStreamJoin of one side."""

    def __init__(self, operation: op.StreamStreamJoin, context: Context) -> None:
        self._context = context
        self._forward = context.forward
        self._other: WindowStore = context.store(operation.other_store)
        self._is_left = operation.is_left
        self._outer = operation.outer
        windows = operation.windows
        self._windows = windows
        earlier, later = (windows.before, windows.after) if operation.is_left else (windows.after, windows.before)
        self._earlier, self._later = earlier, later
        self._waits: OuterJoinStore | None = None if operation.outer_store is None else context.store(operation.outer_store)
        if self._waits is not None:
            # of a restored task: records that found a match are in the changelogs of the window stores only
            own: WindowStore = context.store(operation.own_store)
            restored = max(own.clock(context.node).stream_time, self._other.clock(context.node).stream_time)
            self._waits.clock.stream_time = max(self._waits.clock.stream_time, restored)
        joiner = with_key(operation.joiner, operation.takes_key)
        self._joiner = joiner
        self._join: Joiner = joiner if operation.is_left else lambda key, this, other: joiner(key, other, this)

    def process(self, record: Record) -> None:
        key, value, timestamp, headers = record
        waits = self._waits
        if waits is not None and timestamp > waits.clock.stream_time:
            waits.clock.stream_time = timestamp
        if key is None or value is None:
            if self._outer and value is not None:
                self._forward(Record(key, self._join(key, value, None), timestamp, headers))
            else:
                self._context.drop()
            return
        if waits is not None and timestamp == waits.clock.stream_time:
            self.emit_closed(waits, record)
        other, join, forward = self._other, self._join, self._forward
        raw = other.encode_key(key) or b""
        last = timestamp + self._later
        matches = other.range_at(raw, max(timestamp - self._earlier, 0), max(last, 0))
        for other_time, other_value in matches:
            if waits is not None:
                waits.discard(other_time, not self._is_left, raw, timestamp)
            forward(Record(key, join(key, value, other_value), timestamp if timestamp > other_time else other_time, headers))
        if self._outer and not matches:
            self.wait_or_go_on(record, max(last, 0))

    def wait_or_go_on(self, record: Record, last: int) -> None:
        """Handles a record without a match, of a side whose records are forwarded without one; ``last``: the window's end."""
        key, value, timestamp, headers = record
        waits = self._waits
        assert waits is not None
        clock = waits.clock
        if last < clock.stream_time:
            self._forward(Record(key, self._join(key, value, None), timestamp, headers))
            return
        clock.min_time = min(clock.min_time, timestamp)
        waits.add(timestamp, self._is_left, key, value)

    def emit_closed(self, waits: OuterJoinStore, record: Record) -> None:
        """Forwards waiting records whose windows are closed, without a match.

        ``min_time`` is what Kafka Streams has: where the look ended, which may be later than the least that waits. It decides
        whether a look is worth it, by this side's window, so it is part of what is emitted when.
        """
        clock, grace, windows = waits.clock, self._windows.grace, self._windows
        if clock.min_time == NOT_LOOKED_YET:
            clock.min_time = waits.least_time()
        if clock.min_time == NOTHING_WAITS:
            if self._later + grace <= 0:
                return  # in Java the sum overflows for all others, and they look
        elif clock.min_time + self._later + grace >= clock.stream_time:
            return
        now, interval = self._context.wall_clock, self._context.emit_interval_ms
        if clock.next_look - interval <= now < clock.next_look:  # before that, the clock has been set back
            return
        if self._context.defers:
            return
        clock.next_look = now + interval
        clock.min_time = NOTHING_WAITS
        left_open = right_open = False
        gone: list[bytes] = []
        first_open = NOTHING_WAITS
        stream_time, joiner, forward = clock.stream_time, self._joiner, self._forward
        for timestamp, is_left, row_key, row in waits.rows():
            clock.min_time = timestamp
            if left_open and right_open:
                break
            if timestamp + (windows.after if is_left else windows.before) + grace >= stream_time:
                first_open = min(first_open, timestamp)
                if is_left:
                    left_open = True
                else:
                    right_open = True
                if left_open and right_open and waits.count(row) > 1:
                    break  # Kafka Streams looks at each value: the second one of this row ends its look
                continue
            _time, _side, key, values = waits.read(row_key, row)
            for at, value in enumerate(values):
                try:
                    joined = joiner(key, value, None) if is_left else joiner(key, None, value)
                except BaseException as problem:  # this one waits no longer: the next look would forward those before it again
                    self._context.refuse(waits.waited(row_key, row, at), problem)
                    continue
                forward(Record(key, joined, timestamp, record.headers))
            gone.append(row_key)
        waits.floor = first_open
        for row_key in gone:
            waits.delete(row_key, record.timestamp)


class StreamSelfJoin:
    """KStreamKStreamSelfJoin: a stream with itself, over one store; the results and their order are those of two stores."""

    def __init__(self, operation: op.StreamSelfJoin, context: Context) -> None:
        self._context = context
        self._forward = context.forward
        self._store: WindowStore = context.store(operation.store)
        self._windows = operation.windows
        self._retention = operation.windows.before + operation.windows.after + operation.windows.grace
        self._join = with_key(operation.joiner, operation.takes_key)
        self._clock = self._store.clock(context.node)

    def process(self, record: Record) -> None:
        key, value, timestamp, headers = record
        if key is None or value is None:
            self._context.drop()
            return
        store, join, forward, windows = self._store, self._join, self._forward, self._windows
        # First, as in Kafka Streams: a record on which the joiner fails joins no other and moves no time.
        itself = Record(key, join(key, value, value), timestamp, headers)
        clock = self._clock
        if timestamp > clock.stream_time:
            clock.stream_time = timestamp
        joins_itself = timestamp > clock.stream_time - self._retention + 1  # were there two stores, it would be found
        raw = store.encode_key(key) or b""
        before, after = windows.before, windows.after
        for other_time, other in store.range_at(raw, max(timestamp - before, 0), max(timestamp + after, 0)):
            forward(Record(key, join(key, value, other), max(timestamp, other_time), headers))
        for other_time, other in store.range_at(raw, max(timestamp - after, 0), max(timestamp + before, 0)):
            if joins_itself and other_time > timestamp:
                joins_itself = False
                forward(itself)
            forward(Record(key, join(key, other, value), max(timestamp, other_time), headers))
        if joins_itself:
            forward(itself)
