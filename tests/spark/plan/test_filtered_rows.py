"""What a filter drops reaches nothing behind it: no function of Columns, and no check of what is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tidemill import KStream, Serdes, StreamsBuilder
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.spark.plan.python_steps import idle, one_row
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG, INTEGER = Serdes.string(), Serdes.long(), Serdes.integer()
READ, WRITTEN = Serdes.json("amount double"), Serdes.json("amount double NOT NULL")


def test_a_record_that_a_filter_drops_reaches_no_function_and_no_check_behind_it(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("texts", key=TEXT, value=TEXT).filter(lambda _, text: text.rlike("^[0-9]+$"))
    numbers.group_by(lambda _, text: text.cast("int"), key=INTEGER).count(store="counts").to_stream().to("counts", value=LONG)
    numbers.select_key(lambda _, text: text.cast("int")).map_values(lambda text: F.lit(12) / text.cast("int")).filter(
        lambda number, _: number > 1
    ).to("quotients", key=INTEGER, value=Serdes.double())
    builder.stream("amounts", key=TEXT, value=READ).filter(lambda _, v: v["amount"].isNotNull()).to("written", value=WRITTEN)
    table = builder.table("table", key=TEXT, value=TEXT).filter(lambda _, text: text.rlike("^[0-9]+$"))
    table.map_values(lambda text: text.cast("int")).to_stream().to("rows", key=TEXT, value=INTEGER)
    with TopologyTestDriver(builder, session=spark) as driver:
        texts = [TestRecord("a", "1"), TestRecord("b", "x"), TestRecord("c", "2"), TestRecord("d", None)]
        driver.create_input_topic("texts", TEXT, TEXT).pipe_records(texts, batch=None)
        amounts = [TestRecord("a", {"amount": 1.5}), TestRecord("b", {"amount": None})]
        driver.create_input_topic("amounts", TEXT, READ).pipe_records(amounts, batch=None)
        driver.create_input_topic("table", TEXT, TEXT).pipe_records(texts, batch=None)
        assert driver.create_output_topic("counts", INTEGER, LONG).read_key_values_to_dict() == {1: 1, 2: 1}
        assert driver.create_output_topic("quotients", INTEGER, Serdes.double()).read_key_values() == [(2, 6.0)]
        assert driver.create_output_topic("written", TEXT, WRITTEN).read_key_values() == [("a", {"amount": 1.5})]
        assert driver.create_output_topic("rows", TEXT, INTEGER).read_key_values() == [
            ("a", 1), ("b", None), ("c", 2), ("d", None),
        ]  # fmt: skip


def filtered(stream: KStream, _builder: StreamsBuilder, number: int) -> KStream:
    return stream.filter(lambda _, text: text != f"no {number}")


def filtered_and_mapped(stream: KStream, builder: StreamsBuilder, number: int) -> KStream:
    return filtered(stream, builder, number).map_values(F.upper)


def merged(stream: KStream, builder: StreamsBuilder, number: int) -> KStream:
    return stream.merge(builder.stream(f"topic-{number}", key=TEXT, value=TEXT))


@pytest.mark.parametrize("step", [filtered, filtered_and_mapped, merged])
def test_the_plan_of_many_filters_or_merges_does_not_grow_with_their_power(
    spark: SparkSession, step: Callable[[KStream, StreamsBuilder, int], KStream]
) -> None:
    """Catalyst's push-down of one filter copies what is below it, twice for each projection: nine filters took all memory."""

    def size(steps: int) -> int:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=TEXT, value=TEXT)
        for number in range(steps):
            stream = step(stream, builder, number)
        stream.to("out", key=TEXT, value=TEXT)
        compiled = compile_topology(spark, builder.build(), "growing")
        frame = compiled.frame(one_row(spark), idle, [idle] * len(compiled.steps), lambda _step: None, sums=False)
        return len(frame._jdf.queryExecution().optimizedPlan().toString())

    first, second, third = size(2), size(4), size(6)
    assert third - second < 2 * (second - first)


def test_a_stream_that_is_split_and_merged_again_and_again_is_one_behind_each_merge(spark: SparkSession) -> None:
    """The parts come to a merge by paths of different lengths: each alone would have a copy of all that is below."""
    calls = [0] * 5

    def counted(number: int, text: Column) -> Column:
        calls[number] += 1
        return F.upper(text)

    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    for number in range(len(calls)):
        others = stream.filter(lambda _, text, number=number: text == f"no {number}").map_values(partial(counted, number))
        stream = stream.filter(lambda _, text, number=number: text != f"no {number}").merge(others)
    stream.to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_values([f"no {number}" for number in (3, 5, 0, 4)])
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["NO 3", "no 5", "NO 0", "NO 4"]
    assert calls == [calls[0]] * 5
