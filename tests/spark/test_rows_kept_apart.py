"""Rows that pass a layer which sums others come through it one by one, in their order, however alike they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.plan_harness import Program, Record
from tidemill import Materialized, Serdes, StreamsBuilder, TimeWindows, per_record

pytestmark = pytest.mark.spark
STRING, LONG = Serdes.string(), Serdes.long()


def test_equal_records_of_one_input_record_are_all_there(spark: SparkSession, tmp_path: Path) -> None:
    """Two Python steps: what the first sends, and what it hands on to columns, passes the layer in which words are counted."""
    builder = StreamsBuilder()
    lines = builder.stream("in", key=STRING, value=STRING)
    twice = lines.flat_map_values(per_record(lambda value: [value, value, "b", value], STRING))
    twice.to("sent", key=STRING, value=STRING)
    columns = twice.filter(lambda key, value: F.length(value) > 0)
    columns.to("columns", key=STRING, value=STRING)
    columns.group_by_key(key=STRING, value=STRING).count(store="counts").to_stream().to("counts", key=STRING, value=LONG)
    program = Program(spark, builder.build(), tmp_path)
    program.pipe([("in", Record(b"k", b"a", 1))])
    found = {topic: [record.value for record in records] for topic, records in program.outputs.items()}
    assert found["sent"] == found["columns"] == [b"a", b"a", b"b", b"a"]
    assert found["counts"][-1] == LONG.serialize(4)


def test_the_changelog_of_an_earlier_step_keeps_its_order(spark: SparkSession, tmp_path: Path) -> None:
    """Each update of a key in a window is logged where the store has no cache; the last one in the log is what a restored store
    holds."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=STRING, value=STRING).group_by_key(key=STRING, value=STRING)
    windows = grouped.windowed_by(TimeWindows.of_size(1_000, grace=0))
    store = Materialized(name="texts", caching=False)
    joined = windows.aggregate(lambda: "", lambda key, value, text: text + value, store=store, value=STRING).to_stream()
    texts = joined.filter(lambda key, value: F.length(value) > 0)
    texts.group_by(lambda key, value: value, key=STRING, value=STRING).count(store="counts")
    program = Program(spark, builder.build(), tmp_path)
    assert len(program.compiled.steps) == 2
    values = [b"%d" % (number % 10) for number in range(40)]
    program.pipe([("in", Record(b"k", value, number)) for number, value in enumerate(values)])
    logged = [record.value for record in program.outputs["app-texts-changelog"]]
    assert logged == [b"".join(values[: number + 1]) for number in range(len(values))]


@pytest.mark.parametrize("first_step", [True, False], ids=["found by columns", "found by operators"])
def test_a_record_that_can_not_be_read_is_named_by_its_topic_where_rows_multiply(
    spark: SparkSession, tmp_path: Path, first_step: bool
) -> None:
    builder = StreamsBuilder()
    numbers = builder.stream(["one", "two"], key=STRING, value=LONG)
    if first_step:
        numbers.filter(lambda key, value: value > 0).to("left", key=STRING, value=LONG)
        numbers.filter(lambda key, value: value < 0).to("right", key=STRING, value=LONG)
    else:
        numbers.map_values(per_record(lambda value: value, LONG)).to("left", key=STRING, value=LONG)
    texts = builder.stream("texts", key=STRING, value=STRING)
    texts.flat_map_values(lambda value: F.split(value, " ")).group_by_key().count(store="counts")
    program = Program(spark, builder.build(), tmp_path)
    with pytest.raises(AssertionError, match="two-0 at offset 0: found a key of 1 bytes and a value of 3 bytes"):
        program.pipe([("texts", Record(b"k", b"a b", 1)), ("two", Record(b"k", b"bad", 2))])


def test_a_count_has_the_headers_of_its_last_record(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by_key().count().to_stream().to("counts", key=STRING, value=LONG)
    program = Program(spark, builder.build(), tmp_path)
    traced = (("trace", b"1"),)
    keys = [(b"z", ()), (b"y", traced), (b"x", ()), (b"z", traced), (b"y", ()), (b"x", ())]
    program.pipe([("in", Record(key, b"v", at, headers)) for at, (key, headers) in enumerate(keys)])
    two = LONG.serialize(2)
    found = [(record.key, record.value, record.headers) for record in program.outputs["counts"]]
    assert sorted(found) == [(b"x", two, ()), (b"y", two, ()), (b"z", two, traced)]
