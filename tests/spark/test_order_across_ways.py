"""What one record becomes on several ways keeps its order where the ways meet again, however many records a micro-batch has: the
order in which records cause each other, depth first, as in Kafka Streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import KStream, Materialized, Serdes, StreamsBuilder, per_record
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark
TEXT = Serdes.string()
EVERY = Materialized(name="kept", caching=False)
SENT = ("a", "bb", "c", "dd")


class PassesOn:
    def init(self, context: Any) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        self._context.forward(record)


def processed(stream: KStream) -> KStream:
    return stream.process(PassesOn, key=TEXT, value=TEXT)


def long_ones(stream: KStream) -> KStream:
    """Python first, so that the first record of a batch that goes this way is not the batch's first."""
    longer = stream.filter(per_record(lambda _, value: len(value) > 1))
    return longer.map_values(lambda value: F.concat(F.upper(value), F.lit("1")))


def upper(stream: KStream) -> KStream:
    return stream.map_values(F.upper)


WAYS: dict[str, Callable[[KStream], KStream]] = {
    "two ways out of a step of Python": lambda s: long_ones(processed(s)).merge(upper(processed(s))),
    "two ways out of one node": lambda s: (lambda p: long_ones(p).merge(upper(p)))(processed(s)),
    "a way past the step": lambda s: long_ones(s).merge(upper(s)),
    "then a step of Python": lambda s: processed((lambda p: long_ones(p).merge(upper(p)))(processed(s))),
    "then a table": lambda s: (
        (lambda p: long_ones(p).merge(upper(p)))(processed(s)).to_table(key=TEXT, value=TEXT, store=EVERY).to_stream()
    ),
}


@pytest.mark.parametrize("batch", [1, 2, None])
@pytest.mark.parametrize("ways", WAYS)
def test_what_a_record_becomes_comes_before_what_the_next_one_does(spark: SparkSession, ways: str, batch: int | None) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    WAYS[ways](stream).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        given = [TestRecord(key="k", value=value, timestamp=1) for value in SENT]
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(given, batch=batch)
        found = [value for _, value in driver.create_output_topic("out", TEXT, TEXT).read_key_values()]
    assert found == ["A", "BB1", "BB", "C", "DD1", "DD"]


@pytest.mark.parametrize("batch", [1, None])
def test_a_way_that_is_taken_first_by_a_later_record_only(spark: SparkSession, batch: int | None) -> None:
    """The other way has more places to go, so that it is numbered in the layer."""
    builder = StreamsBuilder()
    passed = processed(builder.stream("in", key=TEXT, value=TEXT))
    some, all_of_them = long_ones(passed), upper(passed)
    all_of_them.to("other", key=TEXT, value=TEXT)
    processed(some.merge(all_of_them)).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        given = [TestRecord(key="k", value=value, timestamp=1) for value in SENT]
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(given, batch=batch)
        found = [value for _, value in driver.create_output_topic("out", TEXT, TEXT).read_key_values()]
    assert found == ["A", "BB1", "BB", "C", "DD1", "DD"]


def chained(stream: KStream, operators: int) -> KStream:
    for _ in range(operators):
        stream = stream.flat_map_values(F.array)
    return stream


@pytest.mark.parametrize("operators", [3, 4, 6])
@pytest.mark.parametrize("first", ["columns", "Python"])
def test_rows_keep_their_order_through_any_number_of_operators_that_may_make_several_of_one(
    spark: SparkSession, operators: int, first: str
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    processed(chained(processed(stream) if first == "Python" else stream, operators)).to("out", key=TEXT, value=TEXT)
    sent = [f"{number:04}" for number in range(1_000)]
    with TopologyTestDriver(builder, session=spark) as driver:
        given = [TestRecord(key="k", value=value, timestamp=1) for value in sent]
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(given, batch=None)
        found = [value for _, value in driver.create_output_topic("out", TEXT, TEXT).read_key_values()]
    assert found == sent


class NamesItsTopic(PassesOn):
    def process(self, record: Any) -> None:
        self._context.forward(record.with_value(f"{record.value} {self._context.record_metadata.topic}"))


def test_a_record_that_becomes_very_many_keeps_its_place_and_its_topic(spark: SparkSession) -> None:
    many = 70_000
    builder = StreamsBuilder()
    stream = builder.stream(["in", "other"], key=TEXT, value=TEXT)
    each = stream.flat_map_values(lambda value: F.transform(F.sequence(F.lit(1), F.lit(many)), lambda _: value))
    each.process(NamesItsTopic, key=TEXT, value=TEXT).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        given = [TestRecord(key="k", value=value, timestamp=1) for value in "ab"]
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(given, batch=None)
        found = [value for _, value in driver.create_output_topic("out", TEXT, TEXT).read_key_values()]
    assert found == ["a in"] * many + ["b in"] * many


def test_what_an_earlier_step_sends_stays_among_what_a_later_one_does(spark: SparkSession) -> None:
    """Both send to one topic; between them a layer makes two of each row."""
    builder = StreamsBuilder()
    first = processed(builder.stream("in", key=TEXT, value=TEXT))
    first.to("out", key=TEXT, value=TEXT)
    processed(first.flat_map_values(lambda value: F.array(F.upper(value), F.reverse(value)))).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        given = [TestRecord(key="k", value=value, timestamp=1) for value in ("ab", "cd", "ef")]
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(given, batch=None)
        found = [value for _, value in driver.create_output_topic("out", TEXT, TEXT).read_key_values()]
    assert found == ["ab", "AB", "ba", "cd", "CD", "dc", "ef", "EF", "fe"]


def test_a_record_knows_its_topic_among_more_than_a_hundred(spark: SparkSession) -> None:
    topics = [f"in-{number}" for number in range(130)]
    builder = StreamsBuilder()
    builder.stream(topics, key=TEXT, value=TEXT).process(NamesItsTopic, key=TEXT, value=TEXT).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        for topic in (topics[70], topics[129], topics[0]):
            driver.create_input_topic(topic, TEXT, TEXT).pipe_input("k", "v", 1)
        found = [value for _, value in driver.create_output_topic("out", TEXT, TEXT).read_key_values()]
    assert found == [f"v in-{number}" for number in (70, 129, 0)]


KEPT = Materialized(name="kept")

STARTS: dict[str, Callable[[KStream], KStream]] = {
    "the JVM": upper,
    "a step of Python": processed,
    "functions of batches": lambda s: s.peek(per_record(lambda _key, _value: None)),
    "a table": lambda s: s.to_table(store=KEPT).to_stream(),
    "a table that forwards every change": lambda s: s.to_table(store=EVERY).to_stream(),
}
TWICE: dict[str, Callable[[KStream], KStream]] = {
    "a sink": lambda twice: twice,
    "the JVM": upper,
    "a step of Python": processed,
    "functions of batches": STARTS["functions of batches"],
    "a count": lambda twice: (
        twice.group_by_key().count(store="counted").to_stream().map_values(lambda count: count.cast("string"))
    ),
}


@pytest.mark.parametrize("end", TWICE)
@pytest.mark.parametrize("start", STARTS)
def test_a_record_that_comes_by_two_ways_comes_twice(spark: SparkSession, start: str, end: str) -> None:
    """Though nothing but merges is on them. One way that a program names twice is one, as in Kafka Streams."""
    builder = StreamsBuilder()
    stream = STARTS[start](builder.stream("in", key=TEXT, value=TEXT))
    other = builder.stream("other", key=TEXT, value=TEXT).to_table(store="others").to_stream()
    TWICE[end](stream.merge(stream.merge(other).merge(stream.merge(stream)))).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        sent = [TestRecord(key, f"{key}1") for key in SENT]
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(sent, batch=None)
        made = driver.create_output_topic("out", TEXT, TEXT).read_key_values()
    is_upper = "the JVM" in (start, end)
    once = [(key, f"{key}1".upper() if is_upper else f"{key}1") for key in SENT]
    assert made == ([(key, "3") for key in SENT] if end == "a count" else [each for each in once for _ in range(3)])
