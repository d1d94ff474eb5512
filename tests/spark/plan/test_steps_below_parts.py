"""Vectorised nodes right below operators that run record by record: a layer lies between them, and nothing is lost there."""

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
