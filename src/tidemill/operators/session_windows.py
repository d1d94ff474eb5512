"""Aggregations in session windows (KStreamSessionWindowAggregate).

A record joins all sessions of its key that end or begin within the gap of it into one; whether it is too late is decided by
the end of that one: it must not lie before stream time - grace - gap. First a tombstone for each session that was joined, in
the order of their ends, then the new one, each with its end as timestamp. A record that hits a session of its own timestamp
alone makes no tombstone. Below a record cache all have the record's headers, if the store does not log headers, and a result of
that one session replaces the one before; without a cache they have no headers, and it replaces nothing, as in Kafka Streams. Null
keys are dropped, null values not.
"""

from __future__ import annotations

from tidemill.operators.context import AsOfGetter, Context
from tidemill.operators.emit_final import CloseRounds
from tidemill.operators.record import Change, Record
from tidemill.operators.session_store import SessionStore
from tidemill.operators.windowed_aggregation import has_for_itself, require_windowed, steps_of
from tidemill.topology import operations as op
from tidemill.topology.values import TableRow
from tidemill.topology.windows import Windowed


class SessionAggregate:
    """KStreamSessionWindowAggregate, of updates or, where the operation says so, of final results."""

    get_as_of: AsOfGetter | None = None

    def __init__(self, operation: op.SessionAggregate, context: Context) -> None:
        self._gap, self._grace = operation.windows.gap, operation.windows.grace
        self._begin, self._add, self._merge = steps_of(operation.aggregation)
        self._store: SessionStore = context.store(operation.store)
        self._clock = self._store.clock(context.node, is_alone=has_for_itself(context.topology, operation.store))
        self._drop, self._sends_old = context.drop, context.sends_old
        self._changed, self._is_cached = context.changed(operation.store), context.is_cached(operation.store)
        self._sends_headers = self._is_cached and not context.topology.stores[operation.store].logs_headers
        self._rounds = (
            CloseRounds(context, self._clock, operation.store, self._store, _closing) if operation.emit_final else None
        )

    def process(self, record: Record) -> None:
        key, _value, timestamp, _headers = record
        if key is None:
            self._drop()
            return
        clock, gap = self._clock, self._gap
        if timestamp > clock.stream_time:
            clock.stream_time = timestamp
        close_time = clock.stream_time - self._grace - gap
        if self._rounds is not None:
            self._rounds.before(record, close_time)
        raw = self._store.encode_key(key) or b""
        start = end = timestamp
        aggregate = self._begin()
        joined = self._store.find_at(raw, timestamp - gap, timestamp + gap, are_apart=True)
        # The function may change them in place, and the old ones are to be sent as they were.
        again = self._store.find_at(raw, timestamp - gap, timestamp + gap, are_apart=True) if self._sends_old else joined
        for first, last, value in again:
            aggregate = self._merge(key, aggregate, value)
            start, end = min(start, first), max(end, last)
        if end < close_time:
            self._drop()
        else:
            self._update(record, raw, start, end, aggregate, joined)
        if self._rounds is not None:
            self._rounds.after(record, close_time)

    def _update(
        self, record: Record, raw: bytes, start: int, end: int, aggregate: object, joined: list[tuple[int, int, object]]
    ) -> None:
        key, value, timestamp, headers = record
        store, emits_updates = self._store, self._rounds is None
        replaced, sent_headers = None, headers if self._sends_headers else ()
        if start == end == timestamp:
            replaced = joined[0][2] if joined else None
        else:
            for first, last, old in joined:
                store.remove_at(raw, first, last, timestamp, headers)
                if emits_updates:
                    change = Change(None, old if self._sends_old else None)
                    self._changed((raw, first, last), Record(Windowed(key, first, last), change, last, sent_headers), False)
        aggregate = self._add(key, value, aggregate)
        if not store.put_at(raw, start, end, aggregate, timestamp, headers):
            self._drop()
        if emits_updates:
            change = Change(aggregate, replaced if self._sends_old and self._is_cached else None)
            self._changed((raw, start, end), Record(Windowed(key, start, end), change, end, sent_headers), replaced is None)

    def get(self, windowed: Windowed) -> TableRow | None:
        """The row of a session: (value, its end)."""
        require_windowed(windowed)
        value = self._store.fetch_session(windowed.key, windowed.start, windowed.end)
        return None if value is None else (value, windowed.end)


def _closing(close_time: int, emitted: int) -> tuple[int, int] | None:
    """``Closing``, by the ends of sessions."""
    first = max(0, emitted)
    return (first, close_time - 1) if close_time - 1 >= first else None
