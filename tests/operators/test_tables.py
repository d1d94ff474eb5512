"""Tables: which changes go on, with which old values and timestamps, where operators follow one another."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.answered_programs import PassesOn
from tests.operators.harness import Run, start, without_caches
from tests.operators.step_harness import StepRun
from tidemill import Serdes, SessionWindows, SlidingWindows, StreamsBuilder, Suppressed, TimeWindows
from tidemill.dsl.functions import per_record
from tidemill.dsl.materialized import Materialized
from tidemill.errors import RecordError
from tidemill.topology.nodes import Topology
from tidemill.topology.values import TableRow

STRING, LONG = Serdes.string(), Serdes.long()
Given = tuple[str, "str | None", int]
Out = tuple[str, "str | int | None", int]


def run(program: Callable[[StreamsBuilder], None], *records: Given, value: str = "string", caching: bool = True) -> list[Out]:
    """What reaches ``out`` for records of ``in``: (key, value, timestamp)."""
    running = started(program, *records, caching=caching)
    read = {"string": STRING, "long": LONG}[value].deserialize
    return [
        (STRING.deserialize(key) or "", read(data), timestamp)
        for topic, key, data, timestamp, _headers, _at in running.written if topic == "out"
    ]


def started(program: Callable[[StreamsBuilder], None], *records: Given, caching: bool) -> Run:
    """A program that has got records of ``in``."""
    builder = StreamsBuilder()
    program(builder)
    topology = builder.build()
    running = start(topology if caching else without_caches(topology))
    for at, (key, text, timestamp) in enumerate(records):
        running.pipe(at, "in", key.encode(), None if text is None else text.encode(), timestamp)
    return running


def is_long(_key: str, value: str) -> bool:
    return len(value) > 1


LONG_ONES = per_record(is_long)
BY_VALUE = per_record(lambda k, v: (v, k))


def test_a_filter_without_old_values_passes_every_tombstone() -> None:
    def program(b: StreamsBuilder) -> None:
        b.table("in").filter(LONG_ONES).to_stream().to("out")

    assert run(program, ("k", "a", 1), ("k", None, 2)) == [("k", None, 1), ("k", None, 2)]


@pytest.mark.parametrize("store", [None, "kept"])
def test_a_filter_with_old_values_is_silent_about_what_was_not_there_and_is_not(store: str | None) -> None:
    seen: list[str] = []

    def group(key: str, value: str) -> tuple[str, str]:
        seen.append(value)
        return value, key

    def program(b: StreamsBuilder) -> None:
        b.table("in").filter(LONG_ONES, store=store).group_by(per_record(group)).count().to_stream().to("out", value=LONG)

    assert run(program, ("k", "a", 1), ("k", "bb", 2), ("k", "c", 3), ("k", None, 4), value="long") == [
        ("bb", 1, 2), ("bb", 0, 3),
    ]
    assert seen == ["bb", "bb"]


def test_old_values_go_through_mappings_without_stores() -> None:
    def program(b: StreamsBuilder) -> None:
        upper = b.table("in").map_values(per_record(lambda v: v.upper(), STRING))
        upper.group_by(BY_VALUE).count().to_stream().to("out", value=LONG)

    assert run(program, ("k", "a", 1), ("k", "b", 2), ("k", None, 3), value="long") == [
        ("A", 1, 1), ("A", 0, 2), ("B", 1, 2), ("B", 0, 3),
    ]


def test_the_first_count_of_a_key_takes_the_place_of_nothing() -> None:
    def program(b: StreamsBuilder) -> None:
        counts = b.stream("in").group_by_key().count()
        by_count = counts.group_by(per_record(lambda k, n: (f"n{n}", k)), value=STRING)
        by_count.count().to_stream().to("out", value=LONG)

    assert run(program, ("k", "x", 5), ("k", "x", 6), value="long") == [("n1", 1, 5), ("n1", 0, 6), ("n2", 1, 6)]


WAYS: dict[str, Callable[[Any], Any]] = {
    "count": lambda g: g.count(),
    "aggregate": lambda g: g.aggregate(lambda: 0, lambda k, v, a: a + 1, value=LONG),
    "reduce": lambda g: g.reduce(lambda a, v: v),
    "cogroup": lambda g: g.cogroup(lambda k, v, a: a + 1).aggregate(lambda: 0, value=LONG),
    "time windows": lambda g: g.windowed_by(TimeWindows.of_size(100)).count(),
    "sessions": lambda g: g.windowed_by(SessionWindows.of_inactivity_gap(100)).count(),
    "a window that slides": lambda g: g.windowed_by(SlidingWindows.of_time_difference(100)).count().filter(
        per_record(lambda window, n: window.start == 0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("in_steps", [False, True], ids=["record by record", "in steps"])
def test_rows_of_an_aggregate_are_counted_once_each_in_their_group(way: str, in_steps: bool) -> None:
    """The number of keys: no row is subtracted that was not added."""
    assert _everyone(WAYS[way], in_steps=in_steps) == 3


@pytest.mark.parametrize(("way", "counted"), [*zip(WAYS, (1, 1, 3, 1, 1, 4, 1), strict=True), ("versioned", 1)])
@pytest.mark.parametrize("in_steps", [False, True], ids=["record by record", "in steps"])
def test_without_caches_they_are_counted_as_kafka_streams_counts_them_then(way: str, counted: int, in_steps: bool) -> None:
    """Each first row replaces what its aggregate begins with, a session's update nothing. A versioned store never has a cache.
    The numbers are TopologyTestDriver's with ``statestore.cache.max.bytes=0``."""
    if way == "versioned":
        assert _everyone(lambda g: g.count(store=Materialized(name="v", history_retention=1000)), in_steps=in_steps) == counted
    else:
        assert _everyone(WAYS[way], in_steps=in_steps, cached=False) == counted


def _everyone(way: Callable[[Any], Any], *, in_steps: bool, cached: bool = True) -> int:
    builder = StreamsBuilder()
    table = way(builder.stream("in").group_by_key())
    everyone = table.group_by(per_record(lambda key, value: ("everyone", "row")), key=STRING, value=STRING)
    everyone.count(store="keys")
    topology = builder.build() if cached else without_caches(builder.build())
    records = [("in", key.encode(), b"x", at - at % 2) for at, key in enumerate("aabcba")]
    [(key, row)] = _rows(topology, records, "keys", in_steps=in_steps)
    assert key == "everyone"
    counted: int = row[0]
    return counted


def _rows(
    topology: Topology, records: list[tuple[str, bytes, bytes, int]], store: str, *, in_steps: bool
) -> list[tuple[Any, TableRow]]:
    """What a store holds after records of (topic, key, value, timestamp)."""
    if in_steps:
        steps = StepRun(topology)
        for record in records:
            steps.pipe([(*record, ())], one_by_one=True)
        return list(steps.store(store).all())
    graph = start(topology)
    for at, record in enumerate(records):
        graph.pipe(at, *record)
    return list(graph.graph.store(store).all())


def _appended(_key: str, value: str, so_far: dict[str, list[str]]) -> dict[str, list[str]]:
    so_far["all"].append(value)
    return so_far


def _extended(_key: str, first: dict[str, list[str]], second: dict[str, list[str]]) -> dict[str, list[str]]:
    second["all"].extend(first["all"])
    return second


def _removed(_key: str, value: str, so_far: dict[str, list[str]]) -> dict[str, list[str]]:
    so_far["all"].remove(value)
    return so_far


LISTS = Serdes.json("all array<string>")


def _nobody() -> dict[str, list[str]]:
    return {"all": []}


IN_PLACE: dict[str, Callable[[Any, Materialized], Any]] = {
    "aggregate": lambda s, store: s.group_by_key().aggregate(_nobody, _appended, store=store),
    "cogroup": lambda s, store: s.group_by_key().cogroup(_appended).aggregate(_nobody, store=store),
    "time windows": lambda s, store: s.group_by_key().windowed_by(TimeWindows.of_size(100)).aggregate(
        _nobody, _appended, store=store
    ),
    "sliding windows": lambda s, store: s.group_by_key().windowed_by(SlidingWindows.of_time_difference(100)).aggregate(
        _nobody, _appended, store=store
    ).filter(per_record(lambda window, _: window.start == 0)),
    "sessions": lambda s, store: s.group_by_key().windowed_by(SessionWindows.of_inactivity_gap(100)).aggregate(
        _nobody, _appended, _extended, store=store
    ),
    "a grouped table": lambda s, store: s.map(per_record(lambda key, value: (f"{key}{value}", key))).to_table(store="t").group_by(
        per_record(lambda key, value: (value, key)), key=STRING, value=STRING
    ).aggregate(_nobody, _appended, _removed, store=store),
}  # fmt: skip


@pytest.mark.parametrize(
    ("way", "caching"),
    [(way, caching) for caching in (True, False) for way in IN_PLACE if caching or way != "sessions"],
)
@pytest.mark.parametrize("in_steps", [False, True], ids=["record by record", "in steps"])
def test_an_aggregator_may_change_the_aggregate_in_place(way: str, caching: bool, in_steps: bool) -> None:
    """What a table above a group says was there before is what was there."""
    builder = StreamsBuilder()
    lists = IN_PLACE[way](builder.stream("in"), Materialized(name="lists", value=LISTS, caching=caching))
    everyone = lists.group_by(per_record(lambda key, lists: ("everyone", len(lists["all"]))), key=STRING, value=LONG)
    everyone.aggregate(lambda: 0, lambda k, v, a: a + v, lambda k, v, a: a - v, value=LONG, store="total")
    records = [("in", key.encode(), f"{at}".encode(), at - at % 2) for at, key in enumerate("aabcba")]
    if in_steps:
        steps = StepRun(builder.build())
        steps.pipe([(*record, ()) for record in records], one_by_one=True)
        store = steps.store("total")
    else:
        graph = start(builder.build())
        for at, record in enumerate(records):
            graph.pipe(at, *record)
        store = graph.graph.store("total")
    assert [(key, row[0]) for key, row in store.all()] == [("everyone", 6)]


def test_a_sliding_window_that_begins_as_another_one_sends_that_one_s_aggregate_as_its_old_value() -> None:
    def copied(key: str, value: str, so_far: dict[str, list[str]]) -> dict[str, list[str]]:
        return {"all": [*so_far["all"], value]}

    def totals(aggregator: Callable[..., Any]) -> list[Any]:
        def program(b: StreamsBuilder) -> None:
            sliding = b.stream("in").group_by_key().windowed_by(SlidingWindows.of_time_difference(10, grace=100))
            lists = sliding.aggregate(_nobody, aggregator, store=Materialized(name="lists", value=LISTS, caching=False))
            sizes = lists.group_by(per_record(lambda window, lists: ("all", len(lists["all"]))), key=STRING, value=LONG)
            total = sizes.aggregate(lambda: 0, lambda k, v, a: a + v, lambda k, v, a: a - v, value=LONG)
            total.to_stream().to("out", key=STRING, value=LONG)

        records = [("k", "a", 105), ("k", "b", 110), ("k", "c", 118), ("k", "d", 103), ("k", "e", 119), ("k", "f", 112)]
        return run(program, *records, value="long")

    assert totals(_appended) == totals(copied)


@pytest.mark.parametrize("joined", ["join", "left_join", "outer_join"])
def test_a_joiner_of_tables_may_change_both_values_in_place(joined: str) -> None:
    """It is called for the new row and for the old one, both times with the other table's row."""

    def changing(left: Any, right: Any) -> Any:
        for side in (left, right):
            if side is not None:
                side["all"].append("x")
        return {"all": [*(left or right)["all"], *(right or left)["all"]]}

    def copying(left: Any, right: Any) -> Any:
        left, right = ({"all": [*side["all"], "x"]} if side is not None else None for side in (left, right))
        return {"all": [*(left or right)["all"], *(right or left)["all"]]}

    def totals(joiner: Callable[..., Any]) -> list[Any]:
        def program(b: StreamsBuilder) -> None:
            lists = b.stream("in").map_values(per_record(lambda v: {"all": [v]}, LISTS))
            one, other = (
                lists.filter(per_record(lambda k, v, side=side: v["all"][0][0] == side)).to_table(
                    store=Materialized(name=side, value=LISTS)
                )
                for side in "ab"
            )
            both = getattr(one, joined)(other, joiner)
            sizes = both.group_by(per_record(lambda k, lists: ("all", len(lists["all"]))), key=STRING, value=LONG)
            total = sizes.aggregate(lambda: 0, lambda k, v, a: a + v, lambda k, v, a: a - v, value=LONG)
            total.to_stream().to("out", key=STRING, value=LONG)

        texts = ["a1", "b1", "b2", "a2", "b3", "a3"]
        return run(program, *(("k", text, at) for at, text in enumerate(texts)), value="long")

    assert totals(changing) == totals(copying)


def test_sliding_windows_to_the_right_do_not_get_what_the_aggregator_added_in_place_to_those_before() -> None:
    def program(b: StreamsBuilder) -> None:
        sliding = b.stream("in").group_by_key().windowed_by(SlidingWindows.of_time_difference(10, grace=100))
        lists = sliding.aggregate(lambda: {"all": []}, _appended, value=LISTS).to_stream()
        texts = per_record(lambda window, lists: (f"{window.start}", "".join(sorted(lists["all"]))), (STRING, STRING))
        lists.map(texts).to("out")

    records = [("k", "a", 105), ("k", "b", 110), ("k", "c", 103)]
    last = {key: value for key, value, _ in run(program, *records)}
    assert last == {"95": "ac", "106": "b", "100": "abc", "93": "c", "104": "ab"}


@pytest.mark.parametrize("in_steps", [False, True])
@pytest.mark.parametrize(
    ("caching", "counted"), [(True, {"1/1": 0, "2/2": 0, "3/3": 1}), (False, {"1/1": 2, "2/2": 2, "3/3": 2})],
    ids=["cached", "not"],
)
def test_a_result_of_a_record_that_changes_both_tables_of_a_join_is_counted_once_below_a_cache(
    caching: bool, counted: dict[str, int], in_steps: bool
) -> None:
    """Both are what Kafka Streams 4.3.1 gives, with its default cache and without."""
    builder = StreamsBuilder()
    table = builder.table("in")
    joined = table.join(table, per_record(lambda a, b: f"{a}/{b}"), store=Materialized(name="joined", caching=caching))
    joined.group_by(BY_VALUE).count(store="counted")
    records = [("in", b"k", value.encode(), at) for at, value in enumerate(["1", "2", "3"])]
    rows = _rows(builder.build(), records, "counted", in_steps=in_steps)
    assert {key: count for key, (count, _time) in rows} == counted


def test_the_first_reduced_value_takes_the_place_of_nothing() -> None:
    def program(b: StreamsBuilder) -> None:
        last = b.stream("in").group_by_key().reduce(lambda a, b: b)
        last.group_by(BY_VALUE).count().to_stream().to("out", value=LONG)

    assert run(program, ("k", "a", 5), ("k", "b", 6), value="long") == [("a", 1, 5), ("a", 0, 6), ("b", 1, 6)]


def test_a_null_group_leaves_that_half_out() -> None:
    def group(key: str, value: str) -> tuple[str | None, str | None] | None:
        groups = {"no key": (None, key), "no value": (value, None), "nothing": None}
        return groups.get(value, (value, key))

    def program(b: StreamsBuilder) -> None:
        b.table("in").group_by(per_record(group)).count().to_stream().to("out", value=LONG)

    records = ("k", "a", 1), ("k", "no key", 2), ("k", "b", 3), ("k", "no value", 4), ("k", "c", 5), ("k", "nothing", 6)
    assert run(program, *records, value="long") == [
        ("a", 1, 1), ("a", 0, 2), ("b", 1, 3), ("b", 0, 4), ("c", 1, 5), ("c", 0, 6),
    ]


def test_a_group_whose_subtractor_gives_null_is_deleted_and_begins_again() -> None:
    def program(b: StreamsBuilder) -> None:
        grouped = b.table("in").group_by(per_record(lambda k, v: (v[:1], v)))
        table = grouped.aggregate(
            lambda: "i", lambda k, v, a: a + v, lambda k, v, a: None, store=Materialized(key=STRING, value=STRING)
        )
        table.to_stream().to("out")

    for caching, deleted_at in ((True, 7), (False, 9)):
        assert run(program, ("k", "a1", 9), ("k", "a2", 5), ("k", "b1", 7), caching=caching) == [
            ("a", "ia1", 9), ("a", "ia2", 9), ("a", None, deleted_at), ("b", "ib1", 7),
        ]


def test_the_timestamp_of_a_group_is_the_later_one_where_something_was_there() -> None:
    def program(b: StreamsBuilder) -> None:
        grouped = b.table("in").group_by(per_record(lambda k, v: ("g", v)))
        grouped.reduce(lambda a, v: a + v, lambda a, v: a.replace(v, "", 1)).to_stream().to("out")

    assert run(program, ("a", "x", 9), ("b", "y", 5), ("a", None, 3)) == [("g", "x", 9), ("g", "xy", 9), ("g", "y", 9)]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("passes_a_filter", [False, True])
@pytest.mark.parametrize(("logs_headers", "persistent"), [(False, True), (True, True), (True, False)])
def test_results_of_sessions_have_the_headers_of_their_record_below_a_cache(
    *, cached: bool, passes_a_filter: bool, logs_headers: bool, persistent: bool
) -> None:
    """But not where the store keeps headers, on disk: Kafka Streams 4.3 takes them from there, and puts none there."""
    builder = StreamsBuilder()
    sessions = builder.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(SessionWindows.of_inactivity_gap(10))
    kept = Materialized(name="counted", caching=cached, headers=logs_headers, persistent=persistent)
    counts = sessions.count(store=kept)
    (counts.filter(per_record(lambda k, v: True)) if passes_a_filter else counts).to_stream().to("out")
    steps = StepRun(builder.build())
    for timestamp in (5, 9):
        steps.pipe([("in", b"k", b"v", timestamp, (("at", b"%d" % timestamp),))])
    expected = [(("at", b"5"),), (("at", b"9"),), (("at", b"9"),)]
    assert [tuple(headers or ()) for _, _, _, _, headers, _ in steps.written] == (
        expected if cached and not (logs_headers and persistent) else [()] * 3
    )


@pytest.mark.parametrize(
    ("retention", "caching", "counted"), [(None, False, [1, 1, 1]), (None, True, [1, 2, 1]), (1, False, [1, 2, 1])]
)
def test_records_of_one_time_are_one_session_of_gap_zero_if_there_is_a_cache_or_the_retention_is_longer(
    retention: int | None, caching: bool, counted: list[int]
) -> None:
    """A store without a cache hides sessions that ended the retention ago, gap and grace by default (docs/dsl/windows.md)."""

    def program(b: StreamsBuilder) -> None:
        sessions = b.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap(0))
        counts = sessions.count(store=Materialized(retention=retention, caching=caching)).to_stream()
        counts.filter(per_record(lambda k, v: v is not None)).select_key(per_record(lambda k, v: k.key)).to("out", value=LONG)

    found = run(program, ("k", "a", 10), ("k", "b", 10), ("k", "c", 11), value="long")
    assert [count for _, count, _ in found] == counted


@pytest.mark.parametrize(("caching", "sent_at"), [(True, 5), (False, 9)])
@pytest.mark.parametrize("in_steps", [False, True])
def test_a_deletion_is_logged_with_the_time_of_the_record_that_made_it(in_steps: bool, caching: bool, sent_at: int) -> None:
    """Below a cache the result goes on with that time, else with the later one of that and the aggregate's, as in Kafka Streams
    4.3."""
    builder = StreamsBuilder()

    def longer(_key: str, value: str, before: str) -> str | None:
        return None if value == "end" else before + value

    stream = builder.stream("in", key=STRING, value=STRING)
    stream.group_by_key().aggregate(lambda: "", longer, value=STRING, store="of-stream").to_stream().to("out")
    groups = builder.table("table", key=STRING, value=STRING).group_by(BY_VALUE, key=STRING, value=STRING)
    groups.reduce(lambda one, _other: one, lambda _one, _other: None, store="of-table").to_stream().to("groups")
    topology = builder.build() if caching else without_caches(builder.build())
    given = [("in", b"k", b"a", 9), ("in", b"k", b"end", 5), ("table", b"k", b"g", 9), ("table", b"k", None, 5)]
    if in_steps:
        steps = StepRun(topology)
        for record in given:
            steps.pipe([(*record, ())], one_by_one=True)
        logged, written = [*map(tuple, steps.logged)], [*map(tuple, steps.written)]
    else:
        graph = start(topology)
        for at, record in enumerate(given):
            graph.pipe(at, *record)
        logged, written = [*map(tuple, graph.logged)], [*map(tuple, graph.written)]
    stores = {"of-stream", "of-table", "app-of-stream-changelog", "app-of-table-changelog"}
    assert [record[2:4] for record in logged if record[0] in stores and record[2] is None] == [(None, 5), (None, 5)]
    assert [record[3] for record in written if record[0] in ("out", "groups") and record[2] is None] == [sent_at] * 2


def test_an_out_of_order_change_of_a_versioned_table_ends_at_the_grouping_and_passes_a_filter() -> None:
    def program(b: StreamsBuilder) -> None:
        table = b.table("in", store=Materialized(name="v", history_retention=100))
        filtered = table.filter(LONG_ONES)
        filtered.to_stream().to("out")
        filtered.group_by(BY_VALUE).count().to_stream().map_values(per_record(str, STRING)).to("out")

    assert run(program, ("k", "aa", 10), ("k", "bb", 5), ("k", "c", 7), ("k", "cc", 12)) == [
        ("k", "aa", 10), ("aa", "1", 10), ("k", "bb", 5), ("k", None, 7), ("k", "cc", 12), ("aa", "0", 12), ("cc", "1", 12),
    ]


def test_a_put_older_than_the_history_of_a_versioned_table_ends_there() -> None:
    def program(b: StreamsBuilder) -> None:
        b.table("in", store=Materialized(name="v", history_retention=100)).to_stream().to("out")

    assert run(program, ("k", "a", 200), ("k", "b", 100), ("k", "c", 99)) == [("k", "a", 200), ("k", "b", 100)]


def test_an_aggregate_in_a_versioned_store_is_a_versioned_table() -> None:
    def program(b: StreamsBuilder) -> None:
        kept = Materialized(name="v", history_retention=100)
        last = b.stream("in").group_by_key().reduce(lambda a, b: b, store=kept)
        last.group_by(per_record(lambda k, v: ("g", k))).count().to_stream().to("out", value=LONG)
        last.to_stream().map_values(per_record(lambda v: None)).to("out", value=LONG)

    assert run(program, ("k", "x", 200), ("j", "x", 100), ("i", "x", 99), value="long") == [
        ("k", None, 200), ("g", 1, 200), ("j", None, 100), ("g", 2, 200),
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (0.0, -0.0, [(0.0, 1), (0.0, 0), (-0.0, 1)]),
        (-0.0, 0.0, [(-0.0, 1), (-0.0, 0), (0.0, 1)]),
        (math.nan, math.nan, [(math.nan, 1), (math.nan, 1)]),
        (1.5, 1.5, [(1.5, 1), (1.5, 1)]),
    ],
)  # fmt: skip
def test_a_group_whose_key_is_a_double_is_the_one_of_its_bytes(
    first: float, second: float, expected: list[tuple[float, int]]
) -> None:
    """Answers of Kafka Streams 4.3.0, which compares keys by ``Double.equals``."""
    double = Serdes.double()
    builder = StreamsBuilder()
    by_value = builder.table("in", key=STRING, value=double).group_by(per_record(lambda _key, value: (value, "one")), key=double)
    by_value.count().to_stream().to("out", key=double, value=LONG)
    running = start(builder.build())
    for at, value in enumerate((first, second)):
        running.pipe(at, "in", b"k", double.serialize(value), at)
    found = [(key, LONG.deserialize(value)) for topic, key, value, *_ in running.written if topic == "out"]
    assert found == [(double.serialize(key), count) for key, count in expected]


@pytest.mark.parametrize(
    "windows",
    [TimeWindows.of_size(10), SlidingWindows.of_time_difference(10), SessionWindows.of_inactivity_gap(10)],
    ids=["time", "sliding", "session"],
)
def test_a_join_of_a_windowed_table_with_plain_keys_says_what_it_expects(windows: Any) -> None:
    builder, text = StreamsBuilder(), Serdes.string()
    counts = builder.stream("clicks", key=text, value=text).group_by_key().windowed_by(windows).count(store="counts")
    users = builder.table("users", key=text, value=text, store="users")
    users.join(counts, per_record(lambda user, count: f"{user} {count}", text)).to_stream().to("joined")
    expected = "KTABLE-JOINTHIS-[0-9]+: the key is of type str, expected Windowed: .*Join what has the same windows"
    with pytest.raises(RecordError, match=expected):
        start(builder.build()).pipe(0, "users", b"a", b"b", 1)


def test_of_a_table_joined_with_itself_a_deleted_row_goes_only_from_an_outer_join() -> None:
    def both(left: str | None, right: str | None) -> str | None:
        return None if left is None or right is None else left + right

    def program(join: str) -> Callable[[StreamsBuilder], None]:
        def build(b: StreamsBuilder) -> None:
            table = b.table("in", store="rows")
            getattr(table, join)(table, per_record(both, STRING), store="joined").to_stream().to("out")

        return build

    given = ("k", "a", 1), ("k", None, 2)
    assert run(program("join"), *given)[-1] == ("k", "aa", 1)
    assert run(program("outer_join"), *given)[-1] == ("k", None, 2)


def test_a_group_below_suppress_subtracts_what_was_there_before_the_last_change_that_was_held() -> None:
    def program(b: StreamsBuilder) -> None:
        rows = b.table("in", store="rows").suppress(Suppressed.until_time_limit(10))
        rows.group_by(lambda _k, v: (v, v)).count().to_stream().to("out")

    given = ("k", "a", 0), ("other", "z", 20), ("k", "b", 30), ("k", "c", 31), ("other", "z", 50)
    of_java = [("a", 1, 0), ("z", 1, 20), ("b", None, 31), ("c", 1, 31)]
    assert run(program, *given, value="long", caching=False) == of_java
    assert run(program, *given, value="long") == [row for row in of_java if row[1] is not None]


def _table(b: StreamsBuilder) -> None:
    b.table("in", store="t").to_stream().to("out")


def _filtered(b: StreamsBuilder) -> None:
    b.table("in").filter(per_record(lambda _key, value: value != "x"), store="t").to_stream().to("out")


def _mapped(b: StreamsBuilder) -> None:
    b.table("in").map_values(per_record(lambda value: value), store="t").to_stream().to("out")


def _all_deleted(b: StreamsBuilder) -> None:
    grouped = b.table("in").to_stream().group_by_key()
    grouped.aggregate(lambda: None, lambda _key, _value, _so_far: None, store="t").to_stream().to("out")


def _windows_all_deleted(b: StreamsBuilder) -> None:
    windowed = b.stream("in").group_by_key().windowed_by(TimeWindows.of_size(20))
    deleted = windowed.aggregate(lambda: None, lambda _key, _value, _so_far: None)
    deleted.to_stream(per_record(lambda windowed, _value: f"{windowed.key}{windowed.start}")).to("out")


def _sessions_all_deleted(b: StreamsBuilder) -> None:
    windowed = b.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap(15))
    deleted = windowed.aggregate(lambda: None, lambda _key, _value, _so_far: None, lambda _key, _one, _other: None)
    deleted.to_stream(per_record(lambda windowed, _value: f"{windowed.key}{windowed.start}")).to("out")


def _joined(b: StreamsBuilder) -> None:
    rows = b.table("in", store="in")
    rows.join(rows, lambda one, other: None if one == "x" else one + other, store="joined").to_stream().to("out")


def _processed(b: StreamsBuilder) -> None:
    b.table("in", store="t").to_stream().process(PassesOn).to("out")


ABSENT: list[Given] = [("a", None, 10), ("b", "1", 20), ("b", None, 30), ("b", None, 40), ("c", "x", 50), ("a", None, 60)]


@pytest.mark.parametrize(
    ("program", "with_cache", "without"),
    [
        (_table, "b=1@20 b=-@30 c=x@50", "a=-@10 b=1@20 b=-@30 b=-@40 c=x@50 a=-@60"),
        (_filtered, "b=1@20 b=-@30", "a=-@10 b=1@20 b=-@30 b=-@40 c=-@50 a=-@60"),
        (_mapped, "b=1@20 b=-@30 c=x@50", "a=-@10 b=1@20 b=-@30 b=-@40 c=x@50 a=-@60"),
        (_all_deleted, "", "b=-@20 c=-@50"),
        (_windows_all_deleted, "", "a0=-@10 b20=-@20 b20=-@30 b40=-@40 c40=-@50 a60=-@60"),
        (_sessions_all_deleted, "", "a10=-@10 b20=-@20 b30=-@30 b40=-@40 c50=-@50 a60=-@60"),
        (_joined, "b=11@20", "b=11@20 b=11@20 c=-@50 c=-@50"),
        (_processed, "b=1@20 b=-@30 c=x@50", "a=-@10 b=1@20 b=-@30 b=-@40 c=x@50 a=-@60"),
    ],
)
def test_a_cache_drops_deletions_of_rows_that_are_not_there(
    program: Callable[[StreamsBuilder], None], with_cache: str, without: str
) -> None:
    """What Kafka Streams 4.3.1's TopologyTestDriver gives, with its default ``statestore.cache.max.bytes`` and with 0; and what
    it logs in the store ``t``, which is the same."""
    for caching, expected in ((True, with_cache), (False, without)):
        running = started(program, *ABSENT, caching=caching)
        sent = [shown(key, value, at) for topic, key, value, at, _headers, _seq in running.written if topic == "out"]
        assert " ".join(sent) == expected
        logged = [shown(key, value, at) for store, key, value, at, _headers, _seq in running.logged if store == "t"]
        if "t" in running.topology.stores:
            assert " ".join(logged) == expected


def shown(key: bytes | None, value: bytes | None, timestamp: int | None) -> str:
    return f"{(key or b'').decode()}={'-' if value is None else value.decode()}@{timestamp}"
