"""Session stores: an aggregate for each session of a key, found by the sessions' ends.

    row        segment 8 | key | end 8 | start 8        value
    changelog  key | end 8 | start 8                    value; its timestamp is that of the record being processed

The segment is that of the end. ``segments`` decides what expires and what is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from struct import Struct

from tidemill.operators.recent_rows import RecentRows
from tidemill.operators.record import Headers, require_times
from tidemill.operators.rows import Rows, require_key
from tidemill.operators.segments import LONG_MAX, SEGMENTS_END, Clock, Segments, pack_time, unpack_time
from tidemill.topology.nodes import Store
from tidemill.topology.values import TableRow, Value
from tidemill.topology.windows import Windowed

_SUFFIX = 16
unpack_both = Struct(">qq").unpack


class SessionStore:
    """Aggregates by session (org.apache.kafka.streams.state.SessionStore)."""

    def __init__(self, store: Store, rows: Rows) -> None:
        self.name = store.name
        self._rows = rows
        self._log = rows.log
        self._persistent, self._with_headers = store.persistent, store.logs_headers
        assert store.key_serde is not None
        assert store.value_serde is not None
        self.encode_key, self.decode_key = store.key_serde.serialize, store.key_serde.deserialize
        self._encode, self._decode = store.value_serde.serialize, store.value_serde.deserialize
        self._segments = Segments(
            rows, store.keeps_ms, persistent=store.persistent, time_ordered=store.time_ordered, reach=store.reaches_back_ms
        )
        self._interval = self._segments.interval
        self._recent = RecentRows(self._segments, _SUFFIX)

    # --- writing --------------------------------------------------------------------------------------------------

    def put(self, session: Windowed, value: object, timestamp: int) -> bool:
        """Keeps the aggregate of ``session``, None removes it; ``timestamp`` is that of the record being processed.

        False: the session's segment has expired, nothing is kept, and the caller counts a dropped record.
        """
        return self.put_at(self._raw(session.key), session.start, session.end, value, timestamp)

    def put_at(self, key: bytes, start: int, end: int, value: object, timestamp: int, headers: Headers = ()) -> bool:
        """``put`` for the bytes of a key. ``headers``, of the record being processed, are logged with deletions in a store of the
        format with headers."""
        segments = self._segments
        data = None if value is None else self._encode(value)
        suffix = pack_time(end) + pack_time(start)
        is_live = segments.advance(end)
        if is_live:
            self._keep(key, suffix, data, end)
        self._log(key + suffix, data, timestamp, headers if data is None and self._with_headers else ())
        return is_live

    def remove(self, session: Windowed, timestamp: int) -> None:
        """Removes a session."""
        self.remove_at(self._raw(session.key), session.start, session.end, timestamp)

    def remove_at(self, key: bytes, start: int, end: int, timestamp: int, headers: Headers = ()) -> None:
        """``remove`` for the bytes of a key; ``headers`` as in ``put_at``. It moves the store's time, but not of one in
        memory, as in Kafka Streams."""
        if self._persistent:
            self._segments.advance(end)
        suffix = pack_time(end) + pack_time(start)
        self._keep(key, suffix, None, end)
        self._log(key + suffix, None, timestamp, headers if self._with_headers else ())

    def _keep(self, key: bytes, suffix: bytes, data: bytes | None, end: int) -> None:
        self._rows.put(pack_time(end // self._interval) + key + suffix, data)
        self._recent.put(key, suffix, data)
        if self._segments.time_ordered:
            if data is None:
                self._segments.forget(suffix + key)
            else:
                self._segments.index(suffix + key)

    # --- reading --------------------------------------------------------------------------------------------------

    def fetch_session(self, key: object, start: int, end: int) -> Value:
        """The aggregate of exactly this session; None if there is none (any more)."""
        require_times(start, end)
        if end < self._segments.oldest_shown:
            return None
        raw = self._raw(key)
        row = self._rows.get(pack_time(end // self._interval) + raw + pack_time(end) + pack_time(start))
        return None if row is None else self._decode(row)

    def fetch(self, key: object, *, reverse: bool = False) -> Iterator[tuple[Windowed, Value]]:
        """Every session of ``key``, by end."""
        return self.find_sessions(key, reverse=reverse)

    def find_sessions(
        self, key: object, earliest_end: int = 0, latest_start: int = LONG_MAX, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, Value]]:
        """The sessions of ``key`` that end at ``earliest_end`` or later and begin at ``latest_start`` or earlier, by end."""
        require_times(earliest_end, latest_start)
        found = self.find_at(self._raw(key), earliest_end, latest_start)
        return ((Windowed(key, start, end), value) for start, end, value in (reversed(found) if reverse else found))

    def read_sessions(
        self, key: object, earliest_end: int = 0, latest_start: int = LONG_MAX, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, Value]]:
        """``find_sessions`` without the rows that are kept at hand: reads no more of the key's sessions than are asked for."""
        require_times(earliest_end, latest_start)
        shown_from = max(earliest_end, self._segments.oldest_shown, 0)
        rows = self._segments.of_key(self._raw(key), _SUFFIX, shown_from, reverse=reverse)
        found: Iterable[tuple[tuple[int, int], bytes]] = ((unpack_both(suffix), row) for suffix, row in rows)
        if not self._persistent:
            of_one_end = groupby(found, key=lambda session: session[0][0])
            found = chain.from_iterable(reversed(list(sessions)) for _end, sessions in of_one_end)
        return ((Windowed(key, start, end), self._decode(row)) for (end, start), row in found if start <= latest_start)

    def find_at(
        self, key: bytes, earliest_end: int, latest_start: int, *, are_apart: bool = False
    ) -> list[tuple[int, int, Value]]:
        """(start, end, aggregate) of ``find_sessions``, for the bytes of a key. ``are_apart``: the shown sessions of a key don't
        overlap, so that those behind one that begins later do so, too."""
        low, found = max(earliest_end, self._segments.oldest_shown, 0), []
        for suffix, row in self._recent.since(key, low) if low <= LONG_MAX else ():
            end, start = unpack_both(suffix)
            if start <= latest_start:
                found.append((start, end, self._decode(row)))
            elif are_apart:
                break
        if not self._persistent:
            found.sort(key=lambda session: (session[1], -session[0]))  # as InMemorySessionStore: of one end, the latest first
        return found

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed, Value]]:
        """All sessions that are still shown, in the order of ``fetch_keys``."""
        return self.fetch_keys(None, None, reverse=reverse)

    def fetch_keys(
        self, low: object, high: object, earliest_end: int = 0, latest_start: int = LONG_MAX, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, Value]]:
        """``find_sessions`` for keys whose bytes are in ``low .. high``, both included; None: no bound.

        Segment by segment, each by key and end; of a store in memory by end, then by key, as Kafka Streams' own.
        """
        require_times(earliest_end, latest_start)
        at_least, at_most = self.encode_key(low) or b"", self.encode_key(high)
        found: Iterable[tuple[bytes, int, int, bytes]] = (
            row
            for row in self._ending_from(earliest_end, reverse=reverse)
            if row[1] <= latest_start and at_least <= row[0] and (at_most is None or row[0] <= at_most)
        )
        if not self._persistent:
            found = sorted(found, key=lambda row: (row[2], row[0], -row[1]), reverse=reverse)
        return self._decoded(found)

    def _ending_from(self, earliest_end: int, *, reverse: bool) -> Iterator[tuple[bytes, int, int, bytes]]:
        """(key's bytes, start, end, row) of the sessions that end then or later, and are shown."""
        oldest = max(earliest_end, self._segments.oldest_shown, 0)
        if oldest > LONG_MAX:
            return iter(())
        rows = self._rows.scan(pack_time(oldest // self._interval), SEGMENTS_END, reverse=reverse)
        times = ((row_key, unpack_both(row_key[-_SUFFIX:]), row) for row_key, row in rows)
        return ((row_key[8:-_SUFFIX], start, end, row) for row_key, (end, start), row in times if end >= oldest)

    def _decoded(self, rows: Iterable[tuple[bytes, int, int, bytes]]) -> Iterator[tuple[Windowed, Value]]:
        return ((Windowed(self.decode_key(key), start, end), self._decode(row)) for key, start, end, row in rows)

    def _raw(self, key: object) -> bytes:
        return require_key(self.encode_key(key), "session")

    # --- for operators --------------------------------------------------------------------------------------------

    def clock(self, node: str, *, is_alone: bool = True) -> Clock:
        """The clock of the operator ``node``, kept with the store; ``is_alone`` as in ``Segments.clock``."""
        return self._segments.clock(node, is_alone=is_alone)

    def take_closed(self, first: int, last: int) -> Iterator[tuple[Windowed, TableRow]]:
        """(session, (aggregate, its end)) of those that end at ``first .. last``: each is given once, and read when it is asked
        for. Expired segments are gone.

        By end, start and key; of a store in memory by end, key and start, as Kafka Streams' own. Hidden ones are among them: with
        the default retention a session is hidden before it closes, so Kafka Streams' store in memory never gives one.
        """
        segments = self._segments
        entries = segments.indexed(first, last)
        if not self._persistent:
            entries.sort(key=_end_key_start)
        for entry in entries:
            segments.forget(entry)
            end, start, key = unpack_time(entry)[0], unpack_time(entry, 8)[0], entry[16:]
            row = self._rows.get(pack_time(end // self._interval) + key + entry[:16])
            if row is not None:
                yield Windowed(self.decode_key(key), start, end), (self._decode(row), end)

    def restore(self, key: bytes, value: bytes | None, timestamp: int, _headers: Headers = ()) -> None:
        """Applies a record of the changelog."""
        prefix, suffix = key[:-_SUFFIX], key[-_SUFFIX:]
        end = unpack_time(suffix)[0]
        if self._segments.advance(end):
            self._keep(prefix, suffix, value, end)
        self._segments.restored(max(timestamp, end))  # of a session's records compaction leaves the last, not the latest

    def flush(self) -> None:
        """To be called at the end of a batch."""
        self._segments.flush()


def _end_key_start(entry: bytes) -> tuple[bytes, bytes, bytes]:
    return entry[:8], entry[16:], entry[8:16]
