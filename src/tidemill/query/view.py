"""``streams.store(name)``: read-only view of a store's copies on this instance, through its serdes.

Decides what an answer needs: for a key the copy of its partition, for ranges every partition whose active task is on this
instance. A view keeps nothing open: each call looks up the copies again, so it may be kept over rebalances and used from any
thread. Entries come in the order of their keys' bytes, as in Kafka (negative numbers come after positive ones).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidemill.dsl.arguments import required_serde
from tidemill.errors import InvalidStateStoreError, QueryError, TopologyError
from tidemill.query.local_copies import CopyReader, LocalCopies
from tidemill.query.position import Position
from tidemill.query.store_html import store_html
from tidemill.query.store_info import StoreInfo
from tidemill.spellings import Spelled
from tidemill.topology.values import Key, Serde, Value, ValueAndTimestamp

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """Requests of a view about its store. ``partition_of``: of a key; ``owners``: the end of a sentence that says who has a
    partition, and their addresses; ``require_started``: raises if the instance doesn't run."""

    copies: LocalCopies
    partition_of: Callable[[StoreInfo, bytes], int]
    partition_count: Callable[[StoreInfo], int]
    owners: Callable[[StoreInfo, int], tuple[str, tuple[str, ...]]]
    require_started: Callable[[], object]


class ReadFrom:
    """The copies that a view has read last, by partition, and how far those before them were: one that the instance no longer has
    counts in the position of what was read."""

    def __init__(self) -> None:
        self._last: dict[int, CopyReader] = {}
        self._before = Position()

    def add(self, reader: CopyReader) -> CopyReader:
        if (last := self._last.get(reader.partition)) is not None:
            self._before = self._before.merged(Position({last.partition: last.reached}))
        self._last[reader.partition] = reader
        return reader

    def position(self, now: Position) -> Position:
        """``now``: of the copies that are here."""
        return now.merged(self._before, Position({p: reader.reached for p, reader in list(self._last.items())}))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReadOnlyStore(Spelled):
    """A key-value store; of a versioned store the newest versions. Every call may raise InvalidStateStoreError: what it needs is
    being restored or is elsewhere."""

    store: StoreInfo
    around: StoreAccess
    stale: bool = False
    partition: int | None = None
    with_timestamps: bool = False
    at_least: Position | None = None
    """Lower bound of the position of copies that are read."""
    read_from: ReadFrom = field(default_factory=ReadFrom, compare=False)

    def __repr__(self) -> str:
        return f"ReadOnlyStore({self.store.name!r})"

    def _repr_html_(self) -> str:
        """Notebook view: the first entries."""
        return store_html(self.store.name, ("key", "value"), self.all)

    @property
    def timestamped(self) -> ReadOnlyStore:
        """The same store, with ``ValueAndTimestamp`` as values. QueryError if it keeps no timestamps."""
        if not self.store.timestamped:
            raise QueryError(f"{self.store.name} keeps no timestamps: read its values without")
        return replace(self, with_timestamps=True)

    def get(self, key: object) -> Value:
        """The value of ``key``, None if there is none.

        QueryError for a key of another type. A key that is not found is an InvalidStateStoreError, which says who has it, if
        its partition isn't here.
        """
        data = self.store.key_bytes(key)
        stored = self.first_found(key, lambda reader: reader.get(data))
        return None if stored is None else self._value(stored)

    def first_found(self, key: object, read: Callable[[CopyReader], T]) -> T | None:
        """Result of ``read`` for a key (None or empty: not found), in the key's partition or another that may hold it."""
        data = self.store.key_bytes(key)
        self.around.require_started()
        partition = self.partition if self.partition is not None else self.around.partition_of(self.store, data)
        # A foreign client, a partitioner or a processor may have placed it anywhere: only all together show that there is none.
        needed = [partition]
        if self.partition is None and not self.store.is_placed:
            needed += [number for number in range(self.around.partition_count(self.store)) if number != partition]
        copies = self.around.copies.open(self.store, stale=self.stale, partitions=needed)
        for number in needed:
            found = read(self._required(copies.readers[number])) if number in copies.readers else None
            if found is not None and found != []:
                return found
        for number in needed:
            if number not in copies.readers:
                raise self._not_here(number, f"key {key!r}", copies.refused.get(number))
        return None

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Key, Value]]:
        """Every (key, value) of the partitions that are here; ``reverse``: from the last key to the first."""
        return self.range(reverse=reverse)

    def range(self, low: object = None, high: object = None, *, reverse: bool = False) -> Iterator[tuple[Key, Value]]:
        """The entries from ``low`` to ``high``, both included; None: no bound. ``reverse``: from the last key to the first."""
        first, last = (None if bound is None else self.store.key_bytes(bound) for bound in (low, high))
        return self._merged([reader.scan(first, last, reverse=reverse) for reader in self.readers()], reverse=reverse)

    def prefix_scan(self, prefix: object, serde: Serde, *, reverse: bool = False) -> Iterator[tuple[Key, Value]]:
        """The entries of the keys whose bytes begin with those of ``prefix``, which ``serde`` writes. QueryError for one of
        another type."""
        try:
            written = required_serde(serde, f"{self.store.name}: prefix_scan")
        except TopologyError as error:
            raise QueryError(str(error)) from None
        begin = self.store.bytes_of(prefix, written, "prefix of keys")
        return self._merged([reader.prefix_scan(begin, reverse=reverse) for reader in self.readers()], reverse=reverse)

    @property
    def approximate_num_entries(self) -> int:
        """Number of keys in the partitions that are here."""
        return sum(reader.entries() for reader in self.readers())

    def readers(self) -> list[CopyReader]:
        """The copies that a range over the whole store is read from, by partition."""
        self.around.require_started()
        wanted = None if self.partition is None else [self.partition]
        found = self.around.copies.open(self.store, stale=self.stale, partitions=wanted)
        if found.refused:
            partition, why = min(found.refused.items())
            raise self._not_here(partition, "a whole range", why)
        if not found.readers:
            raise self._nothing_here() if self.partition is None else self._not_here(self.partition, "a whole range", None)
        return [self._required(reader) for _, reader in sorted(found.readers.items())]

    @property
    def position(self) -> Position:
        """Positions of the copies that a range is read from, and of those that this view has read before: for ``position=`` of a
        later read, here or on another instance."""
        return self.read_from.position(Position({reader.partition: reader.position() for reader in self.readers()}))

    def _merged(self, scans: Sequence[Iterator[tuple[bytes, bytes]]], *, reverse: bool) -> Iterator[tuple[Key, Value]]:
        return ((self.store.key(key), self._value(stored)) for key, stored in heapq.merge(*scans, reverse=reverse))

    def _required(self, reader: CopyReader) -> CopyReader:
        if self.at_least is not None:
            reader.require(self.at_least.offsets.get(reader.partition, 0))
        return self.read_from.add(reader)

    def _not_here(self, partition: int, what: str, why: str | None) -> InvalidStateStoreError:
        sentence, hosts = self.around.owners(self.store, partition)
        return InvalidStateStoreError(
            f"{self.store.name}: {what} needs partition {partition}, and {why or 'it is not here'}; {sentence}. "
            "Ask again in a moment, or ask there",
            store=self.store.name,
            hosts=hosts,
        )

    def _nothing_here(self) -> InvalidStateStoreError:
        """Not an empty answer: before its first assignment, and after its last task has moved, an instance would have one."""
        count = self.around.partition_count(self.store)
        hosts = dict.fromkeys(host for number in range(count) for host in self.around.owners(self.store, number)[1])
        return InvalidStateStoreError(
            f"{self.store.name}: a whole range is of the partitions that are here, and none is; ask again in a moment, or ask"
            f" {' or '.join(hosts) or 'another instance'}",
            store=self.store.name,
            hosts=tuple(hosts),
        )

    def _value(self, stored: bytes) -> Value:
        value = self.store.value(stored)
        timestamp_ms = self.store.timestamp_ms(stored) if self.with_timestamps else None
        return value if timestamp_ms is None else ValueAndTimestamp(value, timestamp_ms)
