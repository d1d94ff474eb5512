"""A versioned store answers as a plain list of all versions does, within its history retention."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.operators.harness import MemoryRows
from tidemill import Serdes
from tidemill.operators.versioned_store import VersionedStore
from tidemill.topology.nodes import Store, StoreKind

RETENTION = 100
STORE = Store(
    name="v", kind=StoreKind.VERSIONED, key_serde=Serdes.string(), value_serde=Serdes.string(), retention_ms=RETENTION
)
Put = tuple[str, "str | None", int]
VALUES = st.one_of(st.none(), st.sampled_from("xyz"))
PUTS = st.lists(st.tuples(st.sampled_from(("a", "b", "a\x00")), VALUES, st.one_of(st.integers(0, 12), st.integers(0, 900))))


@dataclass
class Chain:
    """A key's versions as Kafka Streams keeps them: the newest value apart, older ones with their ends, and the last of these."""

    newest: tuple[int, str] | None = None
    older: dict[int, tuple[int, str | None]] = field(default_factory=dict)
    end: int | None = None

    def put(self, value: str | None, timestamp: int) -> bool:
        newest = self.newest
        if newest is not None and timestamp >= newest[0]:
            if timestamp > newest[0]:
                self.older[newest[0]], self.end = (timestamp, newest[1]), timestamp
            self.newest = None if value is None else (timestamp, value)
            return True
        if self.end is not None and self.end > timestamp:
            until = min(time for start, (end, _) in [*self.older.items(), (self.end, (self.end, None))]
                        for time in (start, end) if time > timestamp)  # fmt: skip
            for start, (end, held) in list(self.older.items()):
                if start < timestamp < end:
                    self.older[start] = timestamp, held
            self.older[timestamp] = until, value
            return False
        if newest is not None:
            self.older[timestamp], self.end = (newest[0], value), newest[0]
            return False
        if value is not None:
            self.newest = timestamp, value
        else:
            if self.end is not None and self.end < timestamp:
                self.older[self.end] = timestamp, None
            self.end = timestamp
        return True

    def known(self) -> dict[int, str | None]:
        """The times from which something was valid, or nothing."""
        ends: dict[int, str | None] = dict.fromkeys(end for end, _ in self.older.values())
        if self.end is not None:
            ends[self.end] = None
        ends.update({start: value for start, (_, value) in self.older.items()})
        return ends if self.newest is None else {**ends, self.newest[0]: self.newest[1]}


class Versions:
    """The model: every accepted put, for ever."""

    def __init__(self) -> None:
        self.observed = -1
        self.versions: dict[str, Chain] = {}

    def put(self, key: str, value: str | None, timestamp: int) -> bool | None:
        if timestamp < self.observed - RETENTION:
            return None
        self.observed = max(self.observed, timestamp)
        return self.versions.setdefault(key, Chain()).put(value, timestamp)

    def known(self, key: str) -> dict[int, str | None]:
        return self.versions.get(key, Chain()).known()

    def as_of(self, key: str, timestamp: int) -> tuple[str, int] | None:
        known = self.known(key)
        latest = max(known, default=None)
        if timestamp < self.observed - RETENTION and (latest is None or latest > timestamp):
            return None
        at = max((start for start in known if start <= timestamp), default=None)
        value = None if at is None else known[at]
        return None if value is None or at is None else (value, at)

    def history(self, key: str, first: int, last: int) -> list[tuple[str, int]]:
        known = self.known(key)
        starts = sorted(start for start in known if start <= last)
        if last < self.observed - RETENTION:
            starts = [start for start in starts if start == max(known)]
        before = [start for start in starts if start <= first][-1:]
        shown = (*before, *(start for start in starts if start > first))
        return [(value, start) for start in shown if (value := known[start]) is not None] if first <= last else []


@given(PUTS, st.lists(st.integers(-200, 1000), max_size=20))
def test_reads_as_of_any_time_give_what_a_list_of_all_versions_gives(puts: list[Put], times: list[int]) -> None:
    rows, model = MemoryRows(), Versions()
    store = VersionedStore(STORE, rows)
    for number, (key, value, timestamp) in enumerate(puts):
        assert store.put(key, value, timestamp) is model.put(key, value, timestamp)
        if number % 5 == 4:  # the end of a batch, and another worker after it
            store.flush()
            store = VersionedStore(STORE, rows)
    for key in ("a", "b", "a\x00", "c"):
        assert store.get(key) == model.as_of(key, 10_000)
        for time in times:
            assert store.get_as_of(key, time) == model.as_of(key, time)
        for first, last in pairwise(times):
            if first >= model.observed - RETENTION or last < model.observed - RETENTION:
                assert store.history(key, first, last) == model.history(key, first, last)
    assert list(store.all()) == sorted((k, row) for k in model.versions if (row := model.as_of(k, 10_000)) is not None)


def test_history_begins_with_the_version_that_was_valid_at_its_start() -> None:
    store = VersionedStore(STORE, MemoryRows())
    for value, timestamp in (("x", 10), ("y", 20), (None, 30), ("z", 40)):
        store.put("k", value, timestamp)
    assert store.history("k", 15, 35) == [("x", 10), ("y", 20)]
    assert store.history("k", 35, 40) == [("z", 40)]


def test_versions_that_no_read_can_find_any_more_are_deleted() -> None:
    rows = MemoryRows()
    store = VersionedStore(STORE, rows)
    for timestamp in range(0, 100_000, 10):
        store.put(f"k{timestamp // 1000}", None if timestamp % 1000 == 990 else "x", timestamp)
    assert len(rows.rows) <= 5 * RETENTION // 10


def test_a_value_deleted_as_of_its_own_time_leaves_room_for_older_ones() -> None:
    """As Kafka Streams 4.3's store, which then knows the deletion only if an older version ended there."""
    store = VersionedStore(STORE, MemoryRows())
    store.put("k", "x", 50)
    assert store.put("k", None, 50)
    assert store.put("k", "y", 30)
    assert store.get("k") == ("y", 30)
    assert store.put("k", "z", 50)
    assert store.put("k", None, 50)
    assert not store.put("k", "u", 40)
    assert store.get("k") is None
    assert store.get_as_of("k", 45) == ("u", 40)
