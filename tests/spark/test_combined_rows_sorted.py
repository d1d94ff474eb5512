"""Rows that the JVM combines come in another order where Spark sorts them, short of memory or by its settings: none is lost."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from tidemill import Serdes, StreamsBuilder, of_columns
from tidemill.spark.engine import BatchEngine
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG = Serdes.string(), Serdes.long()

SORTS = {
    "as it is": {},
    "merges of more than two keys": {"spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "2"},
    "merges": {"spark.sql.execution.useObjectHashAggregateExec": "false"},
    "sums without memory for more than two keys": {"spark.sql.TungstenAggregate.testFallbackStartsAt": "1, 2"},
}


@pytest.mark.parametrize("settings", SORTS.values(), ids=SORTS)
def test_counts_and_merges_are_the_same_where_spark_sorts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str]
) -> None:
    run = BatchEngine.run
    monkeypatch.setattr(BatchEngine, "run", lambda self, asked, patience=1: run(self, asked, patience, has_backlog=True))
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=TEXT, value=LONG)
    numbers.map_values(lambda n: n + 1).to("passed", key=TEXT, value=LONG)
    by_last_digit = numbers.group_by(lambda key, n: (n % 10).cast("string"), key=TEXT, value=LONG)
    by_last_digit.count(store="counts").to_stream().to("counts", value=LONG)
    numbers.group_by_key().reduce(of_columns(lambda old, new: old + new), store="sums").to_stream().to("sums", value=LONG)
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        with TopologyTestDriver(builder, session=spark) as driver:
            topic = driver.create_input_topic("in", TEXT, LONG)
            for first in (0, 40):
                topic.pipe_records([TestRecord(f"k{n % 7}", n) for n in range(first, first + 40)], batch=None)
            outputs = {name: driver.create_output_topic(name, TEXT, LONG) for name in ("passed", "counts", "sums")}
            found = {name: output.read_key_values() for name, output in outputs.items()}
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert found["passed"] == [(f"k{n % 7}", n + 1) for n in range(80)]
    assert dict(found["counts"]) == {str(digit): 8 for digit in range(10)}
    assert dict(found["sums"]) == {f"k{key}": sum(range(key, 80, 7)) for key in range(7)}
