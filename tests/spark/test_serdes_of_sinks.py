"""A sink writes with its own serdes, whatever is above it: a node that passes bytes on, or one whose results others get too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tidemill import KStream, ProcessorContext, Record, Serdes, StreamsBuilder, per_batch, per_record
from tidemill.errors import StopError, TopologyError
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark
TEXT, LONG, INTEGER = Serdes.string(), Serdes.long(), Serdes.integer()
NAME_FIRST, AGE_FIRST = Serdes.json("name string, age bigint"), Serdes.json("age bigint, name string")


def looked_at(stream: KStream) -> KStream:
    return stream.peek(lambda key, value: None)


def sent(spark: SparkSession, builder: StreamsBuilder, value: Any, serde: Any, *topics: str, **config: str) -> list[list[bytes]]:
    with TopologyTestDriver(builder, config, session=spark) as driver:
        driver.create_input_topic("in", TEXT, serde).pipe_records([TestRecord("k", value, 1)])
        return [[raw for _, raw in driver.create_output_topic(topic, TEXT, Serdes.bytes()).read_key_values()] for topic in topics]


def test_below_a_node_that_passes_records_on_as_they_are(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    people = looked_at(builder.stream("in", key=TEXT, value=NAME_FIRST))
    people.to("age-first", key=TEXT, value=AGE_FIRST)
    people.to("name-first", key=TEXT, value=NAME_FIRST)
    people.to("as-it-came", key=TEXT)
    age_first, name_first, as_it_came = sent(
        spark, builder, {"name": "ann", "age": 7}, NAME_FIRST, "age-first", "name-first", "as-it-came"
    )
    assert age_first == [b'{"age":7,"name":"ann"}']
    assert name_first == as_it_came == [b'{"name":"ann","age":7}']


def test_numbers_of_another_width(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    looked_at(builder.stream("in", key=TEXT, value=INTEGER)).to("out", key=TEXT, value=LONG)
    assert sent(spark, builder, 5, INTEGER, "out") == [[LONG.serialize(5)]]


def test_several_sinks_below_a_function_of_batches(spark: SparkSession) -> None:
    def doubled(values: np.ndarray) -> np.ndarray:
        return values * 2

    builder = StreamsBuilder()
    results = builder.stream("in", key=TEXT, value=LONG).map_values(per_batch(doubled, LONG))
    results.to("long", key=TEXT, value=LONG)
    results.to("integer", key=TEXT, value=INTEGER)
    assert sent(spark, builder, 21, LONG, "long", "integer") == [[LONG.serialize(42)], [INTEGER.serialize(42)]]


class Measures:
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value({"name": record.value, "age": len(record.value)}))


def test_what_processors_and_joins_make_passes_functions_of_columns_as_the_topic_or_group_below_says(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    names = builder.stream("in", key=TEXT, value=TEXT)
    names.process(Measures).filter(lambda key, value: value["age"] > 2).to("measured", key=TEXT, value=AGE_FIRST)
    table = names.to_table(store="names")
    joined = names.join(table, lambda name, again: {"name": name + again, "age": 1})
    joined.group_by(lambda key, value: value["name"], key=TEXT, value=NAME_FIRST).count().to_stream().to("counts")
    measured, [count] = sent(spark, builder, "ann", TEXT, "measured", "counts")
    assert (measured, count) == ([b'{"age":3,"name":"ann"}'], LONG.serialize(1))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_value_that_the_sink_can_not_write_is_a_matter_for_the_production_handler(spark: SparkSession, goes_on: bool) -> None:
    builder = StreamsBuilder()
    looked_at(builder.stream("in", key=TEXT, value=TEXT)).to("out", key=TEXT, value=LONG)
    if goes_on:
        handler = {"production.exception.handler": "continue"}
        assert sent(spark, builder, "no number", TEXT, "out", **handler) == [[]]
    else:
        with pytest.raises(StopError, match=r"KSTREAM-SINK.*long"):
            sent(spark, builder, "no number", TEXT, "out")


class Lengths:
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(len(record.value)))


def test_a_repartition_that_was_moved_above_what_converts_values_says_so_and_stays_where_it_is_asked_for(
    spark: SparkSession,
) -> None:
    """Behind functions of Columns no serde says that a processor converts: Kafka Streams moves it too, and fails when it runs."""
    optimised = {"topology.optimization": "merge.repartition.topics", "default.key.serde": "string"}

    def program(*, asked_for: bool) -> StreamsBuilder:
        builder = StreamsBuilder()
        texts = builder.stream("in", key=TEXT, value=TEXT).map(lambda k, v: (v, v))
        lengths = texts.process_values(Lengths, value=LONG, name="p")
        if asked_for:
            lengths = lengths.repartition(key=TEXT, value=LONG, name="lengths")
        lengths.group_by_key(key=TEXT, value=LONG).reduce(max, store="sums").to_stream().to("out")
        return builder

    with pytest.raises(TopologyError, match=r"moved above p: call repartition\(\) .* type string, but the serde long "):
        sent(spark, program(asked_for=False), "abc", TEXT, "out", **optimised)
    assert sent(spark, program(asked_for=True), "abc", TEXT, "out", **optimised) == [[LONG.serialize(3)]]


def test_a_repartition_that_was_moved_above_a_join_with_a_global_table_says_so(spark: SparkSession) -> None:
    """Kafka Streams moves it too, and fails when it runs."""
    builder = StreamsBuilder()
    names = builder.global_table("names", key=TEXT, value=TEXT)
    texts = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda _, v: v)
    joined = texts.left_join(names, per_record(lambda text, _: len(text), LONG), selector=lambda k, _: k, name="j")
    joined.group_by_key(key=TEXT, value=LONG).reduce(max, store="sums").to_stream().to("out")
    with pytest.raises(TopologyError, match=r"moved above j: call repartition\(\) .* type string, but the serde long "):
        sent(spark, builder, "abc", TEXT, "out", **{"topology.optimization": "merge.repartition.topics"})


def test_streams_of_different_types_are_not_merged_and_the_error_says_what_to_do(spark: SparkSession) -> None:
    def program(*, converted: bool) -> StreamsBuilder:
        builder = StreamsBuilder()
        texts, numbers = builder.stream("in", key=TEXT, value=TEXT), builder.stream("numbers", key=TEXT, value=LONG)
        texts.merge(numbers.map_values(lambda v: v.cast("string")) if converted else numbers).to("out", value=TEXT)
        return builder

    with pytest.raises(TopologyError, match=r"\(string, string\) and \(string, bigint\); convert those of one above it, as"):
        sent(spark, program(converted=False), "a", TEXT, "out")
    assert sent(spark, program(converted=True), "a", TEXT, "out") == [[b"a"]]
