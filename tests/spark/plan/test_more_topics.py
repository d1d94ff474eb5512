"""A compiled topology that gets more topics for its patterns has the specs of one that was compiled with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidemill import (
    JoinWindows,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    per_record,
)
from tidemill.spark.plan.compiled_topology import Alignment, CompiledTopology, compile_topology
from tidemill.topology.patterns import with_topics_of_patterns

pytestmark = pytest.mark.spark
TEXT = Serdes.string()


class Forwarding(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        self._context.forward(record)


def counted(builder: StreamsBuilder, stream: Any) -> None:
    stream.filter(lambda key, value: key.isNotNull()).group_by_key().windowed_by(TimeWindows.of_size(10)).count(store="n")


def joined(builder: StreamsBuilder, stream: Any) -> None:
    table = builder.table("table", key=TEXT, value=TEXT, store="t")
    left = stream.join(table, per_record(lambda one, other: f"{one}{other}"))
    windows = JoinWindows.of_time_difference(10)
    right = builder.stream("right", key=TEXT, value=TEXT)
    serdes = StreamJoined(key=TEXT, value=TEXT, other_value=TEXT)
    left.join(right, per_record(lambda one, other: one), windows, joined=serdes).to("out", key=TEXT, value=TEXT)


def repartitioned(builder: StreamsBuilder, stream: Any) -> None:
    stream.group_by(lambda key, value: value, key=TEXT, value=TEXT).count().to_stream().to("out", key=TEXT, value=Serdes.long())


def processed(builder: StreamsBuilder, stream: Any) -> None:
    stream.process(Forwarding).to("out", key=TEXT, value=TEXT)


def to_a_function(builder: StreamsBuilder, stream: Any) -> None:
    stream.foreach_batch(seen)


def seen(_frame: object, _batch: object) -> None:
    """Kept by name, so that it equals itself in both programs."""


@pytest.mark.parametrize("program", [counted, joined, repartitioned, processed, to_a_function])
def test_the_specs_are_those_of_a_topology_compiled_with_all_topics(
    spark: SparkSession, program: Callable[[StreamsBuilder, Any], None]
) -> None:
    builder = StreamsBuilder()
    program(builder, builder.stream(re.compile("in-.*"), key=TEXT, value=TEXT))
    built = builder.build()

    def compiled(*topics: str) -> CompiledTopology:
        topology = with_topics_of_patterns(built, "app", [*topics, "table", "right", "out"])
        return compile_topology(spark, topology, "app", alignment=Alignment(by_time=True))

    more = with_topics_of_patterns(built, "app", ["in-a", "in-b", "table", "right", "out"])
    found, expected = compiled("in-b").with_topics(more), compiled("in-a", "in-b")
    assert found.source == expected.source
    assert {*found.source.topics} >= {"in-a", "in-b"}
    assert found.steps == expected.steps
    assert found.batch_functions == expected.batch_functions
