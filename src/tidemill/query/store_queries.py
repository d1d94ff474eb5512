"""Interactive queries of an instance's stores: the object behind KafkaStreams' methods and the HTTP server.

Decides which questions need the broker (how many partitions a store has, where changelogs end) and remembers the answers as
long as they hold. Copies, maps of hosts and the broker's answers are handed in as functions, so it knows no stream thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemill.errors import InvalidStateStoreError, QueryError, RetriableError, TidemillError
from tidemill.ids import TopicPartition
from tidemill.membership.member_state import Role
from tidemill.membership.wire import HostInfo
from tidemill.printable import repr_of
from tidemill.query.changelog_ends import ChangelogEnds
from tidemill.query.local_copies import CopyReader, LocalCopies
from tidemill.query.metadata import HostMap, KeyQueryMetadata, StreamsMetadata, who_has_it
from tidemill.query.position import Position
from tidemill.query.rows import FoundRows, RowsQuestion, range_of_keys, row_of_key
from tidemill.query.store_frame import StoreDataFrame, StoreFrames
from tidemill.query.store_info import StoreInfo, known_store, readable_store
from tidemill.query.view import ReadOnlyStore, StoreAccess
from tidemill.query.windowed_rows import first_windows
from tidemill.spellings import Spelled
from tidemill.task.progress import CopyProgress
from tidemill.topology.partitioning import partition_of_key

Partitioner = Callable[[bytes, int], int]
_AGAIN_S = 5.0
"""No read asks brokers that are away for partition counts more often, if these were known at an earlier assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagInfo(Spelled):
    """Lag of a copy of a store: positions in its changelog (next offsets)."""

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """Offsets behind, markers and compacted records included."""
        return max(0, self.end_offset_position - self.current_offset_position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """Requests to the brokers: partitions of topics (None: no such topic) and ends of changelogs.

    ``stable_end_offsets`` are those of committed records. ``end_offsets`` count what lies in open transactions too, which no copy
    can have: a killed owner leaves such records until its session is over.
    """

    partitions: Callable[[Collection[str]], Mapping[str, int | None]]
    end_offsets: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]
    stable_end_offsets: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnInstance:
    """What an instance says of itself. ``hosts`` gives its group's newest map; ``require_started`` raises if it doesn't run;
    ``progress`` gives that of restoring tasks and standbys."""

    own_host: HostInfo | None
    hosts: Callable[[], HostMap]
    require_started: Callable[[], object]
    progress: Callable[[], Sequence[CopyProgress]] = tuple


@dataclass(frozen=True, slots=True)
class _Count:
    """The partitions of a store. ``hosts``: of the assignment at which a broker was asked; ``again_s``: when to ask, if there is
    a newer one and the last question had no answer."""

    count: int
    hosts: HostMap
    again_s: float = 0.0


class StoreQueries:
    """May be used from any thread. ``frames`` None: no DataFrames are asked for. ``shared``: the global stores."""

    def __init__(
        self,
        stores: Mapping[str, StoreInfo],
        copies: LocalCopies,
        instance: OwnInstance,
        broker: Broker,
        *,
        frames: StoreFrames | None = None,
        shared: Collection[str] = (),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stores = dict(sorted(stores.items()))
        self.copies, self.own_host = copies, instance.own_host
        self._instance, self._broker = instance, broker
        self._frames, self._shared = frames, frozenset(shared)
        self._counts: dict[int, _Count] = {}
        self._now_s = now_s
        self._ends = ChangelogEnds(broker.stable_end_offsets, now_s)

    # --- what users ask through KafkaStreams -------------------------------------------------------------------------

    def view(
        self, name: str, *, stale: bool, partition: int | None, position: Position | None = None
    ) -> ReadOnlyStore:
        if isinstance(name, str) and name in self._shared:
            raise QueryError(
                f"{name} is a global store, which the workers of each thread keep in memory: it can't be read from here; "
                "read its topic as a table, with a store of its own"
            )
        store = readable_store(self.stores, name)
        self._instance.require_started()
        if store.changelog is None and position is not None:
            raise QueryError(f"{name} has no changelog, so there are no positions of it: leave position out")
        if position is not None and not isinstance(position, Position):
            raise QueryError(f"{name}: position is {position!r}, expected a Position, which Position.parse makes of its text")
        if partition is not None and (type(partition) is not int or not 0 <= partition < self.partition_count(store)):
            raise QueryError(f"{name} has the partitions 0 to {self.partition_count(store) - 1}: there is no {partition!r}")
        around = StoreAccess(
            copies=self.copies,
            partition_of=self.partition_of,
            partition_count=self.partition_count,
            owners=self._owners_said,
            require_started=self._instance.require_started,
        )
        return ReadOnlyStore(store=store, around=around, stale=stale, partition=partition, at_least=position)

    def dataframe(self, name: str, *, stale: bool, partition: int | None) -> StoreDataFrame:
        """The rows of ``view`` as a snapshot."""
        view = self.view(name, stale=stale, partition=partition)
        assert self._frames is not None
        try:
            return self._frames.of(view.store, view.readers())
        except TidemillError:
            raise
        except Exception as problem:  # PySpark's, whatever it finds of a session that ends
            if not self.copies.is_closed:
                raise
            raise InvalidStateStoreError(f"{name} can't be read now: this instance is closing", store=name) from problem

    def metadata_for_key(self, name: str, key: object, partitioner: Partitioner | None) -> KeyQueryMetadata:
        store = known_store(self.stores, name)
        self._instance.require_started()
        if partitioner is not None and not callable(partitioner):
            raise QueryError(
                f"{name}: the partitioner is {partitioner!r}, expected a function of (the key's bytes, the number of "
                "partitions); no serde is needed, the keys have the store's"
            )
        count = self.partition_count(store)
        found = (partitioner or partition_of_key)(store.key_bytes(key), count)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < count:
            raise QueryError(f"{name}: the partitioner gave {repr_of(found)}, expected one of the partitions 0 to {count - 1}")
        return self.owners(store, found)

    def clients(self) -> tuple[StreamsMetadata, ...]:
        self._instance.require_started()
        return self._instance.hosts().clients(self.stores.values())

    def progress(self) -> Sequence[CopyProgress]:
        """Progress of restoring tasks and standbys here."""
        return self._instance.progress()

    def lags(self) -> dict[str, dict[int, LagInfo]]:
        """Lags of this instance's copies of logged stores, by partition. A running active has lag 0, as in Kafka."""
        self._instance.require_started()
        logged = {name: store for name, store in self.stores.items() if store.changelog is not None}
        open_now = {name: self.copies.open(store, stale=True).readers for name, store in logged.items()}
        wanted = [TopicPartition(str(logged[name].changelog), p) for name, readers in open_now.items() for p in readers]
        ends = self._broker.end_offsets(wanted) if wanted else {}
        found: dict[str, dict[int, LagInfo]] = {}
        for name, readers in open_now.items():
            for partition, reader in sorted(readers.items()):
                end = ends[TopicPartition(str(logged[name].changelog), partition)]
                at = end if reader.is_running and reader.role is Role.ACTIVE else reader.position()
                found.setdefault(name, {})[partition] = LagInfo(current_offset_position=at, end_offset_position=end)
        return found

    # --- what the HTTP server asks ---------------------------------------------------------------------------------------

    def known_partition_count(self, store: StoreInfo) -> int | None:
        """``partition_count`` without asking a broker; None: it has to be asked."""
        known = self._counts.get(store.subtopology)
        if known is None or (known.hosts is not self._instance.hosts() and self._now_s() >= known.again_s):
            return None
        return known.count

    def partition_count(self, store: StoreInfo) -> int:
        """As of the group's newest assignment: the topics that the store is made from may have got other partitions.
        RetriableError while they are not all there yet, or no broker says so and none has before."""
        if (count := self.known_partition_count(store)) is not None:
            return count
        hosts, known = self._instance.hosts(), self._counts.get(store.subtopology)
        try:
            count = self._asked_count(store)
        except RetriableError:
            if known is None:
                raise
            self._counts[store.subtopology] = replace(known, again_s=self._now_s() + _AGAIN_S)
            return known.count
        self._counts[store.subtopology] = _Count(count, hosts)
        return count

    def _asked_count(self, store: StoreInfo) -> int:
        counts = self._broker.partitions(store.source_topics)
        missing = sorted(topic for topic in store.source_topics if counts.get(topic) is None)
        if missing:
            raise InvalidStateStoreError(f"{store.name}: its input {missing[0]} is not there yet", store=store.name)
        return max(counts[topic] or 0 for topic in store.source_topics)

    def partition_of(self, store: StoreInfo, key: bytes) -> int:
        return partition_of_key(key, self.partition_count(store))

    def owners(self, store: StoreInfo, partition: int) -> KeyQueryMetadata:
        return self._instance.hosts().owners(store, partition)

    def read(self, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None) -> FoundRows:
        """Rows from the copies here: of actives only, or with ``max_lag`` also of those at most that many offsets behind, and no
        older than the question allows; in both cases only of copies that have reached its position.

        Partitions that can't be read here now are missing from the answer. QueryError for a position where there is no changelog.
        """
        self._instance.require_started()
        if store.changelog is None and question.position.offsets:
            raise QueryError(f"{store.name} has no changelog, so there are no positions of it: leave position out")
        readers = self.copies.open(store, stale=max_lag is not None, partitions=question.partitions).readers
        answering: list[tuple[CopyReader, int]] = []
        parts: list[FoundRows] = []
        for partition, reader in sorted(readers.items()):
            try:
                is_active = max_lag is None or (reader.is_running and reader.role is Role.ACTIVE)
                if partition in question.position.offsets:
                    reader.require(question.position.offsets[partition])
                lag = 0 if is_active else self._lag(store, reader, question.most_age_ms)
                if lag is None or (max_lag is not None and lag > max_lag):
                    continue
                asked = replace(question, partitions=frozenset({partition}))
                if question.times is not None:
                    parts.append(first_windows(reader, store, asked, lag))
                elif question.key is not None:
                    parts.append(row_of_key(reader, asked, lag))
                else:
                    answering.append((reader, lag))
            except RetriableError:
                continue
        found = FoundRows.merged([*parts, range_of_keys(answering, question)], question)
        if store.changelog is None:
            return found
        return replace(found, position=Position({partition: readers[partition].reached for partition in found.covered}))

    def _lag(self, store: StoreInfo, reader: CopyReader, most_age_ms: int | None) -> int | None:
        """None: the copy is older than it may be. RetriableError if the broker doesn't say. Without a changelog there is nothing
        to be behind of."""
        if store.changelog is None:
            return 0
        tp, position = TopicPartition(store.changelog, reader.partition), reader.position()
        reader.require(position)  # what is read after this must not be older, whatever happens to the files
        if most_age_ms is None:
            return self._ends.lag(tp, position)
        lag, age_ms = self._ends.lag(tp, position, hold_s=most_age_ms / 2e3), self._ends.age_ms(tp, position)
        return lag if age_ms is not None and age_ms <= most_age_ms else None

    def _owners_said(self, store: StoreInfo, partition: int) -> tuple[str, tuple[str, ...]]:
        owners = self.owners(store, partition)
        hosts = ([owners.active_host] if owners.active_host else []) + list(owners.standby_hosts)
        return who_has_it(owners, self.own_host), tuple(str(host) for host in hosts if host != self.own_host)
