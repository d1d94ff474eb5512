"""What a filter drops reaches nothing behind it: no function of Columns, and no check of what is written."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder
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
