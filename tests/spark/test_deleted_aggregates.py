"""Aggregates that a function deletes: no tombstone for a row that was never there, below Columns as below Python."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import KGroupedStream, KTable, Serdes, StreamsBuilder, per_record
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark
TEXT, LONG = Serdes.string(), Serdes.long()
SENT = (
    ("a", "x", 5), ("a", "1", 3), ("b", "1", 6), ("a", "x", 4), ("b", "x", 7), ("b", "x", 8), ("c", "x", 9), ("a", "x", 9),
    ("a", "2", 10), ("a", "3", 11), ("a", "x", 2),
)  # fmt: skip
GIVEN = [TestRecord(key=key, value=value, timestamp=at) for key, value, at in SENT]


def aggregated(grouped: KGroupedStream) -> KTable:
    return grouped.aggregate(lambda: 0, lambda _, v, total: None if v == "x" else total + int(v), value=LONG, store="n")


def reduced(grouped: KGroupedStream) -> KTable:
    return grouped.reduce(lambda total, value: None if value == "x" else total + value, store="n")


def written(spark: SparkSession, mapped: Any, table: Any, batch: int) -> tuple[Any, ...]:
    """The records that were sent, and the rows."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).map_values(mapped).group_by_key(key=TEXT, value=TEXT)
    table(grouped).to_stream().to("out")
    with TopologyTestDriver(builder, session=spark) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(GIVEN, batch=batch)
        records = driver.create_output_topic("out", TEXT, Serdes.bytes()).read_records()
        return [(record.key, record.value, record.timestamp) for record in records], list(driver.store("n").all())


@pytest.mark.parametrize("batch", [1, 3, 11])
@pytest.mark.parametrize("table", [aggregated, reduced])
def test_below_columns_as_below_python(spark: SparkSession, table: Any, batch: int) -> None:
    """Below Kafka Streams' record caches, too, a row is not deleted that the store never had."""
    records, rows = written(spark, F.trim, table, batch)
    expected, same_rows = written(spark, per_record(str.strip, TEXT), table, batch)
    assert (records, rows) == (expected, same_rows)
    assert table is reduced or ("c", None, 9) not in records
