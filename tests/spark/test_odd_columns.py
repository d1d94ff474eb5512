"""Columns that were lost, refused or read in another way than Python functions read them: names, types, and what may be null."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from tests.spark.plan_harness import Program, Record
from tidemill import Serdes, StreamsBuilder, of_columns, per_record
from tidemill.errors import StopError, TopologyError
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG, DOUBLE = Serdes.string(), Serdes.long(), Serdes.double()
ODD = Serdes.json("_corrupt_record string, __ string, `a.b` string, at timestamp, `select` struct<`end`:string>")
BEST = Serdes.json("points bigint, per map<string,bigint>")
LISTS = Serdes.json("least bigint, numbers array<bigint>")
_SETTINGS = {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.ansi.enforceReservedKeywords": "true"}


def numbers_by_name(session: SparkSession) -> Any:
    rows = [(1.0, "A"), (float("nan"), "none"), (-0.0, "zero"), (None, "null")]
    return session.createDataFrame(rows, "`x.y` double, `b``q` string")


def _sum_from(key: Column, value: Column) -> Column:
    least = F.filter(value["numbers"], lambda number: number >= value["least"])
    return F.aggregate(least, F.lit(0).cast("bigint"), lambda total, number: total + number * F.length(key) + value["least"])


@pytest.fixture(scope="module")
def driver(spark: SparkSession) -> Iterator[TopologyTestDriver]:
    builder = StreamsBuilder()
    odd = builder.stream("odd", key=TEXT, value=ODD)
    odd.filter(lambda key, value: value["at"] > F.lit("1969-01-01T00:00:00Z").cast("timestamp_ltz")).to("kept")
    best = builder.stream("best", key=TEXT, value=BEST)
    most = best.group_by_key().reduce(of_columns(lambda old, new: F.when(new["points"] > old["points"], new).otherwise(old)))
    most.to_stream().to("most", key=TEXT, value=BEST)
    nothing = F.create_map().cast("map<string,bigint>")
    best.merge(best.map_values(lambda _: F.struct(F.lit(7).cast("bigint").alias("points"), nothing.alias("per")))).to("merged")
    numbers = builder.stream("numbers", key=TEXT, value=LONG)
    doubled = numbers.map_values(lambda n: n * 2)
    doubled.flat_map(lambda key, n: F.array(F.when(n > 0, F.struct(n, n)))).to("pairs", key=LONG, value=LONG)
    texts = builder.stream("texts", key=TEXT, value=TEXT)
    named = texts.join_dataframe(numbers_by_name, lambda value, row: row["x.y"], on="b`q", selector=lambda key, value: value)
    named.to("named", value=DOUBLE)
    doubles = builder.stream("doubles", key=TEXT, value=DOUBLE)
    found = doubles.join_dataframe(numbers_by_name, lambda value, row: row["b`q"], on="x.y", selector=lambda key, value: value)
    found.to("looked-up", value=TEXT)
    lists = builder.stream("lists", key=TEXT, value=LISTS)
    lists.map(lambda key, value: (F.upper(key), _sum_from(key, value))).to("sums", key=TEXT, value=LONG)
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        with TopologyTestDriver(builder, session=spark) as made:
            yield made
    finally:
        for name in _SETTINGS:
            spark.conf.unset(name)


def test_fields_of_any_name_keep_their_values_and_times_are_instants_whatever_the_session_calls_them(
    driver: TopologyTestDriver,
) -> None:
    at = datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc)
    value = {"_corrupt_record": "a", "__": "b", "a.b": "c", "at": at, "select": {"end": "d"}}
    driver.create_input_topic("odd", TEXT, ODD).pipe_input("k", value)
    assert driver.create_output_topic("kept", TEXT, ODD).read_key_values() == [("k", value)]


def test_values_with_maps_are_merged_in_their_order(driver: TopologyTestDriver) -> None:
    values = [{"points": n, "per": {"n": n, "at": at}} for at, n in enumerate([1, 3, 3, 2])]
    driver.create_input_topic("best", TEXT, BEST).pipe_records([TestRecord("k", value) for value in values], batch=None)
    assert driver.create_output_topic("most", TEXT, BEST).read_key_values() == [("k", values[1])]
    merged = driver.create_output_topic("merged", TEXT, BEST).read_key_values()
    assert merged == [pair for value in values for pair in (("k", {"points": 7, "per": {}}), ("k", value))]


def test_the_lambda_of_a_higher_order_function_gets_the_key_and_the_value_as_they_came(driver: TopologyTestDriver) -> None:
    """Not as what the same projection makes of them: Spark took a column of a lambda for one, and the sum was null."""
    driver.create_input_topic("lists", TEXT, LISTS).pipe_input("ab", {"least": 3, "numbers": [1, 3, 5]})
    assert driver.create_output_topic("sums", TEXT, LONG).read_key_values() == [("AB", (3 + 5) * 2 + 3 * 2)]


def test_the_sides_of_a_pair_may_be_one_column_and_no_pair_is_null(driver: TopologyTestDriver) -> None:
    numbers = driver.create_input_topic("numbers", TEXT, LONG)
    numbers.pipe_input("k", 2)
    assert driver.create_output_topic("pairs", LONG, LONG).read_key_values() == [(4, 4)]
    with pytest.raises(StopError, match=r"flat_map gave null in an array, expected a struct\(key, value\)"):
        numbers.pipe_input("k", -2)


def test_a_data_frames_column_may_have_any_name(driver: TopologyTestDriver) -> None:
    driver.create_input_topic("texts", TEXT, TEXT).pipe_input("k", "A")
    assert driver.create_output_topic("named", TEXT, DOUBLE).read_key_values() == [("k", 1.0)]


def test_data_frames_are_looked_up_by_numbers_as_spark_compares_them(driver: TopologyTestDriver) -> None:
    records = [TestRecord("k", number) for number in (0.0, float("nan"), None, 2.0)]
    driver.create_input_topic("doubles", TEXT, DOUBLE).pipe_records(records, batch=None)
    assert driver.create_output_topic("looked-up", TEXT, TEXT).read_key_values() == [("k", "zero"), ("k", "none")]


def test_a_udf_beside_what_the_jvm_sums_and_merges(spark: SparkSession, tmp_path: Any) -> None:
    """Behind a UDF Spark does not know that there is one partition."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=LONG).map_values(F.udf(lambda n: n + 1, LongType()))
    stream.group_by(lambda key, n: (n % 2).cast("string"), key=TEXT, value=LONG).count().to_stream().to("counts", value=LONG)
    stream.group_by_key(key=TEXT, value=LONG).reduce(of_columns(lambda old, new: old + new)).to_stream().to("sums", value=LONG)
    program = Program(spark, builder.build(), tmp_path, default=TEXT)
    program.pipe([("in", Record(b"k", n.to_bytes(8, "big"))) for n in range(5)])
    last = {
        topic: {record.key: int.from_bytes(record.value or b"", "big") for record in program.outputs[topic]}
        for topic in ("counts", "sums")
    }
    assert last == {"counts": {b"0": 2, b"1": 3}, "sums": {b"k": 15}}


@pytest.mark.parametrize("is_read_here", [True, False])
def test_a_map_is_not_written_under_a_name_that_no_reader_takes(spark: SparkSession, is_read_here: bool) -> None:
    builder = StreamsBuilder()
    named = builder.stream("in", key=TEXT, value=TEXT).map_values(
        lambda v: F.struct(F.create_map(F.repeat(v, F.lit(25_000)), F.lit(1)).alias("m"))
    )
    if is_read_here:
        named = named.map_values(per_record(lambda value: value, Serdes.json("m map<string,int>")))
    named.to("out", key=TEXT, value=Serdes.json("m map<string,int>"))
    with TopologyTestDriver(builder, session=spark) as made:
        texts = made.create_input_topic("in", TEXT, TEXT)
        texts.pipe_value("ab")
        [(_, longest)] = made.create_output_topic("out", TEXT, Serdes.json("m map<string,int>")).read_key_values()
        assert longest == {"m": {"ab" * 25_000: 1}}
        with pytest.raises(StopError, match="under a name of more than 50000 bytes, which no reader takes"):
            texts.pipe_value("a\u00e9")


def test_fields_that_differ_in_case_only_are_read_and_written_where_no_function_names_one(spark: SparkSession) -> None:
    """Whatever their types: of times, floats and required fields each is looked at."""
    inner = "struct<t: timestamp, T: timestamp>"
    both = Serdes.json(f"a double, A double, n int not null, N int not null, b {inner}, B {inner}, x string")
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=both)
    stream.filter(lambda key, value: value["x"] == "kept").to("out", key=TEXT, value=both)
    pair = stream.map_values(lambda value: F.named_struct(F.lit("X"), F.length(value["x"]), F.lit("x"), value["x"]))
    pair.to("pairs", key=TEXT, value=Serdes.json("x string, X int"))
    at = [datetime(2026, 1, day, tzinfo=timezone.utc) for day in (1, 2, 3, 4)]
    one = {"a": 0.5, "A": None, "n": 1, "N": 2, "b": {"t": at[0], "T": at[1]}, "B": {"t": at[2], "T": at[3]}, "x": "kept"}
    with TopologyTestDriver(builder, session=spark) as made:
        made.create_input_topic("in", TEXT, both).pipe_value(one)
        assert made.create_output_topic("out", TEXT, both).read_value() == one
        assert made.create_output_topic("pairs", TEXT, Serdes.json("x string, X int")).read_value() == {"x": "kept", "X": 4}


def test_fields_that_differ_in_case_only_are_refused_with_what_to_do_or_told_apart(spark: SparkSession) -> None:
    both = Serdes.json("a string, A string")
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=both).map_values(lambda value: value["A"]).to("out", key=TEXT, value=TEXT)
    message = "called 'A' but for the case of their letters.*set spark.sql.caseSensitive to true"
    with pytest.raises(TopologyError, match=message), TopologyTestDriver(builder, session=spark):
        pass
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with TopologyTestDriver(builder, session=spark) as made:
            made.create_input_topic("in", TEXT, both).pipe_value({"a": "1", "A": "2"})
            assert made.create_output_topic("out", TEXT, TEXT).read_value() == "2"
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_columns_of_a_data_frame_that_differ_in_case_only_are_refused_with_what_to_do(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    texts = builder.stream("in", key=TEXT, value=TEXT)
    frame = spark.createDataFrame([("k", 1, 2)], "id string, n int, N int")
    texts.join_dataframe(frame, lambda value, row: row["id"], on="id").to("out", value=TEXT)
    message = r"Spark takes the DataFrame's columns 'n', 'N' for one: .*frame\.toDF"
    with pytest.raises(TopologyError, match=message), TopologyTestDriver(builder, session=spark):
        pass


def test_a_column_of_no_type_is_computed_whether_or_not_it_may_fail(spark: SparkSession) -> None:
    """Of ``F.raise_error`` and ``F.assert_true`` null was written, as of ``F.lit(None)``."""
    checked = Serdes.json("n bigint, is_checked string")
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=TEXT, value=LONG)
    numbers.map_values(lambda number: F.assert_true(number > 0)).to("nothing", key=TEXT, value=TEXT)
    struct = numbers.map_values(lambda n: F.struct(n.alias("n"), F.assert_true(n < 9).alias("is_checked")))
    struct.to("checked", key=TEXT, value=checked)
    with TopologyTestDriver(builder, {"processing.exception.handler": "continue"}, session=spark) as made:
        made.create_input_topic("in", TEXT, LONG).pipe_values([5, -1, 10])
        assert made.create_output_topic("nothing", TEXT, TEXT).read_values() == [None]
        assert made.create_output_topic("checked", TEXT, checked).read_values() == [{"n": 5, "is_checked": None}]


def test_an_empty_map_and_an_empty_list_have_the_types_that_the_schema_gives_them(spark: SparkSession) -> None:
    kinds = Serdes.json("counts map<string,bigint>, names array<string>, parts map<string,struct<n:bigint>>")
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=TEXT, value=LONG)
    empty = numbers.map_values(
        lambda _: F.struct(F.create_map().alias("counts"), F.array().alias("names"), F.create_map().alias("parts"))
    )
    empty.to("out", key=TEXT, value=kinds)
    with TopologyTestDriver(builder, session=spark) as made:
        made.create_input_topic("in", TEXT, LONG).pipe_values([1])
        assert made.create_output_topic("out", TEXT, kinds).read_values() == [{"counts": {}, "names": [], "parts": {}}]
