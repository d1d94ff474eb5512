"""Stores of tables made by Columns that processors have, too: these see the rows as they are, and the changelog has all rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import KTable, Serdes, StreamsBuilder, of_columns, per_record
from tidemill.errors import TopologyError
from tidemill.spark.plan.stages import stages
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark
TEXT, BYTES = Serdes.string(), Serdes.bytes()


class Reads:
    """Forwards the row of each key; writes one for the key "new"."""

    def init(self, context: Any) -> None:
        self._context, self._rows = context, context.store("rows")

    def process(self, record: Any) -> None:
        if record.key == "new":
            self._rows.put("new", record.value)
        self._context.forward(record.with_value(str(self._rows.get(record.key))))


def filtered(table: KTable, *, by_columns: bool) -> KTable:
    passes: Any = (lambda _, v: F.length(v) > 1) if by_columns else per_record(lambda _, v: len(v) > 1)
    return table.filter(passes, store="rows")


def mapped(table: KTable, *, by_columns: bool) -> KTable:
    return table.map_values(F.upper if by_columns else per_record(str.upper, TEXT), store="rows")


def written(spark: SparkSession, table: Any, *, by_columns: bool) -> list[Any]:
    builder = StreamsBuilder()
    table(builder.table("in", key=TEXT, value=TEXT), by_columns=by_columns).to_stream().to("out")
    builder.stream("asked", key=TEXT, value=TEXT).process(Reads, "rows", key=TEXT, value=TEXT).to("answers")
    with TopologyTestDriver(builder, {"application.id": "app"}, session=spark) as driver:
        rows, asked = (driver.create_input_topic(topic, TEXT, TEXT) for topic in ("in", "asked"))
        rows.pipe_records([TestRecord("a", "one", 1), TestRecord("b", "x", 2), TestRecord("a", "two", 3)], batch=3)
        asked.pipe_records([TestRecord("a", "?", 4), TestRecord("b", "?", 5), TestRecord("new", "row", 6)], batch=3)
        rows.pipe_records([TestRecord("a", None, 7), TestRecord("new", "more", 8)], batch=2)
        asked.pipe_records([TestRecord("a", "?", 9), TestRecord("new", "again", 10)], batch=2)
        topics = [driver.create_output_topic(topic, BYTES, BYTES) for topic in ("answers", "out", "app-rows-changelog")]
        return [*(topic.read_records() for topic in topics), list(driver.store("rows").all())]


@pytest.mark.parametrize("table", [filtered, mapped])
def test_rows_made_by_columns_are_shared_as_those_made_by_python(spark: SparkSession, table: Any) -> None:
    answers, out, changelog, rows = found = written(spark, table, by_columns=True)
    assert found == written(spark, table, by_columns=False)
    assert len(answers) == 5
    assert out
    assert rows
    kept = {b"a", b"new"} | ({b"b"} if table is mapped else set())
    assert {record.key for record in changelog} == kept


def test_rows_reduced_by_columns_are_not_shared() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key(key=TEXT, value=TEXT)
    grouped.reduce(of_columns(lambda one, other: F.concat(one, other)), store="rows")  # noqa: PLW0108
    builder.stream("asked", key=TEXT, value=TEXT).process(Reads, "rows", key=TEXT, value=TEXT).to("answers")
    with pytest.raises(TopologyError, match=r"KSTREAM-PROCESSOR-.* needs that table's .*: reduce with a plain Python function"):
        stages(builder.build())
