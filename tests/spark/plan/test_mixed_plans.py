"""Functions of columns before and behind operators that run record by record, in one plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.plan_harness import APPLICATION, Program, Record
from tidemill import JoinWindows, Serdes, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, of_columns, per_record
from tidemill.errors import TopologyError
from tidemill.spark.plan.stages import stages

STRING, LONG = Serdes.string(), Serdes.long()


def values(run: Program, topic: str) -> list[tuple[Any, Any, int]]:
    return [(record.key, record.value, record.timestamp) for record in run.outputs.get(topic, [])]


@pytest.mark.spark
def test_columns_before_and_behind_a_join_of_streams(spark: SparkSession, tmp_path: Path) -> None:
    b = StreamsBuilder()
    left, right = b.stream("left").map_values(F.upper), b.stream("right").flat_map_values(lambda v: F.split(v, " "))
    joined = left.join(right, lambda x, y: f"{x}{y}", JoinWindows.of_time_difference(10))
    joined.map_values(F.reverse).filter(lambda k, v: v != "2a").to("out")
    joined.to("plain")
    run = Program(spark, b.build(), tmp_path, default=STRING)
    run.pipe([("left", Record(b"k", b"a", 1)), ("right", Record(b"k", b"1 2", 5)), ("left", Record(b"k", b"b", 6))])
    assert values(run, "plain") == [(b"k", b"A1", 5), (b"k", b"A2", 5), (b"k", b"B1", 6), (b"k", b"B2", 6)]
    assert values(run, "out") == [(b"k", b"1A", 5), (b"k", b"2A", 5), (b"k", b"1B", 6), (b"k", b"2B", 6)]
    run.pipe([("right", Record(b"k", b"3", 7))])
    assert values(run, "out")[4:] == [(b"k", b"3A", 7), (b"k", b"3B", 7)]


@pytest.mark.spark
def test_the_key_of_a_window_is_a_struct_to_functions_of_columns(spark: SparkSession, tmp_path: Path) -> None:
    b = StreamsBuilder()
    windowed = b.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(TimeWindows.of_size(100))
    counted = windowed.count(store="counts").to_stream()
    counted.map(lambda k, n: (F.concat_ws("@", k["key"], k["start"]), n)).to("out", key=STRING, value=LONG)
    run = Program(spark, b.build(), tmp_path, default=STRING)
    run.pipe([("in", Record(b"a", b"x", 5)), ("in", Record(b"a", b"x", 7)), ("in", Record(b"b", b"x", 107))])
    run.pipe([("in", Record(b"b", b"x", 108))])
    assert [(key, LONG.deserialize(value), time) for key, value, time in values(run, "out")] == [
        (b"a@0", 2, 7), (b"b@100", 1, 107), (b"b@100", 2, 108)
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["map_values", "join"])
def test_columns_between_operators_that_run_together_are_refused_with_what_to_write(way: str) -> None:
    b = StreamsBuilder()
    stream, table = b.stream("in", key=STRING, value=STRING), b.table("rows", key=STRING, value=STRING, store="rows")
    given = stream.join(table, lambda one, row: one + row)
    columns = given.map_values(F.upper) if way == "map_values" else given.join(table, of_columns(F.concat))
    columns.merge(given).left_join(table, lambda one, row: one)
    with pytest.raises(TopologyError, match=r"give it a function of Python values \(in per_record.*without of_columns\("):
        stages(b.build())


WINDOWS = {
    "tumbling": TimeWindows.of_size(100), "hopping": TimeWindows.of_size(100, advance=50),
    "session": SessionWindows.of_inactivity_gap(10), "sliding": SlidingWindows.of_time_difference(10),
}  # fmt: skip


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_windowed_count_is_printed_and_watched_in_the_step_that_counts(kind: str) -> None:
    """To the two of them the node between, which only forwards, is none."""
    b = StreamsBuilder()
    counted: Any = b.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(WINDOWS[kind])
    counts = counted.count().to_stream()
    counts.print()
    counts.foreach(lambda _key, _count: None)
    counts.peek(lambda _key, _count: None).merge(counts).to("out")
    planned = stages(b.build())
    assert (set(planned.step_of.values()), planned.last) == ({0, 1}, 1)


@pytest.mark.spark
def test_a_windowed_count_goes_on_to_a_function_of_python_values_and_a_topic(
    spark: SparkSession, tmp_path: Path
) -> None:
    b, seen = StreamsBuilder(), tmp_path / "seen"

    def see(key: Any, count: int) -> None:
        with seen.open("a") as file:
            file.write(f"{key} {count}\n")

    counted = b.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(TimeWindows.of_size(100)).count()
    counted.to_stream().peek(see).to("out")
    run = Program(spark, b.build(), tmp_path, default=STRING)
    for at in (5, 7, 105):
        run.pipe([("in", Record(b"a", b"x", at))])
    assert [LONG.deserialize(value) for _, value, _ in values(run, "out")] == [1, 2, 1]
    assert seen.read_text().splitlines() == ["[a@0/100] 1", "[a@0/100] 2", "[a@100/200] 1"]


@pytest.mark.spark
def test_an_aggregate_without_a_serde_is_written_with_the_default_one(spark: SparkSession, tmp_path: Path) -> None:
    b = StreamsBuilder()
    grouped = b.stream("in", key=STRING, value=STRING).filter(lambda k, v: v != "").group_by_key()
    lengths = grouped.aggregate(lambda: 0, lambda k, v, total: total + len(v), store="lengths").to_stream()
    lengths.filter(lambda k, n: n > 2).to("out", key=STRING)
    run = Program(spark, b.build(), tmp_path, default=LONG)
    assert run.compiled.stages.parts == ()
    run.pipe([("in", Record(b"a", b"xy", 5))])
    run.pipe([("in", Record(b"a", b"xyz", 6))])
    assert values(run, "out") == [(b"a", LONG.serialize(5), 6)]


@pytest.mark.spark
def test_a_table_that_a_stream_of_another_serde_looks_up_is_kept_as_its_topic_has_it(spark: SparkSession, tmp_path: Path) -> None:
    b = StreamsBuilder()
    users = b.table("users", store="users")
    counts = b.stream("counts", key=STRING, value=LONG).filter(lambda k, n: n > 0)
    counts.join(users, lambda n, user: f"{user} {n}").to("out", key=STRING, value=STRING)
    run = Program(spark, b.build(), tmp_path, default=STRING)
    assert len(run.compiled.stages.vectorised) == 1
    run.pipe([("users", Record(b"a", b"ada", 1))])
    run.pipe([("counts", Record(b"a", LONG.serialize(3), 5))])
    assert values(run, "out") == [(b"a", b"ada 3", 5)]
    assert values(run, f"{APPLICATION}-users-changelog") == [(b"a", b"ada", 1)]


def test_a_function_of_columns_between_operators_that_run_together_is_refused() -> None:
    b = StreamsBuilder()
    table = b.table("table")
    joined = b.stream("in").join(table, lambda v, w: v).process_values(lambda: None).map_values(F.upper)
    joined.left_join(table, lambda v, w: v).process_values(lambda: None).to("out")
    with pytest.raises(TopologyError, match=r"KSTREAM-MAPVALUES-\d+ works on columns, but is between .*per_record"):
        stages(b.build())


def test_a_table_of_columns_under_an_operator_that_needs_its_changes_is_refused() -> None:
    b = StreamsBuilder()
    mapped = b.table("table").map_values(F.upper)
    mapped.group_by(per_record(lambda k, v: (v, v))).count().to_stream().to("out")
    with pytest.raises(TopologyError, match=r"KTABLE-MAPVALUES-\d+ works on columns, but KTABLE-SELECT-\d+ needs .*per_record"):
        stages(b.build())


def test_a_program_of_columns_only_has_no_part() -> None:
    b = StreamsBuilder()
    words = b.stream("in").flat_map_values(lambda v: F.split(v, " "))
    words.group_by(lambda k, v: v).count(store="counts").to_stream().to("out", value=LONG)
    plan = stages(b.build())
    assert (plan.parts, plan.vectorised) == ((), ())
