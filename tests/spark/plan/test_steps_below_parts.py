"""Nodes with functions of Columns right below nodes that run in Python: a layer lies between them, and nothing is lost there."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidemill import Serdes, StreamsBuilder, of_columns, per_record
from tidemill.testing import TopologyTestDriver

pytestmark = pytest.mark.spark
TEXT, LONG = Serdes.string(), Serdes.long()


def test_a_table_that_is_joined_filtered_by_columns_and_kept(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    left, right = (builder.table(name, key=TEXT, value=LONG) for name in ("left", "right"))
    joined = left.join(right, lambda one, other: one + other)
    joined.filter(lambda _, total: total > 10, store="large").to_stream().to("out", key=TEXT, value=LONG)
    with TopologyTestDriver(builder, {"default.value.serde": "long"}, session=spark) as driver:
        driver.create_input_topic("left", TEXT, LONG).pipe_input("a", 5)
        right_in = driver.create_input_topic("right", TEXT, LONG)
        for number in (7, 1):
            right_in.pipe_input("a", number)
        assert driver.create_output_topic("out", TEXT, LONG).read_key_values() == [("a", 12), ("a", None)]
        assert list(driver.store("large").all()) == []


def test_a_stream_of_python_values_that_columns_reduce(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=LONG).map_values(per_record(lambda value: value * 10, serde=LONG))
    reduced: Any = stream.group_by_key().reduce(of_columns(lambda total, value: total + value), store="totals")
    reduced.to_stream().to("out", key=TEXT, value=LONG)
    with TopologyTestDriver(builder, session=spark) as driver:
        given = driver.create_input_topic("in", TEXT, LONG)
        for number in (1, 2):
            given.pipe_input("a", number)
        assert driver.create_output_topic("out", TEXT, LONG).read_key_values() == [("a", 10), ("a", 30)]


def test_what_columns_have_reduced_goes_on_to_python(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=LONG)
    reduced: Any = stream.group_by_key().reduce(of_columns(lambda total, value: total + value), store="totals")
    reduced.to_stream().map_values(per_record(lambda value: value * 10, serde=LONG)).to("out", key=TEXT, value=LONG)
    with TopologyTestDriver(builder, session=spark) as driver:
        given = driver.create_input_topic("in", TEXT, LONG)
        for number in (1, 2):
            given.pipe_input("a", number)
        assert driver.create_output_topic("out", TEXT, LONG).read_key_values() == [("a", 10), ("a", 30)]


@pytest.mark.parametrize("store", [None, "kept"])
def test_a_table_of_columns_whose_stream_goes_on_to_python(spark: SparkSession, store: str | None) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=TEXT, value=TEXT).filter(lambda _, value: value != "no", store=store)
    shouted = table.to_stream().map_values(per_record(lambda value: None if value is None else value + "!", serde=TEXT))
    shouted.to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        given = driver.create_input_topic("in", TEXT, TEXT)
        for value in ("hello", "no"):
            given.pipe_input("a", value)
        assert driver.create_output_topic("out", TEXT, TEXT).read_key_values() == [("a", "hello!"), ("a", None)]


TABLES = {
    "a table's topic": lambda stream: stream.to_table(key=TEXT, value=LONG, store="above"),
    "a count": lambda stream: stream.group_by_key(key=TEXT, value=LONG).count(store="above"),
    "a reduce of Python values": lambda stream: stream.group_by_key(key=TEXT, value=LONG).reduce(lambda one, other: one + other),
    "a reduce of Columns": lambda stream: stream.group_by_key(key=TEXT, value=LONG).reduce(
        of_columns(lambda one, other: one + other)
    ),
    "an aggregate": lambda stream: stream.group_by_key(key=TEXT, value=LONG).aggregate(
        lambda: 0, lambda _key, value, total: total + value, value=LONG
    ),
    "a table of columns with a store": lambda stream: stream.to_table(key=TEXT, value=LONG, store="above").map_values(
        lambda value: value + 1, store="between"
    ),
}
# What the table above holds after each of the values 1, 2, 2 of one key.
ROWS = {
    "a table's topic": [1, 2, 2],
    "a count": [1, 2, 3],
    "a reduce of Python values": [1, 3, 5],
    "a reduce of Columns": [1, 3, 5],
    "an aggregate": [1, 3, 5],
    "a table of columns with a store": [2, 3, 3],
}


@pytest.mark.parametrize("above", TABLES)
def test_a_table_with_a_store_computes_its_columns_below_a_table_with_a_store(spark: SparkSession, above: str) -> None:
    builder = StreamsBuilder()
    table: Any = TABLES[above](builder.stream("in", key=TEXT, value=LONG))
    tenfold = table.map_values(lambda row: row * 10, store="tenfold", value=LONG)
    tenfold.to_stream().to("mapped", key=TEXT, value=LONG)
    tenfold.filter(lambda _, row: row < 25, store="small").to_stream().to("filtered", key=TEXT, value=LONG)
    with TopologyTestDriver(builder, session=spark) as driver:
        given = driver.create_input_topic("in", TEXT, LONG)
        for number in (1, 2, 2):
            given.pipe_input("a", number)
        mapped = [row * 10 for row in ROWS[above]]
        assert [value for _, value in driver.create_output_topic("mapped", TEXT, LONG).read_key_values()] == mapped
        small = [row if row < 25 else None for row in mapped]
        # A row that does not pass, after one that did not pass either, changes nothing (KTableFilter).
        changes = [row for row, before in zip(small, [None, *small], strict=False) if row is not None or before is not None]
        assert [value for _, value in driver.create_output_topic("filtered", TEXT, LONG).read_key_values()] == changes
        assert [(key, row[0]) for key, row in driver.store("tenfold").all()] == [("a", mapped[-1])]
        kept = [("a", small[-1])] if small[-1] is not None else []
        assert [(key, row[0]) for key, row in driver.store("small").all()] == kept
