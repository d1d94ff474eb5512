"""Changelogs of windows, sessions and suppress: their bytes are Kafka Streams', and what they restore goes on as if unbroken."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.operators import programs_formats_windows, programs_suppress, programs_windows
from tests.operators.harness import (
    TASK,
    Case,
    MemoryRows,
    Program,
    Run,
    cases,
    formats,
    outputs_of,
    programs_in,
    run_case,
    start,
    topology_of,
)
from tests.operators.step_harness import StepRun
from tests.operators.vector_values import writer
from tidemill import (
    EmitStrategy,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Windowed,
    per_record,
)
from tidemill.operators.segments import emitted_in
from tidemill.operators.stores import store_of
from tidemill.operators.task_graph import TaskGraph
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import StoreKind

FORMATS = {
    name: getattr(programs_formats_windows, name) for name in formats() if hasattr(programs_formats_windows, name)
}
PROGRAMS = {**programs_in(programs_windows), **programs_in(programs_suppress)}
THROTTLED = {"emit_final_default_interval"}
"""The time of the next round lives with the process, as in Kafka Streams."""
OWN_ROWS = (StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION, StoreKind.SUPPRESS_BUFFER)


def _record(key: bytes | None, value: bytes | None, timestamp: int | None, headers: Any, at: int) -> dict[str, Any]:
    return {
        "key_hex": None if key is None else key.hex(), "value_hex": None if value is None else value.hex(),
        "timestamp": timestamp, "headers": [[name, data.hex()] for name, data in headers], "at": at,
    }


def _in_one_commit(record: dict[str, Any]) -> tuple[int, str]:
    """A buffer's keys are logged in no order within a commit."""
    return record["at"], record["key_hex"]


@pytest.mark.parametrize("name", FORMATS)
def test_changelogs_and_results_have_kafka_streams_bytes(name: str) -> None:
    case = formats()[name]
    run = run_case(FORMATS[name], case)
    for topic, expected in case["topics"].items():
        if topic == "out":
            found = [_record(*written[1:]) for written in run.written if written[0] == topic]
            assert found == expected
            continue
        store = topic.removeprefix("app-").removesuffix("-changelog")
        found = [_record(*logged[1:]) for logged in run.logged if logged[0] == store]
        assert sorted(found, key=_in_one_commit) == sorted(expected, key=_in_one_commit)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_changelog_restores_what_the_store_shows(name: str) -> None:
    for case in cases()[name][:2]:
        run = run_case(PROGRAMS[name], case)
        stores = {name: store for name, store in run.topology.stores.items() if store.kind in OWN_ROWS}
        assert stores
        for store_name, store in stores.items():
            rows = MemoryRows()
            restored = store_of(store, rows, KeyValueSerdes(key=Serdes.string(), value=Serdes.string()))
            for _store, key, value, timestamp, headers, _at in (entry for entry in run.logged if entry[0] == store_name):
                restored.restore(key, value, -1 if timestamp is None else timestamp, headers)
            assert list(restored.all()) == list(run.graph.store(store_name).all())
            again = store_of(store, rows, KeyValueSerdes(key=Serdes.string(), value=Serdes.string()))
            assert list(again.all()) == list(restored.all())


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in THROTTLED])
def test_operators_recreated_between_batches_go_on_as_if_unbroken(name: str) -> None:
    for case in cases()[name][:2]:
        unbroken = run_case(PROGRAMS[name], case)
        broken = _run_in_batches(PROGRAMS[name], case, random.Random(case["case"]))
        assert outputs_of(broken, case) == outputs_of(unbroken, case)
        assert broken.dropped_at == unbroken.dropped_at


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in THROTTLED and "suppress" not in name])
def test_a_store_restored_from_its_changelog_goes_on_as_if_unbroken(name: str) -> None:
    for case in cases()[name][:3]:
        unbroken = run_case(PROGRAMS[name], case)
        half = len(case["inputs"]) // 2
        first = run_case(PROGRAMS[name], {**case, "inputs": case["inputs"][:half]})
        second = _restored(first)
        _pipe(second, case, case["inputs"][half:])
        written = [*first.written, *second.written]
        assert written == unbroken.written
        assert first.dropped_at + second.dropped_at == unbroken.dropped_at


def _restored(run: Run) -> Run:
    """The same topology over stores that were made from nothing but their changelogs, and what the commits say."""
    other = start(run.topology)
    other.graph.stream_time = run.graph.stream_time
    closing = (name for name, store in run.topology.stores.items() if store.time_ordered and name in run.rows)
    run.graph.flush()
    other.graph.emitted = {name: emitted_in(run.rows[name].rows) for name in closing}
    for name, key, value, timestamp, headers, _at in run.logged:
        other.graph.store(name).restore(key, value, -1 if timestamp is None else timestamp, headers)
    return _with_new_graph(other)


def _run_in_batches(program: Program, case: Case, chance: random.Random) -> Run:
    """Throws the graph away at random and makes it again over the same rows."""
    run = start(topology_of(program, case["config"]))
    for given in case["inputs"]:
        if chance.random() < 0.2:
            _with_new_graph(run)
        _pipe(run, case, [given])
    return run


def _with_new_graph(run: Run) -> Run:
    run.graph = TaskGraph(
        run.topology, TASK, rows=lambda store: run.rows.setdefault(store, MemoryRows()),
        default_serdes=KeyValueSerdes(key=Serdes.string(), value=Serdes.string()),
        stream_time=run.graph.stream_time, emit_interval_ms=0, emitted=run.graph.emitted,
    )
    return run


def _pipe(run: Run, case: Case, inputs: list[Any]) -> None:
    for given in inputs:
        kind = case["serdes"]["inputs"][given["topic"]]
        run.pipe(
            given["seq"], given["topic"], writer(kind["key"])(given["key"]), writer(kind["value"])(given["value"]),
            given["timestamp"],
        )


def test_a_session_says_how_far_time_has_come_when_compaction_has_left_its_last_record_alone() -> None:
    builder, string = StreamsBuilder(), Serdes.string()
    windows = SessionWindows.of_inactivity_gap(10, grace=5)
    builder.stream("in", key=string, value=string).group_by_key().windowed_by(windows).count(store="s").to_stream().to("out")
    unbroken, other = StepRun(builder.build()), StepRun(builder.build())
    for run in (unbroken, other):
        run.pipe([("in", b"a", b"v", time, ()) for time in (90, 100, 91)])
    other.logged = [record for record in other.logged if record[1] == other.logged[-1][1]][-1:]
    assert other.logged[0][3] == 91, "its own time, as in Kafka Streams"
    other.restore_all(iter(lambda: 1, 0))
    other.replace_workers()
    for run in (unbroken, other):
        run.pipe([("in", b"b", b"late", 84, ())])
    assert (unbroken.dropped, other.dropped) == (1, 1)


_TO_CLOSE: Any = {
    TimeWindows: lambda windows: windows.grace,
    SlidingWindows: lambda windows: windows.grace,
    SessionWindows: lambda windows: windows.gap + windows.grace,
}
"""How far the close time lies behind stream time."""


@pytest.mark.parametrize("windows", [
    TimeWindows.of_size(10), TimeWindows.of_size(10, advance=4, grace=30), SlidingWindows.of_time_difference(5, grace=3),
    SessionWindows.of_inactivity_gap(4, grace=1),
], ids=["tumbling", "hopping", "sliding", "sessions"])  # fmt: skip
def test_a_new_owner_does_not_emit_again_what_was_emitted_on_window_close(windows: Any) -> None:
    """Commits say up to where windows were emitted, in Kafka Streams' metadata: a restored store still has them."""
    builder, string = StreamsBuilder(), Serdes.string()
    kept = Materialized(name="closed", retention=600_000)
    windowed = builder.stream("in", key=string, value=string).group_by_key().windowed_by(windows)
    closed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store=kept).to_stream()
    named = closed.select_key(per_record(lambda key, _: f"{key.key}@{key.start}", string))
    named.to("out", key=string, value=Serdes.long())
    topology = builder.build()
    unbroken, other = StepRun(topology, 10_000, 1_000), StepRun(topology, 10_000, 1_000)
    for at, time in enumerate(range(0, 140, 7)):
        for run in (unbroken, other):
            run.wall_clock += 1_001
            run.pipe([("in", b"ab"[at % 2 :][:1], b"v", time, ())])
        if at in (3, 10, 11):
            other.restore_all(iter(lambda: 7, 0))
            other.replace_workers()
    assert len(unbroken.written) > 5
    assert other.written == unbroken.written
    assert [time.processors for time in other.times.values()] == [(("closed", 133 - _TO_CLOSE[type(windows)](windows)),)]


def test_what_a_java_instance_has_closed_but_not_emitted_yet_is_emitted_by_the_next_owner() -> None:
    """It looks for closed windows once a second; its commit says up to where it did."""
    builder, string = StreamsBuilder(), Serdes.string()
    windowed = builder.stream("in", key=string, value=string).group_by_key().windowed_by(TimeWindows.of_size(10))
    kept = Materialized(name="closed", retention=600_000)
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store=kept).to_stream(per_record(_start, string)).to("out")
    java = StepRun(builder.build(), 10_000, emit_interval_ms=1_000)
    java.pipe([("in", b"k", b"v", 5, ())])
    java.wall_clock += 1_000
    java.pipe([("in", b"k", b"v", time, ()) for time in (26, 33, 47)])
    assert [record[1] for record in java.written] == [b"0"]
    own = StepRun(builder.build(), 20_000)
    own.logged, own.workers[-1].output.committed = java.logged, java.workers[-1].output.committed
    own.restore_all(iter(lambda: 100, 0))
    own.pipe([("in", b"k", b"v", 48, ())])
    assert [record[1] for record in own.written] == [b"20", b"30"]


def _start(window: Windowed, _count: int) -> str:
    return str(window.start)


@pytest.mark.parametrize(("grace", "caching", "expected", "dropped"), [
    (0, False, [(b"k", 5, 1), (b"k", 5, 1), (b"k", 6, 1), (b"l", 6, 1)], 1),
    (0, True, [(b"k", 5, 1), (b"k", 5, 2), (b"k", 6, 1), (b"l", 6, 1)], 1),
    (10, False, [(b"k", 5, 1), (b"k", 5, 2), (b"k", 6, 1), (b"k", 5, 3), (b"l", 6, 1)], 0),
    (10, True, [(b"k", 5, 1), (b"k", 5, 2), (b"k", 6, 1), (b"k", 5, 3), (b"l", 6, 1)], 0),
])  # fmt: skip
def test_sessions_without_a_gap_are_those_of_kafka_streams(
    grace: int, caching: bool, expected: list[Any], dropped: int
) -> None:
    """4.3 accepts a gap of 0; with no grace either, its store without a cache shows no session any more that a record could
    join."""
    builder, string = StreamsBuilder(), Serdes.string()
    windows = SessionWindows.of_inactivity_gap(0, grace=grace)
    builder.stream("in", key=string, value=string).group_by_key().windowed_by(windows).count(
        store=Materialized(name="s", caching=caching)
    ).to_stream().to("out")
    run = start(builder.build())
    for at, (key, time) in enumerate([(b"k", 5), (b"k", 5), (b"k", 6), (b"k", 5), (b"l", 6)]):
        run.pipe(at, "in", key, b"a", time)
    written = [(key, value) for topic, key, value, *_ in run.written if topic == "out"]
    assert [(key[:-16], int.from_bytes(key[-8:], "big"), int.from_bytes(value, "big")) for key, value in written] == expected
    assert len(run.dropped_at) == dropped


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("in_steps", [True, False])
def test_rows_are_deleted_with_headers_in_the_format_with_headers(*, persistent: bool, in_steps: bool) -> None:
    """As by Kafka Streams 4.3 with dsl.store.format=HEADERS: deletions alone, and not of stores in memory."""
    builder, string = StreamsBuilder(), Serdes.string()

    def kept(name: str) -> Materialized:
        return Materialized(name=name, key=string, value=string, headers=True, persistent=persistent)

    streams = {name: builder.stream(f"{name}-in", key=string, value=string) for name in ("reduced", "aggregated", "latest")}
    streams["reduced"].group_by_key().reduce(lambda one, other: None if other == "end" else one + other, store=kept("reduced"))
    until_end = per_record(lambda _key, value, before: None if value == "end" else before + value, string)
    streams["aggregated"].group_by_key().aggregate(str, until_end, store=kept("aggregated"))
    streams["latest"].to_table(store=kept("latest"))
    builder.table("table-in", key=string, value=string, store=kept("table"))
    topology, headers = builder.build(), (("h", b"x"),)
    run: StepRun | Run = StepRun(topology) if in_steps else start(topology)
    for name in ("reduced", "aggregated", "latest", "table"):
        end = b"end" if name in ("reduced", "aggregated") else None
        for at, record in enumerate([(b"k", b"a", 5, headers), (b"k", end, 7, headers), (b"l", b"b", 8, headers)]):
            given = (f"{name}-in", *record)
            run.pipe([given], one_by_one=True) if isinstance(run, StepRun) else run.pipe(at, *given)
    found = [(store.removeprefix("app-").removesuffix("-changelog"), key, value is None, tuple(logged or ()))
             for store, key, value, _timestamp, logged, _at in run.logged]
    deleted = headers if persistent else ()
    assert found == [row for name in ("reduced", "aggregated", "latest", "table")
                     for row in ((name, b"k", False, ()), (name, b"k", True, deleted), (name, b"l", False, ()))]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("in_steps", [True, False])
def test_deletions_are_logged_with_headers_in_the_format_with_headers(*, persistent: bool, in_steps: bool) -> None:
    """As by Kafka Streams 4.3 with dsl.store.format=HEADERS: deletions alone, and not of stores in memory."""
    builder, string = StreamsBuilder(), Serdes.string()

    def kept(name: str) -> Materialized:
        return Materialized(name=name, key=string, value=string, headers=True, persistent=persistent)

    grouped = builder.stream("in", key=string, value=string).group_by_key()
    until_end = per_record(lambda _key, value, before: None if value == "end" else before + value, string)
    for name, windows in (("time", TimeWindows.of_size(100)), ("sliding", SlidingWindows.of_time_difference(100))):
        grouped.windowed_by(windows).aggregate(str, until_end, store=kept(name)).to_stream().to(f"{name}-out")
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap(100))
    merged = sessions.aggregate(str, until_end, lambda _key, one, other: one + other, store=kept("sessions"))
    merged.to_stream().to("sessions-out")
    topology, headers = builder.build(), (("h", b"x"),)
    given = [("in", b"k", b"a", 5, headers), ("in", b"k", b"end", 7, headers)]
    run: StepRun | Run = StepRun(topology) if in_steps else start(topology)
    for at, record in enumerate(given):
        run.pipe([record], one_by_one=True) if isinstance(run, StepRun) else run.pipe(at, *record)
    found = {(store.removeprefix("app-").removesuffix("-changelog"), value is None, tuple(logged or ()))
             for store, _key, value, _timestamp, logged, _at in run.logged}
    deleted = headers if persistent else ()
    stores = ("time", "sliding", "sessions")
    assert found == {(store, False, ()) for store in stores} | {(store, True, deleted) for store in stores}


@pytest.mark.parametrize("windows", [
    TimeWindows.of_size(1000, grace=0), SlidingWindows.of_time_difference(1000, grace=0), SessionWindows.of_inactivity_gap(1000),
], ids=lambda windows: type(windows).__name__)  # fmt: skip
def test_an_input_of_a_restored_cogroup_is_not_late_by_the_time_of_another(
    windows: TimeWindows | SlidingWindows | SessionWindows,
) -> None:
    """Each input has a time of its own, and the changelog they share does not say whose a timestamp is."""
    builder, string = StreamsBuilder(), Serdes.string()
    slow, fast = (builder.stream(name, key=string, value=string).group_by_key() for name in ("slow", "fast"))
    joined: Any = slow.cogroup(_appended).cogroup(fast, _appended).windowed_by(windows)  # type: ignore[arg-type]
    mergers = [_appended] if isinstance(windows, SessionWindows) else []
    kept = Materialized(name="s", key=string, value=string, retention=600_000)
    joined.aggregate(str, *mergers, store=kept).to_stream().to("out", value=string)
    first = start(builder.build())
    first.pipe(0, "slow", b"k", b"a", 1_000)
    first.pipe(1, "fast", b"k", b"b", 100_000)
    second = _restored(first)
    second.pipe(2, "slow", b"k", b"c", 5_000)
    assert (second.dropped_at, [value for topic, _, value, *_ in second.written if topic == "out"]) == ([], [b"c"])


def _appended(_key: object, value: str, aggregate: str) -> str:
    return aggregate + value
