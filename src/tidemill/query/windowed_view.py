"""``streams.window_store(name)`` and ``streams.session_store(name)``: read-only views of windowed stores' copies on this
instance.

Leaves the choice of copies to ``view`` and the retention to the operators' stores: a read opens such a store over the rows of a
copy. Every call asks again, so a view may be kept over rebalances and used from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from tidemill.errors import QueryError
from tidemill.operators.segments import LONG_MAX
from tidemill.operators.session_store import SessionStore
from tidemill.operators.window_store import WindowStore
from tidemill.query.local_copies import CopyReader
from tidemill.query.position import Position
from tidemill.query.store_html import store_html
from tidemill.query.store_info import StoreInfo
from tidemill.query.view import ReadOnlyStore
from tidemill.query.windowed_rows import WINDOWS, Kind, at_one_commit, is_windowed, kind_of, opened_store
from tidemill.spellings import Spelled
from tidemill.topology.nodes import StoreKind
from tidemill.topology.values import Value, ValueAndTimestamp
from tidemill.topology.windows import Windowed


@dataclass(frozen=True, slots=True, repr=False)
class ReadOnlyWindowStore(Spelled):
    """A window store (Kafka's ReadOnlyWindowStore). Times are ms, both bounds included. Every call may raise
    InvalidStateStoreError: what it needs is being restored or is elsewhere. What has expired is not shown."""

    copies: ReadOnlyStore
    with_timestamps: bool = False

    def __repr__(self) -> str:
        return f"ReadOnlyWindowStore({self.copies.store.name!r})"

    def _repr_html_(self) -> str:
        """Notebook view: the first windows."""
        return _windows_html(self.copies.store.name, self.all)

    @property
    def timestamped(self) -> ReadOnlyWindowStore:
        """The same store, with ``ValueAndTimestamp`` as values. QueryError if it keeps no timestamps."""
        if kind_of(self.copies.store) is not StoreKind.TIMESTAMPED_WINDOW:
            raise QueryError(f"{self.copies.store.name} keeps no timestamps: read its values without")
        return replace(self, with_timestamps=True)

    @property
    def position(self) -> Position:
        """See ``ReadOnlyStore.position``."""
        return self.copies.position

    def fetch(self, key: object, start: int) -> Value:
        """The value of ``key`` in the window that begins at ``start``; None if there is none (any more)."""
        self.copies.store.require_times(start)

        def read(reader: CopyReader) -> tuple[Value] | None:
            return _if_any(at_one_commit(reader, self.copies.store, WindowStore, lambda store: store.fetch(key, start)))

        found = self.copies.first_found(key, read)
        return None if found is None else self._value(found[0])

    def fetch_range(self, key: object, first: int, last: int, *, reverse: bool = False) -> list[tuple[int, Value]]:
        """(start, value) of the windows of ``key`` that begin at ``first .. last``; ``reverse``: the newest first."""
        self.copies.store.require_times(first, last)

        def in_store(store: WindowStore) -> list[tuple[int, Value]]:
            return list(store.read_range(key, first, last, reverse=reverse))

        def read(reader: CopyReader) -> list[tuple[int, Value]]:
            return at_one_commit(reader, self.copies.store, WindowStore, in_store)

        return [(start, self._value(value)) for start, value in self.copies.first_found(key, read) or ()]

    def fetch_all(self, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[Windowed, Value]]:
        """(window with its key, value) of the windows that begin at ``first .. last``, of all keys, one partition after the
        other; ``reverse``: from the last one."""
        self.copies.store.require_times(first, last)
        return self._of_each(lambda store: store.fetch_all(first, last, reverse=reverse), reverse=reverse)

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed, Value]]:
        """Every window of the partitions that are here."""
        return self.fetch_all(0, LONG_MAX, reverse=reverse)

    def fetch_keys(
        self, low: object, high: object, first: int = 0, last: int = LONG_MAX, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, Value]]:
        """``fetch_all`` of the keys whose bytes are in ``low .. high``, both included; None: no bound."""
        self.copies.store.require_times(first, last)
        self.copies.store.require_keys(low, high)
        return self._of_each(lambda store: store.fetch_keys(low, high, first, last, reverse=reverse), reverse=reverse)

    def _of_each(
        self, read: Callable[[WindowStore], Iterator[tuple[Windowed, Value]]], *, reverse: bool
    ) -> Iterator[tuple[Windowed, Value]]:
        found = _of_each(self.copies, WindowStore, read, reverse=reverse)
        return ((window, self._value(value)) for window, value in found)

    def _value(self, found: Value) -> Value:
        if kind_of(self.copies.store) is not StoreKind.TIMESTAMPED_WINDOW:
            return found
        return ValueAndTimestamp(*found) if self.with_timestamps else found[0]


@dataclass(frozen=True, slots=True, repr=False)
class ReadOnlySessionStore(Spelled):
    """A session store (Kafka's ReadOnlySessionStore). Errors as ``ReadOnlyWindowStore``."""

    copies: ReadOnlyStore

    def __repr__(self) -> str:
        return f"ReadOnlySessionStore({self.copies.store.name!r})"

    def _repr_html_(self) -> str:
        """Notebook view: the first sessions."""
        return _windows_html(self.copies.store.name, self.all)

    @property
    def position(self) -> Position:
        """See ``ReadOnlyStore.position``."""
        return self.copies.position

    def fetch(self, key: object, *, reverse: bool = False) -> list[tuple[Windowed, Value]]:
        """(session, aggregate) of every session of ``key``, by their ends; ``reverse``: the newest first."""
        return self.find_sessions(key, reverse=reverse)

    def fetch_session(self, key: object, start: int, end: int) -> Value:
        """The aggregate of exactly this session; None if there is none (any more)."""
        self.copies.store.require_times(start, end)

        def in_store(store: SessionStore) -> Value:
            return store.fetch_session(key, start, end)

        def read(reader: CopyReader) -> tuple[Value] | None:
            return _if_any(at_one_commit(reader, self.copies.store, SessionStore, in_store))

        found = self.copies.first_found(key, read)
        return None if found is None else found[0]

    def find_sessions(
        self, key: object, earliest_end: int = 0, latest_start: int = LONG_MAX, *, reverse: bool = False
    ) -> list[tuple[Windowed, Value]]:
        """The sessions of ``key`` that end at ``earliest_end`` or later and begin at ``latest_start`` or earlier;
        ``reverse``: the newest first."""
        self.copies.store.require_times(earliest_end, latest_start)

        def in_store(store: SessionStore) -> list[tuple[Windowed, Value]]:
            return list(store.read_sessions(key, earliest_end, latest_start, reverse=reverse))

        def read(reader: CopyReader) -> list[tuple[Windowed, Value]]:
            return at_one_commit(reader, self.copies.store, SessionStore, in_store)

        return self.copies.first_found(key, read) or []

    def fetch_keys(
        self, low: object, high: object, earliest_end: int = 0, latest_start: int = LONG_MAX, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, Value]]:
        """``find_sessions`` of the keys whose bytes are in ``low .. high``, both included (None: no bound), one partition after
        the other; ``reverse``: from the last one."""
        self.copies.store.require_times(earliest_end, latest_start)
        self.copies.store.require_keys(low, high)

        def read(store: SessionStore) -> Iterator[tuple[Windowed, Value]]:
            return store.fetch_keys(low, high, earliest_end, latest_start, reverse=reverse)

        return _of_each(self.copies, SessionStore, read, reverse=reverse)

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed, Value]]:
        """Every session of the partitions that are here; ``reverse``: from the last one."""
        return _of_each(self.copies, SessionStore, lambda store: store.all(reverse=reverse), reverse=reverse)


def _of_each(
    copies: ReadOnlyStore, kind: type[Kind], read: Callable[[Kind], Iterator[tuple[Windowed, Value]]], *, reverse: bool
) -> Iterator[tuple[Windowed, Value]]:
    """What ``read`` finds in each copy, one partition after the other. InvalidStateStoreError at once, or while it is read."""
    readers = copies.readers()
    ordered = reversed(readers) if reverse else readers
    return chain.from_iterable(read(opened_store(reader, copies.store, kind)) for reader in ordered)


def _if_any(value: Value) -> tuple[Value] | None:
    """A value as what ``first_found`` looks for: any but None, an empty list, too."""
    return None if value is None else (value,)


def _windows_html(name: str, windows: Callable[[], Iterator[tuple[Windowed, Value]]]) -> str:
    def rows() -> Iterator[tuple[object, ...]]:
        return ((window.key, window.start, window.end, value) for window, value in windows())

    return store_html(name, ("key", "start", "end", "value"), rows)


def view_of_its_kind(copies: ReadOnlyStore) -> ReadOnlyStore | ReadOnlyWindowStore | ReadOnlySessionStore:
    """The view that ``store``, ``window_store`` or ``session_store`` gives, by the store's kind."""
    if not is_windowed(copies.store):
        return copies
    return session_view(copies) if kind_of(copies.store) is StoreKind.SESSION else window_view(copies)


def window_view(copies: ReadOnlyStore) -> ReadOnlyWindowStore:
    """QueryError: the store is of another kind."""
    if kind_of(copies.store) not in WINDOWS:
        raise _other_kind(copies.store, "window")
    return ReadOnlyWindowStore(copies)


def session_view(copies: ReadOnlyStore) -> ReadOnlySessionStore:
    """QueryError: the store is of another kind."""
    if kind_of(copies.store) is not StoreKind.SESSION:
        raise _other_kind(copies.store, "session")
    return ReadOnlySessionStore(copies)


def require_no_windows(store: StoreInfo) -> None:
    """QueryError: the store is one of windows or sessions, which key-value reads can't read."""
    if is_windowed(store):
        call = "session_store" if kind_of(store) is StoreKind.SESSION else "window_store"
        raise QueryError(f"{store.name} is a {call.replace('_', ' ')}: read it with {call}({store.name!r})")


def _other_kind(store: StoreInfo, wanted: str) -> QueryError:
    kind = kind_of(store)
    found = "key value" if kind is None else kind.value.replace("_", " ")
    return QueryError(f"{store.name} is a {found} store, not a {wanted} store: read it with the call for its kind")
