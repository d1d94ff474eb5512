"""Filters of tables by Columns: no tombstone for what did not pass before, as with Python functions and in Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tidemill import KStream, KTable, Serdes, SessionWindows, StreamsBuilder, TimeWindows, of_columns, per_record
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark
TEXT, LONG, SUMS = Serdes.string(), Serdes.long(), Serdes.json("struct<n:bigint,last:string>")
SENT = (
    ("a", "1", 0), ("b", "2", 1), ("a", "3", 2), ("a", "-9", 3), ("c", "1", 4), ("b", "2", 5), ("b", "1", 6), ("a", "5", 7),
    ("c", "0", 8), ("a", "-7", 9), ("b", "-9", 10), ("b", "1", 11), ("a", "9", 12),
)  # fmt: skip
GIVEN = [TestRecord(key=key, value=value, timestamp=at) for key, value, at in SENT]
Way = Callable[[Callable[..., Any], Callable[..., Any]], Any]
"""Of a function of Columns and one of Python values, the one that the program is written with."""


def columns(of: Callable[..., Any], _python: Callable[..., Any]) -> Any:
    return of


def python(_of: Callable[..., Any], function: Callable[..., Any]) -> Any:
    return per_record(function)


def numbers(stream: KStream) -> KStream:
    return stream.map_values(lambda value: value.cast("long"))


def counted(stream: KStream) -> KTable:
    return stream.group_by_key(key=TEXT, value=TEXT).count(store="n")


def summed(stream: KStream) -> KTable:
    return numbers(stream).group_by_key(key=TEXT, value=LONG).reduce(lambda one, other: one + other, store="n")


def even(table: KTable, way: Way, **kept: Any) -> KTable:
    return table.filter(way(lambda _, n: n % 2 == 0, lambda _, n: n % 2 == 0), **kept)


def positive(value: Any) -> Any:
    return value > 0


def added(key: str, value: int, so_far: dict[str, Any]) -> dict[str, Any]:
    return {"n": so_far["n"] + value, "last": key}


def in_structs(stream: KStream) -> KTable:
    grouped = numbers(stream).group_by_key(key=TEXT, value=LONG)
    return grouped.aggregate(lambda: {"n": 0, "last": ""}, added, store="n", value=SUMS)


def more_than_two(table: KTable, way: Way) -> KTable:
    return table.filter(way(lambda _, row: row["n"] > 2, lambda _, row: row["n"] > 2))


def one_more(table: KTable, way: Way) -> KTable:
    return table.map_values(way(lambda n: n + 1, lambda n: n + 1))


PROGRAMS: dict[str, Callable[[KStream, Way], KTable]] = {
    "a count": lambda s, way: even(counted(s), way),
    "a count, kept": lambda s, way: even(counted(s), way, store="even"),
    "a sum": lambda s, way: summed(s).filter(way(lambda _, n: positive(n), lambda _, n: positive(n))),
    "filter_not": lambda s, way: summed(s).filter_not(way(lambda _, n: positive(n), lambda _, n: positive(n))),
    "a struct": lambda s, way: more_than_two(in_structs(s), way),
    "a table with a store": lambda s, way: even(numbers(s).to_table(key=TEXT, value=LONG, store="n"), way),
    "behind a mapping": lambda s, way: even(one_more(summed(s), way), way).filter(
        way(lambda key, n: key != F.lit("b"), lambda key, n: key != "b")
    ),
    "behind a filter": lambda s, way: summed(s)
    .filter(way(lambda _, n: positive(n), lambda _, n: positive(n)))
    .filter(way(lambda _, n: n < 9, lambda _, n: n < 9)),
    "behind a filter that is kept": lambda s, way: even(
        summed(s).filter(way(lambda _, n: positive(n), lambda _, n: positive(n)), store="kept"), way
    ),
    "behind a Python function": lambda s, way: even(summed(s).map_values(per_record(lambda n: n + 1, serde=LONG)), way),
    "a null that would pass": lambda s, way: summed(s)
    .filter(way(lambda _, n: positive(n), lambda _, n: positive(n)))
    .filter_not(way(lambda _, n: F.coalesce(n, F.lit(0)) > 8, lambda _, n: (n or 0) > 8)),
}


def of_sums(left: Column, right: Column) -> Column:
    return left + right


def reduced(stream: KStream, way: Way) -> KTable:
    grouped = numbers(stream).group_by_key(key=TEXT, value=LONG)
    return grouped.reduce(of_columns(of_sums) if way is columns else of_sums, store="n")


PROGRAMS |= {
    "windows": lambda s, way: even(
        s.group_by_key(key=TEXT, value=TEXT).windowed_by(TimeWindows.of_size(5)).count(store="n"), way
    ),
    "sessions": lambda s, way: even(
        s.group_by_key(key=TEXT, value=TEXT).windowed_by(SessionWindows.of_inactivity_gap(2)).count(store="n"), way
    ),
    "a reduce of Columns": lambda s, way: even(reduced(s, way), way),
}


def written(spark: SparkSession, program: str, way: Way, batch: int) -> list[Any]:
    """Keys and values as bytes, and timestamps."""
    builder, value = StreamsBuilder(), SUMS if program == "a struct" else LONG
    PROGRAMS[program](builder.stream("in", key=TEXT, value=TEXT), way).to_stream().to("out", value=value)
    with TopologyTestDriver(builder, session=spark) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(GIVEN, batch=batch)
        out = driver.create_output_topic("out", Serdes.bytes(), Serdes.bytes())
        return [(record.key, record.value, record.timestamp) for record in out.read_records()]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_filter_of_columns_forwards_what_one_of_python_forwards(spark: SparkSession, program: str) -> None:
    """As answers of Kafka Streams say of the latter: a count's old value, where there was none, is 0."""
    expected = written(spark, program, python, 1)
    assert any(value is None for _, value, _ in expected)
    assert written(spark, program, columns, 1) == expected
    assert rows(written(spark, program, columns, 4)) == rows(expected)


def rows(found: Sequence[tuple[Any, Any, int]]) -> dict[Any, Any]:
    """The table that a reader makes of them."""
    return {key: value for key, value in {key: value for key, value, _ in found}.items() if value is not None}


def test_a_row_that_never_passed_gets_no_tombstone(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    counted(builder.stream("in", key=TEXT, value=TEXT)).filter(lambda _, n: n > 3).to_stream().to("out", key=TEXT, value=LONG)
    with TopologyTestDriver(builder, session=spark) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(GIVEN, batch=5)
        found = driver.create_output_topic("out", TEXT, LONG).read_key_values()
    assert found == [("a", 5), ("b", 5), ("a", 6)]
