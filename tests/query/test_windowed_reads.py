"""Windows and sessions of copies in real files, read while a writer works: what operators wrote is what is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.operators.own_windows import Days, october
from tests.query.stand_ins import PARTITIONS, Reply, ask, executors, host_map, store_info
from tests.query.test_local_reads import HERE as THIS
from tests.query.test_local_reads import THERE as OTHER
from tests.query.test_local_reads import Instance
from tidemill.dsl.serdes import Serdes
from tidemill.errors import InvalidStateStoreError, QueryError
from tidemill.membership.wire import HostInfo
from tidemill.operators.stores import store_of
from tidemill.query import windowed_rows
from tidemill.query.http_app import ReadsApp
from tidemill.query.http_request import to_parameters
from tidemill.query.position import Position
from tidemill.query.routing import Router
from tidemill.query.rows import FoundRows, RowsQuestion
from tidemill.query.store_info import StoreInfo
from tidemill.query.windowed_rows import _CopyRows
from tidemill.query.windowed_view import ReadOnlySessionStore, ReadOnlyWindowStore, session_view, view_of_its_kind, window_view
from tidemill.state.store import Positions
from tidemill.steps.rows.task_rows import TaskRows, opened
from tidemill.steps.step_state import Written
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.partitioning import partition_of_key
from tidemill.topology.values import ValueAndTimestamp
from tidemill.topology.windows import MAX_TIME, Windowed

SERDES: dict[str, Any] = {"key_serde": Serdes.string(), "value_serde": Serdes.long()}
WINDOWS = Store(name="windows", kind=StoreKind.TIMESTAMPED_WINDOW, window_size_ms=100, retention_ms=200_000, **SERDES)
PLAIN = Store(name="plain", kind=StoreKind.WINDOW, window_size_ms=100, retention_ms=200_000, **SERDES)
SESSIONS = Store(name="sessions", kind=StoreKind.SESSION, retention_ms=200_000, **SERDES)
DAYS = Store(
    name="days", kind=StoreKind.TIMESTAMPED_WINDOW, window_size_ms=Days().size, own_windows=Days(), retention_ms=1 << 40, **SERDES
)
UNLIMITED = Store(name="unlimited", kind=StoreKind.TIMESTAMPED_WINDOW, window_size_ms=MAX_TIME, retention_ms=MAX_TIME, **SERDES)
FACTS = {
    store.name: store_info(store.name, timestamped=False, store=store) for store in (WINDOWS, PLAIN, SESSIONS, DAYS, UNLIMITED)
} | {"counts": store_info(store=Store(name="counts", kind=StoreKind.TIMESTAMPED_KEY_VALUE, **SERDES))}


def _word(partition: int) -> str:
    return next(w for n in range(100) if partition_of_key((w := f"word{n}").encode(), PARTITIONS) == partition)


HERE, ALSO_HERE, ELSEWHERE = map(_word, range(3))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """Active of the partitions 0 and 1 of three."""
    made = Instance(tmp_path, stores=tuple(FACTS.values()))
    made.take(0)
    made.take(1)
    yield made
    made.copies.close()
    for state in made.writers.values():
        state.close(clean=False)


def _write(instance: Instance, store: Store, partition: int, write: Callable[[Any], object]) -> None:
    """What an operator does to its store, applied as a batch."""
    state = instance.writers[partition]
    rows, written = TaskRows(store.name, logged=False), Written()
    with opened(state) as view:
        rows.begin(view, written)
        kept = store_of(store, rows, KeyValueSerdes(key=Serdes.string(), value=Serdes.long()))
        write(kept)
        kept.flush()
    before = state.positions()
    state.apply(expected=before, new=Positions(changelog={}, epoch=before.epoch), writes={store.name: list(written.rows.items())})


def _windows(instance: Instance, name: str = "windows", *, stale: bool = False) -> ReadOnlyWindowStore:
    return window_view(instance.queries.view(name, stale=stale, partition=None))


def _sessions(instance: Instance) -> ReadOnlySessionStore:
    return session_view(instance.queries.view("sessions", stale=False, partition=None))


def _put_windows(instance: Instance, store: Store, key: str, starts: Sequence[int], partition: int) -> None:
    def write(kept: Any) -> None:
        for start in starts:
            kept.put(key, start // 100, start, start + 7)

    _write(instance, store, partition, write)


def test_a_key_s_windows_are_fetched_one_by_one_and_in_ranges(instance: Instance) -> None:
    _put_windows(instance, WINDOWS, HERE, (1000, 1100, 90_000), 0)
    view = _windows(instance)
    assert view.fetch(HERE, 1100) == 11
    assert view.fetch(HERE, 1101) is None
    assert view.fetch_range(HERE, 1000, 1100) == [(1000, 10), (1100, 11)]
    assert view.fetch_range(HERE, 1001, 10**12) == [(1100, 11), (90_000, 900)]
    assert view.timestamped.fetch(HERE, 90_000) == ValueAndTimestamp(900, 90_007)
    assert view.fetch(ALSO_HERE, 1000) is None


def test_all_windows_come_with_their_keys(instance: Instance) -> None:
    _put_windows(instance, WINDOWS, HERE, (1000,), 0)
    _put_windows(instance, WINDOWS, ALSO_HERE, (1100, 90_000), 1)
    view = _windows(instance)
    every = [(Windowed(HERE, 1000, 1100), 10), (Windowed(ALSO_HERE, 1100, 1200), 11), (Windowed(ALSO_HERE, 90_000, 90_100), 900)]
    assert list(view.all()) == every
    assert list(view.fetch_all(1100, 1100)) == every[1:2]
    times = [(window.start, found.timestamp_ms) for window, found in view.timestamped.all()]
    assert times == [(1000, 1007), (1100, 1107), (90_000, 90_007)]


def test_what_has_expired_is_not_shown(instance: Instance) -> None:
    _put_windows(instance, WINDOWS, HERE, (1000, 150_000, 201_500), 0)
    view = _windows(instance)
    assert view.fetch(HERE, 1000) is None
    assert [window.start for window, _ in view.all()] == [150_000, 201_500]


def test_a_view_sees_what_later_batches_write(instance: Instance) -> None:
    view = _windows(instance, "plain")
    assert view.fetch_range(HERE, 0, 10_000) == []
    for start in (1000, 1200):
        _put_windows(instance, PLAIN, HERE, (start,), 0)
        assert view.fetch(HERE, start) == start // 100
    with pytest.raises(QueryError, match="plain keeps no timestamps"):
        _ = view.timestamped


@pytest.mark.parametrize("time", [None, "1000", 1000.5, 1 << 63, True, datetime(2026, 1, 1)])
def test_what_is_no_time_is_refused(instance: Instance, time: Any) -> None:
    says = f"a time is {re.escape(repr(time))}, expected ms as a whole number below 2\\^63"
    windows, sessions = _windows(instance), _sessions(instance)
    for read in (
        lambda: windows.fetch(HERE, time),
        lambda: windows.fetch_range(HERE, 0, time),
        lambda: list(windows.fetch_all(time, 10)),
        lambda: sessions.fetch_session(HERE, time, 10),
        lambda: sessions.find_sessions(HERE, time),
    ):
        with pytest.raises(QueryError, match=says):
            read()


@dataclass
class Meanwhile:
    """A serde of keys during whose ``at``-th call something else happens."""

    happens: Callable[[], None]
    at: int
    calls: int = 0
    name: str = "string"
    sql_type: str = "string"

    def serialize(self, value: object) -> bytes | None:
        self.calls += 1
        if self.calls == self.at:
            self.happens()
        return Serdes.string().serialize(value)

    def deserialize(self, data: bytes | None) -> object:
        return Serdes.string().deserialize(data)


@pytest.mark.parametrize("at", range(1, 4))
def test_a_key_s_windows_are_those_of_one_commit(instance: Instance, at: int) -> None:
    """A batch that is applied between two segments: all of it is seen, or nothing."""
    _put_windows(instance, PLAIN, HERE, (1000,), 0)
    serde = Meanwhile(lambda: _put_windows(instance, PLAIN, HERE, (1100, 150_000), 0), at)
    view = _windows(instance, "plain")
    view = replace(view, copies=replace(view.copies, store=replace(view.copies.store, key_serde=serde)))
    found = view.fetch_range(HERE, 0, 10**6)
    assert found in ([(1000, 10)], [(1000, 10), (1100, 11), (150_000, 1500)])


def test_a_key_s_sessions_are_found_by_their_bounds(instance: Instance) -> None:
    def write(kept: Any) -> None:
        for start, end, value in ((1000, 1500, 3), (70_000, 70_000, 1), (90_000, 91_000, 2)):
            kept.put(Windowed(HERE, start, end), value, end)
        kept.put(Windowed(HERE, 70_000, 70_000), None, 91_000)

    _write(instance, SESSIONS, 0, write)
    view = _sessions(instance)
    first, last = (Windowed(HERE, 1000, 1500), 3), (Windowed(HERE, 90_000, 91_000), 2)
    assert view.fetch(HERE) == [first, last]
    assert view.find_sessions(HERE, earliest_end=1501) == [last]
    assert view.find_sessions(HERE, latest_start=89_999) == [first]
    assert view.fetch_session(HERE, 1000, 1500) == 3
    assert view.fetch_session(HERE, 70_000, 70_000) is None
    assert view.fetch(ALSO_HERE) == []
    assert list(view.all()) == [first, last]


def test_a_key_that_is_elsewhere_is_refused_with_who_has_it(instance: Instance) -> None:
    for read in (lambda: _windows(instance).fetch(ELSEWHERE, 1000), lambda: _sessions(instance).fetch(ELSEWHERE)):
        with pytest.raises(InvalidStateStoreError, match="needs partition 2") as refused:
            read()
        assert refused.value.hosts == ("there:2",)


@pytest.mark.parametrize(("name", "view"), [("counts", window_view), ("sessions", window_view), ("windows", session_view)])
def test_a_store_of_another_kind_is_refused(instance: Instance, name: str, view: Callable[[Any], Any]) -> None:
    with pytest.raises(QueryError, match=f"{name} is a .* store, not a"):
        view(instance.queries.view(name, stale=False, partition=None))


@dataclass
class Over:
    """Asks another instance's application, as over the network."""

    app: ReadsApp | None = None

    def read(
        self, host: HostInfo, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None, timeout_s: float
    ) -> FoundRows:
        assert self.app is not None
        reply = ask(self.app, f"/rows/{store.name}?{urlencode(to_parameters(question, max_lag))}")
        assert reply.status == 200, reply.body
        return FoundRows.from_bytes(reply.body)


def _app(instance: Instance, remote: Over | None = None) -> ReadsApp:
    instance.hosts = host_map({THIS: (0, 1), OTHER: (2,)})
    return ReadsApp(
        router=Router(directory=instance.queries, remote=remote or Over(), timeout_s=60.0, **executors()),
        application_id="app",
    )


def _windows_of(reply: Reply) -> list[dict[str, Any]]:
    assert reply.status == 200, reply.body
    found: list[dict[str, Any]] = reply.json["windows"]
    return found


def test_windows_and_sessions_of_a_key_are_reported_over_http(instance: Instance) -> None:
    _put_windows(instance, WINDOWS, HERE, (1000, 1100, 90_000), 0)
    _write(instance, SESSIONS, 0, lambda kept: kept.put(Windowed(HERE, 1000, 1500), 3, 1500))
    app = _app(instance)
    told = ask(app, f"/stores/windows/{HERE}?from=1100")
    assert _windows_of(told) == [
        {"start": 1100, "end": 1200, "value": 11, "timestamp": 1107},
        {"start": 90_000, "end": 90_100, "value": 900, "timestamp": 90_007},
    ]
    assert (told.json["key"], told.json["partition"], told.json["more"]) == (HERE, 0, False)
    first = ask(app, f"/stores/windows/{HERE}?to=1100&limit=1")
    assert [window["start"] for window in _windows_of(first)] == [1000]
    assert first.json["more"]
    assert _windows_of(ask(app, f"/stores/sessions/{HERE}")) == [{"start": 1000, "end": 1500, "value": 3}]
    assert ask(app, f"/stores/sessions/{HERE}?from=1501").status == 404
    assert ask(app, f"/stores/windows/{ALSO_HERE}").status == 404
    assert "no window or session of this key" in ask(app, f"/stores/windows/{HERE}?from=5&to=1").json["error"]


def test_no_more_of_a_key_is_read_than_is_asked_for(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    class Counted(_CopyRows):
        def __init__(self, get: Callable[[bytes], bytes | None], scan: Callable[..., Iterator[tuple[bytes, bytes]]]) -> None:
            def noted(*bounds: bytes, **order: bool) -> Iterator[tuple[bytes, bytes]]:
                for key, row in scan(*bounds, **order):
                    read.append(key)
                    yield key, row

            super().__init__(get, noted)

    def read_by(ask_for: Callable[[], object]) -> int:
        read.clear()
        assert ask_for()
        return len(read)

    starts = range(0, 100_000, 100)
    _put_windows(instance, WINDOWS, HERE, starts, 0)
    _write(instance, SESSIONS, 0, lambda kept: [kept.put(Windowed(HERE, start, start + 9), 1, start + 9) for start in starts])
    monkeypatch.setattr(windowed_rows, "_CopyRows", Counted)
    app, view, sessions = _app(instance), _windows(instance), _sessions(instance)
    for store in ("windows", "sessions"):
        assert read_by(lambda store=store: _windows_of(ask(app, f"/stores/{store}/{HERE}?limit=3"))) <= 5
        page = f"/stores/{store}/{HERE}?from=50000&limit=3"
        assert read_by(lambda page=page: _windows_of(ask(app, page))) <= 5
    assert read_by(lambda: view.fetch(HERE, 5_000)) == 0
    assert read_by(lambda: view.fetch_range(HERE, 5_000, 5_400)) == 5
    assert read_by(lambda: sessions.fetch_session(HERE, 5_000, 5_009)) == 0


def test_windows_of_ones_own_end_where_they_do(instance: Instance) -> None:
    _put_windows(instance, DAYS, HERE, (october(25, 0), october(26, 0)), 0)
    days = [(october(25, 0), october(26, 0)), (october(26, 0), october(27, 0))]
    assert [(window.start, window.end) for window, _ in _windows(instance, "days").all()] == days
    found = _windows_of(ask(_app(instance), f"/stores/days/{HERE}?from=0"))
    assert [(window["start"], window["end"]) for window in found] == days


def test_a_window_without_an_end_ends_with_all_time_however_it_is_read(instance: Instance) -> None:
    _put_windows(instance, UNLIMITED, HERE, (1_000,), 0)
    assert [(window.start, window.end) for window, _ in _windows(instance, "unlimited").all()] == [(1_000, MAX_TIME)]
    [found] = _windows_of(ask(_app(instance), f"/stores/unlimited/{HERE}"))
    assert (found["start"], found["end"]) == (1_000, MAX_TIME)


def test_windows_that_are_elsewhere_are_asked_for_there(instance: Instance, tmp_path: Path) -> None:
    other = Instance(tmp_path / "other", stores=tuple(FACTS.values()))
    other.take(2)
    _put_windows(other, WINDOWS, ELSEWHERE, (1000, 1100), 2)
    app = _app(instance, Over(_app(other)))
    told = ask(app, f"/stores/windows/{ELSEWHERE}?from=1000&to=1000")
    assert [(window["start"], window["value"]) for window in _windows_of(told)] == [(1000, 10)]
    assert told.json["partition"] == 2
    other.copies.close()
    other.writers[2].close(clean=False)


@pytest.mark.parametrize("target", ["/stores/windows", "/stores/windows/word?from=x", "/rows/windows?partitions=0&last=5"])
def test_a_question_that_makes_no_sense_is_refused(instance: Instance, target: str) -> None:
    assert ask(_app(instance), target).status == 400


def test_a_key_value_store_knows_no_times(instance: Instance) -> None:
    reply = ask(_app(instance), f"/stores/counts/{HERE}?from=5")
    assert reply.status == 400
    assert "no parameter 'from'" in reply.json["error"]


@pytest.mark.parametrize("store", [WINDOWS, SESSIONS])
def test_windows_and_sessions_are_read_from_a_position_on(instance: Instance, store: Store) -> None:
    def fill(kept: Any) -> None:
        if store is SESSIONS:
            kept.put(Windowed(HERE, 5, 9), 1, 9)
        else:
            kept.put(HERE, 1, 100, 7)

    _write(instance, store, 0, fill)

    def view(position: Position | None) -> ReadOnlyWindowStore | ReadOnlySessionStore:
        copies = instance.queries.view(store.name, stale=False, partition=0, position=position)
        return session_view(copies) if store is SESSIONS else window_view(copies)

    seen = view(None).position
    assert seen.offsets.keys() == {0}
    assert len(list(view(seen).all())) == 1
    later = Position({0: seen.offsets[0] + 1})
    with pytest.raises(InvalidStateStoreError, match=f"expected {later.offsets[0]} or later"):
        list(view(later).all())


def test_views_show_their_first_rows_in_a_notebook(instance: Instance) -> None:
    _put_windows(instance, WINDOWS, HERE, (1000,), 0)
    names = ("windows", "sessions", "counts")
    views = [view_of_its_kind(instance.queries.view(name, stale=False, partition=0)) for name in names]
    assert [repr(view) for view in views] == [
        "ReadOnlyWindowStore('windows')", "ReadOnlySessionStore('sessions')", "ReadOnlyStore('counts')",
    ]  # fmt: skip
    shown = views[0]._repr_html_()
    assert "<th>key</th><th>start</th><th>end</th><th>value</th>" in shown
    assert f"<td>{HERE}</td><td>1000</td><td>1100</td><td>10</td>" in shown
    assert "0 rows" in views[1]._repr_html_()


def test_windows_and_sessions_can_be_read_from_the_newest_on(instance: Instance) -> None:
    _put_windows(instance, WINDOWS, HERE, (1000, 1100, 90_000), 0)
    _put_windows(instance, WINDOWS, ALSO_HERE, (1200,), 1)
    view = _windows(instance)
    assert view.fetch_range(HERE, 0, 2000, reverse=True) == [(1100, 11), (1000, 10)]
    assert list(view.all(reverse=True)) == list(view.all())[::-1]
    assert list(view.fetch_all(1000, 1200, reverse=True)) == list(view.fetch_all(1000, 1200))[::-1]
    for start in (1000, 5000):
        _write(instance, SESSIONS, 0, lambda kept, start=start: kept.put(Windowed(HERE, start, start + 10), 7, start))
    sessions = _sessions(instance)
    assert [window.start for window, _ in sessions.find_sessions(HERE, reverse=True)] == [5000, 1000]
    assert [window.start for window, _ in sessions.fetch(HERE, reverse=True)] == [5000, 1000]
    assert list(sessions.all(reverse=True)) == list(sessions.all())[::-1]


def test_windows_and_sessions_of_a_range_of_keys_are_read(instance: Instance) -> None:
    keys = sorted((HERE, ALSO_HERE))
    for partition, key in enumerate((HERE, ALSO_HERE)):
        _put_windows(instance, WINDOWS, key, (1000, 1100, 90_000), partition)
        _write(instance, SESSIONS, partition, lambda kept, key=key: kept.put(Windowed(key, 1000, 1010), 7, 1010))
    view, sessions = _windows(instance), _sessions(instance)
    for low, high, found in ((None, None, keys), (keys[0], keys[0], keys[:1]), (keys[1], None, keys[1:]), (keys[1], keys[0], [])):
        windows = {(window.key, window.start) for window, _ in view.fetch_keys(low, high, 1000, 1100)}
        assert windows == {(key, start) for key in found for start in (1000, 1100)}
        assert {w.key for w, _ in sessions.fetch_keys(low, high)} == set(found)
    every = list(view.fetch_keys(None, None))
    assert every == list(view.all())
    assert list(view.fetch_keys(None, None, reverse=True)) == every[::-1]
    assert next(view.timestamped.fetch_keys(HERE, HERE))[1] == ValueAndTimestamp(10, 1007)
    assert list(sessions.fetch_keys(None, None, 1011)) == list(sessions.fetch_keys(None, None, 0, 999)) == []
    for wrong in (lambda: view.fetch_keys(5, None), lambda: sessions.fetch_keys(None, 5), lambda: view.fetch_keys("", "", 0.5)):
        with pytest.raises(QueryError):
            wrong()
