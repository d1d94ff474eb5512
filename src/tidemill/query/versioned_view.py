"""``streams.versioned_store(name)``: a versioned store as this instance has it, read-only, with its older versions.

Decides nothing about copies, which is ``view``'s, nor about which versions can still be found, which is the operators' store's:
a read opens that store over one snapshot of a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidemill.errors import QueryError
from tidemill.operators.segments import LONG_MAX
from tidemill.operators.versioned_store import VersionedStore
from tidemill.query.position import Position
from tidemill.query.store_html import store_html
from tidemill.query.view import ReadOnlyStore
from tidemill.query.windowed_rows import at_one_commit
from tidemill.spellings import Spelled
from tidemill.topology.values import Key, TableRow, ValueAndTimestamp


@dataclass(frozen=True, slots=True, repr=False)
class ReadOnlyVersionedStore(Spelled):
    """A versioned store (Kafka's VersionedKeyQuery and MultiVersionedKeyQuery). Times are ms; a version holds from its timestamp
    until the next one. Every call may raise InvalidStateStoreError: what it needs is being restored or is elsewhere."""

    copies: ReadOnlyStore

    def __repr__(self) -> str:
        return f"ReadOnlyVersionedStore({self.copies.store.name!r})"

    def _repr_html_(self) -> str:
        """Notebook view: the newest versions of the first keys."""
        return store_html(self.copies.store.name, ("key", "value", "from"), lambda: ((key, *found) for key, found in self.all()))

    @property
    def position(self) -> Position:
        """As ``ReadOnlyStore.position``."""
        return self.copies.position

    def get(self, key: object) -> ValueAndTimestamp | None:
        """The newest version of ``key``; None if there is none, or if it is a deletion."""
        return self.copies.timestamped.get(key)  # type: ignore[no-any-return]

    def get_as_of(self, key: object, timestamp_ms: int) -> ValueAndTimestamp | None:
        """The version that held at ``timestamp_ms``; None if there was none, or if that is behind the history retention."""
        self.copies.store.require_times(timestamp_ms)

        def read(store: VersionedStore) -> list[TableRow]:
            found = store.get_as_of(key, timestamp_ms)
            return [] if found is None else [found]

        found = self._found(key, read)
        return ValueAndTimestamp(*found[0]) if found else None

    def history(
        self, key: object, first: int = 0, last: int = LONG_MAX, *, reverse: bool = False
    ) -> list[ValueAndTimestamp]:
        """The versions that held at a time in ``first .. last``, without deletions, oldest first; ``reverse``: newest first."""
        self.copies.store.require_times(first, last)

        found = self._found(key, lambda store: store.history(key, first, last)) or []
        return [ValueAndTimestamp(*version) for version in (reversed(found) if reverse else found)]

    def all(self) -> Iterator[tuple[Key, ValueAndTimestamp]]:
        """(key, newest version) of the partitions that are here."""
        return self.copies.timestamped.all()

    def _found(self, key: object, read: Callable[[VersionedStore], list[TableRow]]) -> list[TableRow] | None:
        store = self.copies.store
        return self.copies.first_found(key, lambda reader: at_one_commit(reader, store, VersionedStore, read))


def versioned_view(copies: ReadOnlyStore) -> ReadOnlyVersionedStore:
    """QueryError: the store is of another kind."""
    if not copies.store.is_versioned:
        raise QueryError(f"{copies.store.name} is not a versioned store: it has only the newest value of each key")
    return ReadOnlyVersionedStore(copies)
