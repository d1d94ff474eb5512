"""Punctuators by stream time run between source records, as in Kafka Streams: never between two records that functions of Columns
have made of one, nor before a record has come to all nodes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import PunctuationType, Record, Serdes, Stores, StreamsBuilder
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark
TEXT, LONG = Serdes.string(), Serdes.long()


class Collects:
    """Forwards at each punctuation what has come since the last one."""

    def init(self, context: Any) -> None:
        self._context, self._seen = context, context.store("seen")
        context.schedule(10, PunctuationType.STREAM_TIME, self._tell)

    def process(self, record: Any) -> None:
        self._seen.put(record.value, record.timestamp)

    def _tell(self, now: int) -> None:
        seen = [value for value, _ in self._seen.all()]
        for value in seen:
            self._seen.delete(value)
        self._context.forward(Record("told", " ".join(seen), now))


class Puts:
    def init(self, context: Any) -> None:
        self._seen = context.store("seen")

    def process(self, record: Any) -> None:
        self._seen.put(record.value, record.timestamp)


def told(spark: SparkSession, builder: StreamsBuilder, batch: int | None) -> list[tuple[str, int]]:
    with TopologyTestDriver(builder, session=spark) as driver:
        source = driver.create_input_topic("in", TEXT, TEXT)
        source.pipe_records([TestRecord("k", "a b", 1), TestRecord("k", "c d", 11), TestRecord("k", "e f", 21)], batch=batch)
        records = driver.create_output_topic("out", TEXT, TEXT).read_records()
        return [(record.value, record.timestamp) for record in records]


@pytest.mark.parametrize("batch", [1, None])
def test_all_that_a_flat_map_of_columns_makes_of_a_record_comes_before_the_punctuator(
    spark: SparkSession, batch: int | None
) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", key=TEXT, value=LONG))
    words = builder.stream("in", key=TEXT, value=TEXT).flat_map_values(lambda value: F.split(value, " "))
    words.process(Collects, "seen", key=TEXT, value=TEXT).to("out")
    assert told(spark, builder, batch) == [("a b", 1), ("c d", 11), ("e f", 21)]


@pytest.mark.parametrize("batch", [1, None])
def test_a_record_comes_to_all_nodes_before_the_punctuator(spark: SparkSession, batch: int | None) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("seen", key=TEXT, value=LONG))
    lines = builder.stream("in", key=TEXT, value=TEXT)
    lines.process(Collects, "seen", key=TEXT, value=TEXT).to("out")
    lines.map_values(F.upper).process(Puts, "seen")
    assert told(spark, builder, batch) == [("A B a b", 1), ("C D c d", 11), ("E F e f", 21)]
