"""Suppress beyond the vectors: limits in bytes, shutting down, and what the suppressed table shows."""

from __future__ import annotations

import pytest

from tests.operators.harness import Run, start
from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.suppressed import Suppressed
from tidemill.errors import StateError, StopError, TopologyError
from tidemill.operators.stores import store_of
from tidemill.topology.key_value_serdes import KeyValueSerdes

STRING = Serdes.string()


def _run(suppressed: Suppressed) -> Run:
    b = StreamsBuilder()
    b.table("in", store="t").suppress(suppressed).to_stream().to("out")
    return start(b.build())


def _pipe(run: Run, key: str, value: str | None, timestamp: int) -> list[tuple[str, str | None]]:
    before = len(run.written)
    run.pipe(0, "in", key.encode(), None if value is None else value.encode(), timestamp)
    return [((k or b"").decode(), None if v is None else v.decode()) for _, k, v, *_ in run.written[before:]]


def _size(key: str, value: str) -> int:
    """Kafka Streams' estimate: buffer time 8, key, value, timestamp 8, offset 8, topic, partition 4."""
    return 8 + len(key) + len(value) + 8 + 8 + len("in") + 4


def test_a_buffer_over_its_bytes_sends_its_oldest() -> None:
    run = _run(Suppressed.until_time_limit(1000, max_bytes=_size("a", "123") + _size("b", "123")))
    assert _pipe(run, "a", "123", 1) == []
    assert _pipe(run, "b", "123", 2) == []
    assert _pipe(run, "b", "12", 3) == [("a", "123")], "the old value counts once, and no more fits"


def test_a_limit_of_no_records_holds_nothing_back() -> None:
    run = _run(Suppressed.until_time_limit(1000, max_records=0))
    assert _pipe(run, "a", "1", 1) == [("a", "1")]
    assert _pipe(run, "a", None, 1) == [("a", None)]


def test_a_full_buffer_that_may_not_send_early_stops_the_application_and_says_how_full_it_is() -> None:
    run = _run(Suppressed.until_time_limit(1000, max_records=1, shut_down_when_full=True))
    _pipe(run, "a", "1", 1)
    _pipe(run, "a", "2", 2)
    with pytest.raises(StopError, match=r"holds 2 records \(at most 1\).*leave out shut_down_when_full"):
        _pipe(run, "b", "1", 3)


def test_the_suppressed_table_shows_what_was_sent() -> None:
    run = _run(Suppressed.until_time_limit(10))
    row = run.graph.table(next(name for name in run.topology.nodes if "SUPPRESS" in name))
    _pipe(run, "a", "1", 1)
    assert row("a") is None
    _pipe(run, "b", "1", 11)
    assert row("a") == ("1", 1)
    _pipe(run, "a", "2", 12)
    assert row("a") == ("1", -1)
    assert row("nobody") is None


def test_a_changelog_record_of_an_old_version_is_refused_with_what_to_do() -> None:
    run = _run(Suppressed.until_time_limit(10))
    store = next(store for name, store in run.topology.stores.items() if "SUPPRESS" in name)
    kept = store_of(store, run.rows[store.name], KeyValueSerdes(key=STRING, value=STRING))
    with pytest.raises(StateError, match="version 02 was found, expected 3"):
        kept.restore(b"k", b"data", 0, (("v", b"\x02"),))


# --- by the wall clock ----------------------------------------------------------------------------------------------------


def _after(run: Run, by_ms: int) -> list[tuple[str, str | None, int]]:
    """(key, value, timestamp) of what the wall clock alone brings."""
    before = len(run.written)
    run.advance_wall_clock(0, by_ms)
    return [((k or b"").decode(), None if v is None else v.decode(), at) for _, k, v, at, *_ in run.written[before:]]


def test_by_the_wall_clock_a_change_leaves_although_no_record_comes() -> None:
    run = _run(Suppressed.until_wall_clock_limit(1000))
    assert _pipe(run, "a", "1", 77) == []
    assert _after(run, 999) == []
    assert _pipe(run, "a", "2", 5_000_000) == [], "however far stream time goes"
    assert _pipe(run, "b", "1", 6) == []
    assert _after(run, 1) == [("a", "2", 5_000_000)], "a limit after the key's first change, with the last one's value and time"
    assert _after(run, 998) == []
    assert _after(run, 5_000) == [("b", "1", 6)]
    assert _pipe(run, "a", None, 7) == []
    assert _after(run, 1000) == [("a", None, 7)]


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_clock_that_is_set_back_holds_nothing_back_for_longer_than_the_limit(is_restored: bool) -> None:
    run = _run(Suppressed.until_wall_clock_limit(1000))
    assert _after(run, 3_600_000) == []
    assert _pipe(run, "a", "1", 77) == []
    if is_restored:  # on a machine whose clock is behind
        restored = _run(Suppressed.until_wall_clock_limit(1000))
        _restore(run, restored)
        run = restored
        assert _after(run, 5) == []
    else:
        assert _after(run, -3_599_995) == []
    assert _pipe(run, "a", "2", 78) == []
    assert _after(run, 999) == []
    assert _after(run, 1) == [("a", "2", 78)]


def _restore(run: Run, other: Run) -> None:
    [name] = [name for name in run.rows if "SUPPRESS" in name]
    for store, key, value, timestamp, headers, _at in run.logged:
        if store == name:
            other.graph.store(name).restore(key, value, timestamp, headers)
    other.graph.store(name).load()


def test_by_the_wall_clock_limits_hold_as_by_stream_time() -> None:
    run = _run(Suppressed.until_wall_clock_limit(1000, max_records=1))
    assert _pipe(run, "a", "1", 1) == []
    assert _pipe(run, "b", "1", 2) == [("a", "1")]
    assert _pipe(_run(Suppressed.until_wall_clock_limit(0)), "a", "1", 1) == [("a", "1")]


def test_what_waits_for_the_wall_clock_waits_on_where_it_is_restored() -> None:
    """Its changelog has the form of the other buffers, with the time at which the key came in."""
    run = _run(Suppressed.until_wall_clock_limit(1000))
    _after(run, 500)
    _pipe(run, "a", "1", 1)
    other = _run(Suppressed.until_wall_clock_limit(1000))
    _restore(run, other)
    assert _after(other, 1499) == []
    assert _after(other, 1) == [("a", "1", 1)]


@pytest.mark.parametrize("limits", [{"max_records": -1}, {"max_bytes": 1.5}, {"max_records": True}])
def test_a_limit_is_a_whole_number_however_a_suppressed_is_made(limits: dict[str, int]) -> None:
    for make in (lambda: Suppressed(wait_ms=1, **limits), lambda: Suppressed.until_wall_clock_limit(1, **limits)):
        with pytest.raises(TopologyError, match="must be a whole number from 0 on"):
            make()
