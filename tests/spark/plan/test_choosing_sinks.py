"""Sinks whose topic a function chooses, behind nodes that run in a vectorised step."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.plan_harness import Program, Record
from tidemill import Serdes, StreamsBuilder

pytestmark = pytest.mark.spark


def test_the_function_gets_key_and_value_as_the_step_has_made_them(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", key=Serdes.string(), value=Serdes.string()).filter(lambda key, value: value != "no")
    words.group_by_key().count().to_stream().to(lambda key, value, record: f"{key}-{value}")
    program = Program(spark, builder.build(), tmp_path)
    program.pipe([("in", Record(b"a", value, at)) for at, value in enumerate([b"x", b"no", b"y"])])
    written = {topic: len(records) for topic, records in program.outputs.items() if not topic.endswith("-changelog")}
    assert written == {"a-2": 1}
