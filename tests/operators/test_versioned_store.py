"""A versioned store answers as a plain list of all versions does, within its history retention."""

from __future__ import annotations

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
PUTS = st.lists(st.tuples(st.sampled_from(("a", "b", "a\x00")), VALUES, st.integers(0, 900)))


class Versions:
    """The model: every accepted put, for ever."""

    def __init__(self) -> None:
        self.observed = -1
        self.versions: dict[str, dict[int, str | None]] = {}

    def put(self, key: str, value: str | None, timestamp: int) -> bool | None:
        if timestamp < self.observed - RETENTION:
            return None
        self.observed = max(self.observed, timestamp)
        known = self.versions.setdefault(key, {})
        known[timestamp] = value
        return timestamp == max(known)

    def as_of(self, key: str, timestamp: int) -> tuple[str, int] | None:
        known = self.versions.get(key, {})
        latest = max(known, default=None)
        if timestamp < self.observed - RETENTION and (latest is None or latest > timestamp):
            return None
        at = max((start for start in known if start <= timestamp), default=None)
        value = None if at is None else known[at]
        return None if value is None or at is None else (value, at)

    def history(self, key: str, first: int, last: int) -> list[tuple[str, int]]:
        known = self.versions.get(key, {})
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
