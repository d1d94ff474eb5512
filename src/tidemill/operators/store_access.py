"""Stores as processors see them: writes get the timestamp and headers of the record being processed.

Reads are the stores' own, with each (value, timestamp) as a ``ValueAndTimestamp``, which ``put`` takes back. Writes log with the
timestamp of the record (or punctuation) that is handled right now, as Kafka Streams does wherever the value does not carry a
time of its own. A global store can be read by every processor and written by its own only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from tidemill.operators.function_failures import answer_calls_of
from tidemill.operators.key_value_store import KeyValueStore, TimestampedKeyValueStore
from tidemill.operators.record import Headers, require_times, why_no_timestamp
from tidemill.operators.rows import require_key
from tidemill.operators.segments import LONG_MAX
from tidemill.operators.session_store import SessionStore
from tidemill.operators.versioned_store import VersionedStore
from tidemill.operators.window_store import TimestampedWindowStore, WindowStore
from tidemill.spellings import Spelled
from tidemill.topology.values import Serde, TableRow, ValueAndTimestamp
from tidemill.topology.windows import Windowed

At = TypeVar("At")
"""What a row is read by: a key, a window's start, a window."""


class Moment(Protocol):
    """The record or punctuation that is handled right now."""

    @property
    def timestamp(self) -> int: ...

    @property
    def headers(self) -> Headers: ...

    def drop(self, count: int = 1) -> None: ...


class _Access(Spelled):
    _is_hot = True


class KeyValueAccess(_Access):
    """``get``, ``all``, ``range``, ``prefix_scan`` as of the store; values by key."""

    def __init__(self, store: KeyValueStore, now: Moment) -> None:
        self._store, self._now = store, now
        self.get, self.all, self.range, self.prefix_scan = store.get, store.all, store.range, store.prefix_scan

    @property
    def approximate_num_entries(self) -> int:
        """Number of keys, the writes of this batch included; counted at each call."""
        return self._store.approximate_num_entries

    def put(self, key: object, value: object) -> None:
        """Sets the value; None deletes."""
        self._store.put(key, value, self._now.timestamp)

    def put_all(self, entries: Iterable[tuple[object, object]]) -> None:
        """``put`` for each (key, value); nothing is written if one of them can't be (a null key), as in Kafka Streams."""
        self._store.put_all(entries, self._now.timestamp)

    def put_if_absent(self, key: object, value: object) -> object:
        """Sets the value if there is none; gives the one that was there."""
        return self._store.put_if_absent(key, value, self._now.timestamp)

    def delete(self, key: object) -> object:
        """Deletes the key and gives the value that it had."""
        return self._store.delete(key, self._now.timestamp)


class TimestampedKeyValueAccess(_Access):
    """``ValueAndTimestamp`` by key."""

    def __init__(self, store: TimestampedKeyValueStore, now: Moment) -> None:
        self._store, self._now = store, now

    @property
    def approximate_num_entries(self) -> int:
        """Number of keys, the writes of this batch included; counted at each call."""
        return self._store.approximate_num_entries

    def get(self, key: object) -> ValueAndTimestamp | None:
        """Value and timestamp of ``key``; None if there is none."""
        return _pair(self._store.get_at(require_key(self._store.encode_key(key), "key-value")))

    def all(self, *, reverse: bool = False) -> Iterator[tuple[object, ValueAndTimestamp]]:
        """``all`` of the store."""
        return _pairs(self._store.all(reverse=reverse))

    def range(
        self, low: object = None, high: object = None, *, reverse: bool = False
    ) -> Iterator[tuple[object, ValueAndTimestamp]]:
        """``range`` of the store."""
        return _pairs(self._store.range(low, high, reverse=reverse))

    def prefix_scan(
        self, prefix: object, serde: Serde, *, reverse: bool = False
    ) -> Iterator[tuple[object, ValueAndTimestamp]]:
        """``prefix_scan`` of the store."""
        return _pairs(self._store.prefix_scan(prefix, serde, reverse=reverse))

    def put(self, key: object, value: object, timestamp: int | None = None) -> None:
        """Sets value and timestamp (None: the record's); a value of None deletes. A ``ValueAndTimestamp`` is both, as in Java."""
        if type(value) is ValueAndTimestamp:
            value, timestamp = value
        now = self._now
        at = now.timestamp if timestamp is None or value is None else _time(timestamp)
        self._store.put(key, value, at, now.headers)

    def put_all(self, entries: Iterable[tuple[object, object]]) -> None:
        """``put`` for each (key, ``ValueAndTimestamp``); nothing is written if a key is null, as in Kafka Streams."""
        given = list(entries)
        for key, _ in given:
            require_key(self._store.encode_key(key), "key-value")
        for key, value in given:
            self.put(key, value)

    def put_if_absent(self, key: object, value: object, timestamp: int | None = None) -> ValueAndTimestamp | None:
        """Sets value and timestamp if there is none; gives what was there."""
        before = self.get(key)
        if before is None:
            self.put(key, value, timestamp)
        return before

    def delete(self, key: object) -> ValueAndTimestamp | None:
        """Deletes the key and gives what it had."""
        before = self.get(key)
        self.put(key, None)
        return before


class VersionedAccess(_Access):
    """``ValueAndTimestamp`` by key and time: a version, and since when it is valid."""

    def __init__(self, store: VersionedStore, now: Moment) -> None:
        self._store, self._now = store, now

    def get(self, key: object) -> ValueAndTimestamp | None:
        """The newest version of ``key``; None if there is none."""
        return _pair(self._store.get(key))

    def get_as_of(self, key: object, timestamp: int) -> ValueAndTimestamp | None:
        """``get_as_of`` of the store."""
        require_times(timestamp)
        return _pair(self._store.get_as_of(key, timestamp))

    def history(self, key: object, first: int, last: int) -> list[ValueAndTimestamp]:
        """``history`` of the store."""
        require_times(first, last)
        return [ValueAndTimestamp(*version) for version in self._store.history(key, first, last)]

    def put(self, key: object, value: object, timestamp: int) -> bool | None:
        """Adds a version, None for a deletion; what is too old is dropped and counted (see the store)."""
        is_newest = self._store.put(key, value, _time(timestamp))
        if is_newest is None:
            self._now.drop()
        return is_newest

    def delete(self, key: object, timestamp: int) -> ValueAndTimestamp | None:
        """Ends the version that was valid at ``timestamp`` and gives it."""
        before = self.get_as_of(key, timestamp)
        return None if self.put(key, None, timestamp) is None else before


class WindowAccess(_Access):
    """``fetch``, ``fetch_range``, ``fetch_all``, ``fetch_keys``, ``all`` as of the store."""

    def __init__(self, store: WindowStore, now: Moment) -> None:
        self._store, self._now = store, now
        self.fetch, self.fetch_range, self.fetch_all = store.fetch, store.fetch_range, store.fetch_all
        self.fetch_keys, self.all = store.fetch_keys, store.all

    def put(self, key: object, value: object, start: int, timestamp: int | None = None) -> None:
        """Sets the value of the window that begins at ``start``; None deletes.

        ``timestamp`` is the value's in a timestamped store (None: the record's). What has expired is dropped and counted.
        """
        at = self._now.timestamp if timestamp is None or value is None else _time(timestamp)
        if not self._store.put(key, value, _time(start), at):
            self._now.drop()


class TimestampedWindowAccess(WindowAccess):
    """``WindowAccess`` with a ``ValueAndTimestamp`` for each value."""

    def __init__(self, store: TimestampedWindowStore, now: Moment) -> None:
        self._store, self._now = store, now

    def fetch(self, key: object, start: int) -> ValueAndTimestamp | None:
        """``fetch`` of the store."""
        return _pair(self._store.fetch(key, start))

    def fetch_range(
        self, key: object, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[int, ValueAndTimestamp]]:
        """``fetch_range`` of the store."""
        return _pairs(self._store.fetch_range(key, first, last, reverse=reverse))

    def fetch_all(self, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[Windowed, ValueAndTimestamp]]:
        """``fetch_all`` of the store."""
        return _pairs(self._store.fetch_all(first, last, reverse=reverse))

    def fetch_keys(
        self, low: object, high: object, first: int = 0, last: int = LONG_MAX, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, ValueAndTimestamp]]:
        """``fetch_keys`` of the store."""
        return _pairs(self._store.fetch_keys(low, high, first, last, reverse=reverse))

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed, ValueAndTimestamp]]:
        """``all`` of the store."""
        return _pairs(self._store.all(reverse=reverse))

    def put(self, key: object, value: object, start: int, timestamp: int | None = None) -> None:
        """As of ``WindowAccess``; a ``ValueAndTimestamp`` is both, as in Java."""
        if type(value) is ValueAndTimestamp:
            value, timestamp = value
        super().put(key, value, start, timestamp)


class SessionAccess(_Access):
    """``fetch``, ``fetch_session``, ``fetch_keys``, ``find_sessions``, ``all`` as of the store."""

    def __init__(self, store: SessionStore, now: Moment) -> None:
        self._store, self._now = store, now
        self.fetch, self.fetch_session, self.fetch_keys = store.fetch, store.fetch_session, store.fetch_keys
        self.find_sessions, self.all = store.find_sessions, store.all

    def put(self, session: Windowed, value: object) -> None:
        """Sets the session's value; None removes it. What has expired is dropped and counted."""
        if not self._store.put(_session(session), value, self._now.timestamp):
            self._now.drop()

    def remove(self, session: Windowed) -> None:
        """Removes a session."""
        self._store.remove(_session(session), self._now.timestamp)


def _time(given: int) -> int:
    """A time that can be kept: keys and changelog records have no negative ones, and could not be restored with one.

    Raises:
        ValueError: it is negative, or no int.
    """
    problem = why_no_timestamp(given)
    if problem:
        raise ValueError(f"can't write to the store: {problem}")
    return given


def _session(given: Windowed) -> Windowed:
    """A session that can be kept, as Java's constructor of a window wants it.

    Raises:
        ValueError: it ends before it begins, or a time of it can't be kept.
    """
    if _time(given.end) < _time(given.start):
        raise ValueError(f"can't write to the store: the session {given} ends before it begins")
    return given


def _pair(row: TableRow | None) -> ValueAndTimestamp | None:
    return None if row is None else ValueAndTimestamp(*row)


def _pairs(rows: Iterator[tuple[At, TableRow]]) -> Iterator[tuple[At, ValueAndTimestamp]]:
    return ((at, ValueAndTimestamp(*row)) for at, row in rows)


_ACCESS: dict[type, type[Any]] = {
    KeyValueStore: KeyValueAccess,
    TimestampedKeyValueStore: TimestampedKeyValueAccess,
    VersionedStore: VersionedAccess,
    WindowStore: WindowAccess,
    TimestampedWindowStore: TimestampedWindowAccess,
    SessionStore: SessionAccess,
}
answer_calls_of(*_ACCESS, *_ACCESS.values())
_WRITES = ("put", "put_all", "put_if_absent", "delete", "remove")


def access_to(store: object, now: Moment) -> object:
    """The store as a processor gets it."""
    for kind in type(store).__mro__:
        if kind in _ACCESS:
            return _ACCESS[kind](store, now)
    raise TypeError(f"{type(store).__name__} is a store of an operator; a processor can use key-value, window and session stores")


class ReadOnly:
    """A store in the hands of those who don't keep it: a global one in another processor, or any store in a test.

    ``why``: the message of a TypeError for those who write.
    """

    def __init__(self, access: object, why: str) -> None:
        self._access, self._why = access, why

    def __getattr__(self, attribute: str) -> object:
        if attribute in _WRITES:
            raise TypeError(self._why)
        return getattr(self._access, attribute)
