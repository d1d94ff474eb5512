"""Window and session stores: what they show, what they let go, and how their rows lie."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from tests.operators import harness
from tests.operators.harness import MemoryRows
from tests.operators.step_harness import StepRun
from tidemill import EmitStrategy, Materialized, Serdes, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, per_record
from tidemill.operators import recent_rows, session_store
from tidemill.operators.recent_rows import RecentRows
from tidemill.operators.segments import Segments, unpack_time
from tidemill.operators.session_store import SessionStore
from tidemill.operators.window_store import TimestampedWindowStore, WindowStore
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.windows import Windowed

STRING = Serdes.string()
MINUTE = 60_000


def _store(kind: StoreKind = StoreKind.WINDOW, **settings: Any) -> Store:
    given = {"retention_ms": 3 * MINUTE, "window_size_ms": 10_000, **settings}
    return Store(name="w", kind=kind, key_serde=STRING, value_serde=STRING, **given)


def _windows(**settings: Any) -> WindowStore:
    return WindowStore(_store(**settings), MemoryRows())


def test_windows_are_found_by_key_and_start_and_by_ranges_of_starts() -> None:
    store = _windows()
    for start, value in ((0, "a"), (10_000, "b"), (90_000, "c"), (100_000, "d")):
        assert store.put("k", value, start, start)
    store.put("k\0", "other", 10_000, 10_000)
    assert store.fetch("k", 10_000) == "b"
    assert store.fetch("k", 20_000) is None
    assert list(store.fetch_range("k", 10_000, 90_000)) == [(10_000, "b"), (90_000, "c")]
    assert list(store.fetch_range("k", 0, 1 << 62, reverse=True)) == [(100_000, "d"), (90_000, "c"), (10_000, "b"), (0, "a")]
    assert {windowed for windowed, _ in store.fetch_all(10_000, 10_000)} == {
        Windowed("k", 10_000, 20_000), Windowed("k\0", 10_000, 20_000),
    }
    assert [value for _, value in store.fetch_keys("k", "k", 0, 90_000)] == ["a", "b", "c"]
    assert list(store.all(reverse=True)) == list(reversed(list(store.all())))
    assert [value for key, value in store.all() if key.key == "k"] == ["a", "b", "c", "d"]


def test_an_iterator_shows_the_rows_as_they_were_when_it_was_asked_for() -> None:
    windows, sessions = _windows(), SessionStore(_store(StoreKind.SESSION), MemoryRows())
    windows.put("a", "1", 0, 0)
    sessions.put(Windowed("a", 0, 5), "1", 5)
    asked = [windows.all(), windows.fetch_keys("a", "b"), windows.fetch_range("a", 0, 9)]
    asked += [sessions.all(), sessions.fetch_keys("a", "b"), sessions.fetch("a")]
    windows.put("a", "2", 1, 1)
    windows.put("b", "2", 0, 0)
    sessions.put(Windowed("a", 0, 6), "2", 6)
    sessions.put(Windowed("b", 0, 5), "2", 5)
    assert [[value for _, value in found] for found in asked] == [["1"]] * 6


def test_a_null_key_is_no_empty_one() -> None:
    """Kafka Streams refuses it, too: "key cannot be null"."""
    windows, sessions = _windows(), SessionStore(_store(StoreKind.SESSION), MemoryRows())
    windows.put("", "a", 0, 0)
    sessions.put(Windowed("", 0, 5), "a", 5)
    assert list(windows.fetch_range("", 0, 10)) == [(0, "a")]
    for call in (
        lambda: windows.put(None, "b", 0, 0), lambda: windows.fetch(None, 0), lambda: windows.fetch_range(None, 0, 10),
        lambda: sessions.put(Windowed(None, 0, 5), "b", 5), lambda: sessions.remove(Windowed(None, 0, 5), 5),
        lambda: sessions.fetch_session(None, 0, 5), lambda: sessions.find_sessions(None),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="store has no null keys"):
            call()
    assert windows.fetch("", 0) == sessions.fetch_session("", 0, 5) == "a"


@pytest.mark.parametrize("wrong", [None, 1.5, datetime(2026, 1, 1, tzinfo=timezone.utc)])
def test_a_time_that_is_none_is_named(wrong: Any) -> None:
    windows, sessions = _windows(), SessionStore(_store(StoreKind.SESSION), MemoryRows())
    for read in (
        lambda: windows.fetch("a", wrong), lambda: windows.fetch_range("a", 0, wrong), lambda: windows.fetch_all(wrong, 9),
        lambda: windows.fetch_keys("a", "b", wrong), lambda: sessions.fetch_session("a", wrong, 9),
        lambda: sessions.find_sessions("a", wrong), lambda: sessions.fetch_keys("a", "b", 0, wrong),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=r"a time is .*, expected an int; times of .* are ms since the epoch"):
            read()


def test_none_deletes_a_window() -> None:
    store = _windows()
    store.put("k", "a", 0, 0)
    store.put("k", None, 0, 5)
    assert store.fetch("k", 0) is None
    assert list(store.all()) == []


def test_a_timestamped_store_gives_values_with_their_timestamps() -> None:
    store = TimestampedWindowStore(_store(StoreKind.TIMESTAMPED_WINDOW), MemoryRows())
    store.put("k", "a", 0, 7)
    assert store.fetch("k", 0) == ("a", 7)
    assert list(store.fetch_range("k", 0, 0)) == [(0, ("a", 7))]


def test_values_of_one_key_and_time_are_all_kept_where_duplicates_are() -> None:
    store = _windows(retain_duplicates=True)
    for value in ("a", "b", "a"):
        store.put("k", value, 5, 5)
    assert list(store.fetch_range("k", 5, 5)) == [(5, "a"), (5, "b"), (5, "a")]
    assert store.put("k", None, 5, 5), "a delete of duplicates does nothing"
    assert len(list(store.all())) == 3


@pytest.mark.parametrize("persistent", [False, True])
def test_a_fetch_where_duplicates_are_kept_gives_the_last_put_of_the_key_and_time(*, persistent: bool) -> None:
    rows = MemoryRows()
    first = WindowStore(_store(retain_duplicates=True, persistent=persistent), rows)
    for key, value, start in (("k", "a", 5), ("k", "b", 5), ("k", "c", 6), ("other", "d", 5), ("k", None, 5)):
        first.put(key, value, start, start)
    first.flush()
    for store in (first, WindowStore(_store(retain_duplicates=True, persistent=persistent), rows)):
        assert [store.fetch("k", start) for start in (4, 5, 6, 7, -1)] == [None, "b", "c", None, None]


def test_the_sequence_of_duplicates_goes_on_after_a_restart() -> None:
    rows = MemoryRows()
    first = WindowStore(_store(retain_duplicates=True), rows)
    first.put("k", "a", 5, 5)
    first.flush()
    second = WindowStore(_store(retain_duplicates=True), rows)
    second.put("k", "b", 5, 5)
    assert [value for _, value in second.fetch_range("k", 5, 5)] == ["a", "b"]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_delete_of_duplicates_moves_the_time_of_a_restored_store_as_it_moved_that_of_the_old_one(*, persistent: bool) -> None:
    """It is in the changelog, though it deletes nothing; it moves the time of a store in memory alone.

    Kafka Streams 4.3 moves the time of a restored store on disk too (``AbstractRocksDBSegmentedBytesStore``), not that of the
    old one: it would hide "a" and refuse "b" here.
    """
    store, rows = _store(retain_duplicates=True, persistent=persistent, retention_ms=MINUTE), MemoryRows()
    unbroken, restored = WindowStore(store, rows), WindowStore(store, MemoryRows())
    unbroken.put("k", "a", 5, 5)
    unbroken.put("k", None, 3 * MINUTE, 3 * MINUTE)
    for key, value, timestamp, _headers in rows.logged:
        restored.restore(key, value, timestamp or 0)
    for one in (unbroken, restored):
        assert list(one.fetch_range("k", 5, 5)) == ([(5, "a")] if persistent else [])
        assert one.put("k", "b", 6, 6) is persistent


def test_reads_hide_to_the_millisecond_and_segments_go_as_a_whole() -> None:
    rows = MemoryRows()
    store = WindowStore(_store(), rows)
    for start in (0, 80_000, 200_000):
        store.put("k", "a", start, start)
    assert list(store.fetch_range("k", 0, 1 << 62)) == [(80_000, "a"), (200_000, "a")]
    assert {unpack_time(key)[0] for key in rows.rows} == {0, 2}
    assert store.put("k", "late, but its segment lives", 1, 1)
    assert store.fetch("k", 1) is None
    store.put("k", "b", 300_000, 300_000)
    assert {unpack_time(key)[0] for key in rows.rows} == {2, 3}
    assert not store.put("k", "expired", 2, 2)


def test_a_store_in_memory_refuses_to_the_millisecond() -> None:
    store = _windows(persistent=False)
    store.put("k", "a", 300_000, 300_000)
    assert store.put("k", "b", 120_001, 120_001)
    assert not store.put("k", "c", 120_000, 120_000)


def test_a_store_in_memory_without_a_retention_keeps_nothing() -> None:
    """Also of a second record of the newest time."""
    windows = _windows(persistent=False, retention_ms=0, window_size_ms=0)
    assert [windows.put("k", value, 5, 5) for value in ("a", "b")] == [False, False]
    assert list(windows.all()) == []
    sessions = SessionStore(_store(StoreKind.SESSION, persistent=False, retention_ms=0), MemoryRows())
    assert [sessions.put(Windowed("k", 5, 5), value, 5) for value in ("a", "b")] == [False, False]


@pytest.mark.parametrize("persistent", [False, True])
def test_removing_a_session_moves_the_time_of_a_store_that_is_not_in_memory(*, persistent: bool) -> None:
    """Also one that is not there; as Kafka Streams 4.3's stores."""
    store = SessionStore(_store(StoreKind.SESSION, persistent=persistent, retention_ms=MINUTE), MemoryRows())
    store.put(Windowed("k", 0, 5), "a", 5)
    store.remove(Windowed("other", 3 * MINUTE, 3 * MINUTE), 5)
    assert list(store.find_sessions("k")) == ([] if persistent else [(Windowed("k", 0, 5), "a")])
    assert store.put(Windowed("k", 0, 7), "b", 7) is not persistent


@pytest.mark.parametrize("duplicates", [False, True])
def test_windows_of_all_keys_come_by_segment_and_key_or_in_memory_by_start_and_key(duplicates: bool) -> None:
    """The order of Kafka Streams 4.3's RocksDB and in-memory stores."""
    written = [("b", 700), ("a", 1500), ("c", 700), ("a", 300), ("", 1500), ("b", 90_000)]
    expected = {
        True: [("", 1500), ("a", 300), ("a", 1500), ("b", 700), ("c", 700), ("b", 90_000)],
        False: [("a", 300), ("b", 700), ("c", 700), ("", 1500), ("a", 1500), ("b", 90_000)],
    }
    for persistent, order in expected.items():
        store = _windows(persistent=persistent, retain_duplicates=duplicates)
        for key, start in written:
            store.put(key, "v", start, start)
        for reverse in (False, True):
            found = [(windowed.key, windowed.start) for windowed, _ in store.all(reverse=reverse)]
            assert found == (order[::-1] if reverse else order)
        within = [entry for entry in order if "a" <= entry[0] <= "b" and entry[1] <= 1500]
        for reverse in (False, True):
            by_keys = store.fetch_keys("a", "b", 0, 1500, reverse=reverse)
            assert [(windowed.key, windowed.start) for windowed, _ in by_keys] == (within[::-1] if reverse else within)
        assert list(store.fetch_keys(None, None)) == list(store.all())
        assert [windowed.key for windowed, _ in store.fetch_keys(None, "")] == [""]
        assert list(store.fetch_keys("b", "a")) == []


def test_windows_of_all_keys_of_a_store_ordered_by_time_come_by_start_and_key() -> None:
    """The order of Kafka Streams 4.3's stores of final results."""
    store = _windows(time_ordered=True)
    for key, start in (("b", 700), ("a", 1500), ("c", 700), ("a", 300), ("", 1500), ("b", 90_000)):
        store.put(key, "v", start, start)
    expected = [("a", 300), ("b", 700), ("c", 700), ("", 1500), ("a", 1500), ("b", 90_000)]
    assert [(windowed.key, windowed.start) for windowed, _ in store.all()] == expected
    assert [(windowed.key, windowed.start) for windowed, _ in store.all(reverse=True)] == expected[::-1]
    within = [entry for entry in expected if "a" <= entry[0] <= "b"]
    assert [(windowed.key, windowed.start) for windowed, _ in store.fetch_keys("a", "b")] == within


def test_a_store_of_final_results_whose_rows_carry_headers_has_an_index_by_key() -> None:
    """As Kafka Streams 4.3's, whatever the windows."""
    for persistent in (True, False):
        store = _windows(time_ordered=True, with_headers=True, persistent=persistent)
        for key, start in (("b", 700), ("a", 1500), ("a", 300)):
            store.put(key, "v", start, start)
        by_time, by_key = [("a", 300), ("b", 700), ("a", 1500)], [("a", 300), ("a", 1500), ("b", 700)]
        assert [(windowed.key, windowed.start) for windowed, _ in store.all()] == by_time
        found = [(windowed.key, windowed.start) for windowed, _ in store.fetch_keys("a", "b")]
        assert found == (by_key if persistent else by_time)


@pytest.mark.parametrize("persistent", [True, False])
def test_final_results_of_sliding_windows_come_by_key_where_a_range_of_keys_is_read(*, persistent: bool) -> None:
    """Kafka Streams 4.3 keeps an index by key of them, but in memory."""
    builder = StreamsBuilder()
    sliding = builder.stream("in").group_by_key().windowed_by(SlidingWindows.of_time_difference(10, grace=0))
    sliding.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store=Materialized(name="kept", persistent=persistent))
    store = WindowStore(replace(builder.build().stores["kept"], key_serde=Serdes.string(), kind=StoreKind.WINDOW), MemoryRows())
    for key, start in (("b", 3), ("a", 5), ("c", 2), ("a", 1)):
        store.put(key, 1, start, start)
    by_time, by_key = [("a", 1), ("c", 2), ("b", 3), ("a", 5)], [("a", 1), ("a", 5), ("b", 3), ("c", 2)]
    assert [(windowed.key, windowed.start) for windowed, _ in store.all()] == by_time
    for reverse in (False, True):
        found = [(windowed.key, windowed.start) for windowed, _ in store.fetch_keys("a", "c", reverse=reverse)]
        expected = by_key if persistent else by_time
        assert found == (expected[::-1] if reverse else expected)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(
    "windows", [SessionWindows.of_inactivity_gap(2, grace=3), TimeWindows.of_size(10), TimeWindows.of_size(5, grace=5)]
)
def test_final_results_come_from_a_store_in_memory_as_from_one_on_disk(windows: Any, *, persistent: bool) -> None:
    """With the default retention its reads hide these windows when they close, or a millisecond before."""
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    counts = windowed.count(store=Materialized(name="kept", persistent=persistent))
    counts.to_stream(per_record(lambda key, _count: key.key)).to("out", value=Serdes.long())
    run = harness.start(builder.build())
    for at, (key, time) in enumerate((("a", 1), ("a", 3), ("b", 11), ("b", 13), ("c", 19), ("d", 20), ("e", 25))):
        run.pipe(at, "in", key.encode(), b"v", time)
    assert [(key, value[-1]) for _topic, key, value, *_ in run.written if value] == [(b"a", 2), (b"b", 2), (b"c", 1)]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize(
    "windows",
    [
        TimeWindows.of_size(10), TimeWindows.of_size(10, advance=10, grace=20), SlidingWindows.of_time_difference(10, grace=5),
        SessionWindows.of_inactivity_gap(5),
    ],
)  # fmt: skip
def test_final_results_are_emitted_when_time_jumps_beyond_the_retention_unless_there_is_no_cache(
    windows: Any, *, caching: bool, persistent: bool
) -> None:
    """Kafka Streams without a cache loses them all, and so do we then; its cache gives those of time windows."""
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    counts = windowed.count(store=Materialized(name="kept", persistent=persistent, caching=caching))
    counts.to_stream(per_record(lambda key, _count: key.key)).to("out", value=Serdes.long())
    run = harness.start(builder.build())
    found = []
    for at, (key, time) in enumerate((("a", 1), ("b", 3), ("c", 1_000_000), ("d", 2_000_000), ("e", 3_000_000))):
        run.pipe(at, "in", key.encode(), b"v", time)
        found.append([(key, value[-1], time) for _topic, key, value, time, *_ in run.written if value])
        run.written.clear()
    emitted = [[(b"a", 1, 1), (b"b", 1, 3)], [(b"c", 1, 1_000_000)], [(b"d", 1, 2_000_000)]]
    assert found == [[], [], *(emitted if caching else [[], [], []])]


@pytest.mark.parametrize("in_steps", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize(
    ("windows", "given", "goes_on"),
    [
        (SessionWindows.of_inactivity_gap(10), [("a", 0), ("b", 10), ("a", 10)], {"a 0-10": 2}),
        (SessionWindows.of_inactivity_gap(0), [("a", 7), ("a", 7)], {"a 7-7": 2}),
        (SessionWindows.of_inactivity_gap(10, grace=5), [("a", 35), ("a", 50), ("b", 60), ("a", 45)], {"a 35-50": 3}),
        (SlidingWindows.of_time_difference(10, grace=10), [("a", 30), ("b", 50), ("b", 49), ("a", 40)], {"a 30-40": 2}),
    ],
)
def test_a_late_record_goes_on_from_what_is_older_than_the_retention_unless_there_is_no_cache(
    windows: Any, given: list[tuple[str, int]], goes_on: dict[str, int], *, caching: bool, persistent: bool, in_steps: bool
) -> None:
    """Kafka Streams finds it in its cache, and without one it hides it from the aggregation."""
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(windows).count(
        store=Materialized(name="kept", persistent=persistent, caching=caching)
    )
    counts.to_stream(per_record(lambda key, _count: f"{key.key} {key.start}-{key.end}")).to("out")
    run: Any = StepRun(builder.build()) if in_steps else harness.start(builder.build())
    for at, (key, time) in enumerate(given):
        if in_steps:
            run.pipe([("in", key.encode(), b"v", time, ())])
        else:
            run.pipe(at, "in", key.encode(), b"v", time)
    latest = {key.decode(): int.from_bytes(value, "big") for _topic, key, value, *_ in run.written if key and value}
    assert ({name: latest.get(name) for name in goes_on} == goes_on) is caching, latest


def test_final_results_of_sessions_are_those_without_a_cache() -> None:
    """Kafka Streams has none for them: the session that a record would join is hidden, and the record too late by itself."""
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap(5))
    counts = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
    counts.to_stream(per_record(lambda key, _count: f"{key.key} {key.start}-{key.end}")).to("out")
    run = harness.start(builder.build())
    for at, (key, time) in enumerate((("a", 9), ("b", 14), ("a", 8), ("c", 30))):
        run.pipe(at, "in", key.encode(), b"v", time)
    assert [(key, value[-1]) for _topic, key, value, *_ in run.written if value] == [(b"a 9-9", 1), (b"b 14-14", 1)]
    assert run.dropped_at == [2]


@pytest.mark.parametrize("persistent", [True, False])
def test_sessions_of_a_range_of_keys_come_by_segment_and_key_or_in_memory_by_end_and_key(*, persistent: bool) -> None:
    store = SessionStore(_store(StoreKind.SESSION, persistent=persistent), MemoryRows())
    for key, start, end in (("b", 0, 90_000), ("c", 5, 8), ("a", 7, 30), ("b", 6, 8), ("a", 3, 8), ("", 1, 2)):
        store.put(Windowed(key, start, end), f"{key}{start}", end)
    order = ["a3", "a7", "b6", "b0"] if persistent else ["a3", "b6", "a7", "b0"]
    assert [value for _, value in store.fetch_keys("a", "b")] == order
    assert [value for _, value in store.fetch_keys("a", "b", reverse=True)] == order[::-1]
    assert [value for _, value in store.fetch_keys("a", "b", 9, 7)] == [value for value in order if value in ("a7", "b0")]
    assert {value for _, value in store.fetch_keys(None, "a")} == {"1", "a3", "a7"}
    assert list(store.fetch_keys("b", "a")) == []
    assert list(store.fetch("b")) == list(store.find_sessions("b"))
    assert [value for _, value in store.fetch("b", reverse=True)] == ["b0", "b6"]
    every = [value for _, value in store.all()]
    assert every == (["1", "a3", "a7", "b6", "c5", "b0"] if persistent else ["1", "a3", "b6", "c5", "a7", "b0"])
    assert [value for _, value in store.all(reverse=True)] == every[::-1]


class _Lenient:
    """Reads what another program has written, and writes something else."""

    name, sql_type = "lenient", "string"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else str(value).encode()

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else data.decode().strip()


def test_a_range_of_keys_goes_by_the_bytes_that_are_kept() -> None:
    """Not by those that the serde would write for what it has read."""
    windows = WindowStore(replace(_store(), key_serde=_Lenient()), MemoryRows())
    sessions = SessionStore(replace(_store(StoreKind.SESSION), key_serde=_Lenient()), MemoryRows())
    windows.put(" b", "v", 5, 5)
    sessions.put(Windowed(" b", 5, 5), "v", 5)
    for store in (windows, sessions):
        assert list(store.fetch_keys("a", "c")) == []
        assert [windowed.key for windowed, _ in store.fetch_keys(" ", "a")] == ["b"]


def test_what_expired_is_logged_all_the_same() -> None:
    rows = MemoryRows()
    store = WindowStore(_store(), rows)
    store.put("k", "a", 600_000, 600_000)
    rows.logged.clear()
    assert not store.put("k", "b", 0, 3)
    assert rows.logged == [(b"k" + bytes(8) + bytes(4), b"b", 3, ())]


def test_sessions_are_found_by_where_they_end_and_begin() -> None:
    store = SessionStore(_store(StoreKind.SESSION), MemoryRows())
    for start, end in ((0, 50), (100, 200), (300, 90_000)):
        store.put(Windowed("k", start, end), f"{start}-{end}", end)
    store.put(Windowed("k2", 100, 200), "other", 200)
    assert [value for _, value in store.find_sessions("k", 50, 299)] == ["0-50", "100-200"]
    assert [value for _, value in store.find_sessions("k", 51)] == ["100-200", "300-90000"]
    assert [value for _, value in store.find_sessions("k", reverse=True)] == ["300-90000", "100-200", "0-50"]
    assert store.fetch_session("k", 100, 200) == "100-200"
    assert store.fetch_session("k", 100, 201) is None
    store.remove(Windowed("k", 100, 200), 400)
    assert store.fetch_session("k", 100, 200) is None
    assert [windowed.key for windowed, _ in store.all()] == ["k", "k2", "k"]


@pytest.mark.parametrize("persistent", [True, False])
def test_sessions_of_one_end_come_by_their_start_and_in_memory_the_latest_first(*, persistent: bool) -> None:
    """As in Kafka Streams' RocksDBSessionStore and InMemorySessionStore."""
    store = SessionStore(_store(StoreKind.SESSION, persistent=persistent), MemoryRows())
    for start, end in ((2, 9), (5, 9), (0, 4), (7, 9), (6, 12)):
        store.put(Windowed("k", start, end), "a", end)
    of_nine = [(2, 9), (5, 9), (7, 9)] if persistent else [(7, 9), (5, 9), (2, 9)]
    expected = [(0, 4), *of_nine, (6, 12)]
    assert [(session.start, session.end) for session, _ in store.find_sessions("k")] == expected
    assert [(session.start, session.end) for session, _ in store.find_sessions("k", reverse=True)] == expected[::-1]
    assert [(session.start, session.end) for session, _ in store.find_sessions("k", 5, 6)] == [
        bounds for bounds in expected if bounds not in ((0, 4), (7, 9))
    ]


def test_old_sessions_are_hidden_by_their_ends() -> None:
    store = SessionStore(_store(StoreKind.SESSION, retention_ms=1000), MemoryRows())
    store.put(Windowed("k", 0, 100), "a", 100)
    store.put(Windowed("k", 1100, 1100), "b", 1100)
    assert [value for _, value in store.find_sessions("k")] == ["b"]
    assert store.fetch_session("k", 0, 100) is None
    assert [value for _, value in store.all()] == ["b"]


def test_of_sessions_that_are_apart_none_is_looked_at_behind_the_last_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SessionStore(_store(StoreKind.SESSION), MemoryRows())
    for start in range(0, 10_000, 10):
        store.put(Windowed("k", start, start + 1), str(start), start)
    looked_at: list[bytes] = []
    unpack = session_store.unpack_both
    monkeypatch.setattr(session_store, "unpack_both", lambda suffix: (looked_at.append(suffix), unpack(suffix))[1])
    assert store.find_at(b"k", 20, 40, are_apart=True) == [(20, 21, "20"), (30, 31, "30"), (40, 41, "40")]
    assert len(looked_at) == 4


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_what_is_read_as_it_is_asked_for_is_what_is_found_at_once(persistent: bool, reverse: bool) -> None:
    chance = random.Random(persistent)
    settings = {"persistent": persistent, "retention_ms": 3 * MINUTE}
    windows, sessions = _windows(**settings), SessionStore(_store(StoreKind.SESSION, **settings), MemoryRows())
    for step in range(600):
        key, time = chance.choice(("a", "b", "aa")), max(0, 500 * step - chance.randrange(4 * MINUTE))
        windows.put(key, None if chance.random() < 0.2 else str(step), time - time % 100, time)
        begin = max(0, time - chance.randrange(3) * 5_000)
        sessions.put(Windowed(key, begin, time - time % 5_000 + 5_000), None if chance.random() < 0.2 else str(step), time)
        first, last = sorted(chance.randrange(-1, 300_000) for _ in range(2))
        if step % 50 == 0:
            first, last = 0, (1 << 63) - 1
        for read, found in ((windows.read_range, windows.fetch_range), (sessions.read_sessions, sessions.find_sessions)):
            assert list(read(key, first, last, reverse=reverse)) == list(found(key, first, last, reverse=reverse))


@pytest.mark.parametrize("limit", [0, 5, 1000])
def test_rows_kept_at_hand_are_the_rows_there_are(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows, "MANY", 20)
    chance = random.Random(limit)
    rows = MemoryRows()
    segments = Segments(rows, 120_000, persistent=True, time_ordered=False)
    recent = RecentRows(segments, 8, limit)
    now = 0
    for step in range(2000):
        key = chance.choice((b"a", b"b", b"aa"))
        now += chance.randrange(2000)
        time = max(0, now - chance.randrange(200_000))
        suffix = time.to_bytes(8, "big")
        if segments.advance(time):
            row = None if chance.random() < 0.2 else b"%d" % step
            rows.put((time // segments.interval).to_bytes(8, "big") + key + suffix, row)
            recent.put(key, suffix, row)
        key = chance.choice((b"a", b"b", b"aa"))
        there = [(k[-8:], row) for k, row in sorted(rows.rows.items()) if k[8:-8] == key]
        assert list(recent.of(key)) == there
        first, last = sorted(chance.randrange(now + 1) for _ in range(2))
        inside = [(k, row) for k, row in there if first <= unpack_time(k)[0] <= last]
        assert list(recent.between(key, first, last)) == inside
        assert list(recent.since(key, first)) == [(k, row) for k, row in there if first <= unpack_time(k)[0]]


def test_keys_whose_rows_are_too_many_to_be_kept_are_not_read_as_a_whole_again_and_again() -> None:
    read: list[bytes] = []

    class Counted(MemoryRows):
        def scan(self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False) -> Any:
            for key, row in super().scan(low, high, reverse=reverse):
                read.append(key)
                yield key, row

    store = WindowStore(_store(), Counted())
    store._recent._limit = 2000
    for start in range(1500):
        for key in "abc":
            store.put(key, "v", start, start)
    for _ in range(100):
        for key in "abc":
            assert len(list(store.fetch_range(key, 1495, 1500))) == 5
    assert len(read) < 10 * 1500
