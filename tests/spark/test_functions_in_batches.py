"""Vectorised and async functions, and classes as JSON, in plans with Columns and ``per_record``: all paths make the same."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import Annotated, Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder, of_columns, per_batch, per_record, per_record_async
from tidemill.errors import StopError, TopologyError
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG = Serdes.string(), Serdes.long()
READING = Serdes.json("sensor string NOT NULL, celsius double, at timestamp, price decimal(9,2)")


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float = 20.0
    price: Annotated[Decimal, "decimal(9,2)"] = Decimal("1.00")


def fahrenheit(values: pd.DataFrame) -> pd.DataFrame:
    return values.assign(celsius=values["celsius"] * 1.8 + 32)


async def slower_first(value: Any) -> Any:
    for _ in range(5 - len(value["sensor"]) % 5):
        await asyncio.sleep(0)
    return {**value, "sensor": value["sensor"].upper()}


async def above_one(value: int | None) -> int | None:
    return value if value is not None and value > 1 else None


async def named(value: Reading) -> str:
    return f"{type(value).__name__} {value.price}"


@pytest.fixture(scope="module")
def driver(spark: SparkSession) -> Any:
    """Several programs in one plan."""
    builder = StreamsBuilder()
    readings = builder.stream("readings", key=TEXT, value=READING)
    readings.map_values(per_batch(fahrenheit, READING)).to("batch")
    readings.map_values(lambda v: v.withField("celsius", v["celsius"] * 1.8 + 32)).to("columns", value=READING)
    readings.map_values(per_record(lambda v: {**v, "celsius": v["celsius"] * 1.8 + 32}, READING)).to("record")
    readings.map_values(per_record_async(slower_first, READING)).peek(per_batch(lambda keys, values: None)).to("async")
    # Columns, then a batch, a coroutine and a record, Columns behind them
    (
        readings.filter(lambda _, v: v["celsius"] > 0)
        .map_values(per_batch(fahrenheit, READING))
        .map_values(per_record_async(slower_first, READING))
        .map_values(per_record(lambda v: {**v, "sensor": v["sensor"] + "!"}, READING))
        .filter(per_batch(lambda _, values: values["celsius"] < 100))
        .map_values(lambda v: F.concat(v["sensor"], F.lit(" "), v["celsius"].cast("string")))
        .to("chain", value=TEXT)
    )
    classes = builder.stream("classes", key=TEXT, value=Serdes.json(Reading))
    classes.map_values(lambda v: v["price"].cast("string")).to("prices", value=TEXT)
    classes.map_values(per_record(lambda v: f"{type(v).__name__} {v.price}", TEXT)).to("instances")
    dear = classes.filter(lambda _, v: v["price"] > 2)
    dear.map_values(per_record(lambda v: f"{type(v).__name__} {v.price}", TEXT)).to("dear")
    dear.map_values(per_record_async(named, TEXT)).to("dear-async")
    sensors = dear.group_by_key().aggregate(lambda: "", lambda _, v, names: names + v.sensor, value=TEXT)
    sensors.to_stream().to("sensors", value=TEXT)
    counted = classes.group_by_key().reduce(of_columns(lambda old, new: F.when(new["price"] > old["price"], new).otherwise(old)))
    counted.to_stream().to("dearest", key=TEXT, value=Serdes.json(Reading))
    numbers = builder.stream("numbers", key=TEXT, value=LONG)
    numbers.map_values(per_batch(lambda values: values.cumsum(), LONG)).group_by_key().count(store="n").to_stream().to(
        "counts", key=TEXT, value=LONG
    )
    config = {"deserialization.exception.handler": "continue"}
    with TopologyTestDriver(builder, config, session=spark) as made:
        yield made


def reading(at: int) -> dict[str, Any]:
    time = datetime(2026, 3, 1, at, tzinfo=timezone.utc)
    return {"sensor": "s" * (at + 1), "celsius": at * 10.0 - 5, "at": time, "price": Decimal(at).scaleb(-2)}


def test_a_batch_columns_and_single_records_give_the_same(driver: TopologyTestDriver) -> None:
    given = [(f"k{at}", reading(at)) for at in range(6)]
    records = [TestRecord(key, value) for key, value in given]
    driver.create_input_topic("readings", TEXT, READING).pipe_records(records, batch=None)
    found = {name: driver.create_output_topic(name, TEXT, READING).read_key_values() for name in ("batch", "columns", "record")}
    assert found["batch"] == found["columns"] == found["record"]
    assert found["batch"] == [(key, {**value, "celsius": value["celsius"] * 1.8 + 32}) for key, value in given]
    answers = driver.create_output_topic("async", TEXT, READING).read_key_values()
    assert answers == [(key, {**value, "sensor": value["sensor"].upper()}) for key, value in given]
    chain = driver.create_output_topic("chain", TEXT, TEXT).read_key_values()
    assert chain == [(f"k{at}", f"{'S' * (at + 1)}! {(at * 10.0 - 5) * 1.8 + 32}") for at in range(1, 5)]


def test_functions_of_columns_see_the_fields_of_instances(driver: TopologyTestDriver) -> None:
    given = driver.create_input_topic("classes", TEXT, Serdes.json("sensor string, price decimal(12,3)"))
    given.pipe_input("a", {"sensor": "x"})
    given.pipe_input("a", {"sensor": "y", "price": Decimal("2.5")})
    before = driver.skipped
    given.pipe_input("a", {"sensor": "z", "price": Decimal("2.505")})  # more digits than the class has
    given.pipe_input("a", {"price": Decimal("9")})  # without the field that it requires
    assert driver.skipped - before == 2
    assert driver.create_output_topic("prices", TEXT, TEXT).read_key_values() == [("a", "1.00"), ("a", "2.50")]
    assert driver.create_output_topic("instances", TEXT, TEXT).read_key_values() == [("a", "Reading 1.00"), ("a", "Reading 2.50")]
    for topic in ("dear", "dear-async"):
        assert driver.create_output_topic(topic, TEXT, TEXT).read_key_values() == [("a", "Reading 2.50")]
    assert driver.create_output_topic("sensors", TEXT, TEXT).read_key_values() == [("a", "y")]
    dearest = driver.create_output_topic("dearest", TEXT, Serdes.json(Reading)).read_key_values()
    assert dearest == [("a", Reading("x")), ("a", Reading("y", price=Decimal("2.50")))]


def test_a_count_behind_a_batch(driver: TopologyTestDriver) -> None:
    records = [TestRecord("a", 1), TestRecord("b", 2), TestRecord("a", 3)]
    driver.create_input_topic("numbers", TEXT, LONG).pipe_records(records, batch=None)
    counts = dict(driver.create_output_topic("counts", TEXT, LONG).read_key_values())
    assert counts == {"a": 2, "b": 1}


def test_nulls_behind_functions_of_batches_are_not_counted(spark: SparkSession) -> None:
    """As behind Columns and ``per_record``: dropped, and counted as such."""
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=TEXT, value=LONG)
    of_columns_ = numbers.map_values(lambda n: F.when(n > 1, n))
    ways = {
        "columns": of_columns_,
        "peek": of_columns_.peek(per_batch(lambda keys, values: None)),
        "map": numbers.map_values(per_batch(lambda values: values.where(values > 1).astype("Int64"), LONG)),
        "async": numbers.map_values(per_record_async(above_one, LONG)),
        "reduce": numbers.group_by_key().reduce(lambda old, new: new if new > 1 else None).to_stream(),
    }
    for name, stream in ways.items():
        stream.group_by_key(key=TEXT, value=LONG).count(store=name).to_stream().to(name, value=LONG)
    with TopologyTestDriver(builder, session=spark) as run:
        given = [("a", 2), ("b", 1), ("a", 1), ("a", None), ("c", 3), ("a", 4)]
        run.create_input_topic("in", TEXT, LONG).pipe_records([TestRecord(key, value) for key, value in given], batch=1)
        counts = {name: run.create_output_topic(name, TEXT, LONG).read_key_values_to_dict() for name in ways}
        assert run.dropped == 4 * 3 + 1 + 1  # each way's nulls; the null that is reduced, and what is reduced to null
    assert counts.pop("reduce") == {"a": 2, "b": 1, "c": 1}  # the first value is the aggregate
    assert counts == {name: {"a": 2, "c": 1} for name in counts}


@pytest.mark.parametrize(("made", "problem"), [
    (lambda v: F.struct(v.alias("n"), F.lit(None).cast("string").alias("s")), "the field s is null, expected a value"),
    (lambda v: F.struct(v.alias("n"), F.lit("x").alias("s"), F.make_timestamp_ntz(F.lit(12000), *[F.lit(1)] * 5).alias("t")),
     "a timestamp_ntz is beyond the years 1 to 9999"),
])  # fmt: skip
def test_a_value_that_the_schema_does_not_allow_is_not_written(spark: SparkSession, made: Any, problem: str) -> None:
    builder = StreamsBuilder()
    written = Serdes.json("n bigint, s string NOT NULL, t timestamp_ntz")
    builder.stream("in", key=TEXT, value=LONG).map_values(made).to("out", value=written)
    with TopologyTestDriver(builder, session=spark) as driver, pytest.raises(StopError, match=problem):
        driver.create_input_topic("in", TEXT, LONG).pipe_value(1)


def test_a_column_that_lacks_a_required_field_is_refused_when_the_plan_is_built(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=LONG)
    stream.map_values(lambda v: F.struct(v.alias("n"))).to("out", value=Serdes.json("n bigint, s string NOT NULL"))
    with pytest.raises(TopologyError, match="the column lacks the field 's', which the serde's schema requires"):
        TopologyTestDriver(builder, session=spark)
