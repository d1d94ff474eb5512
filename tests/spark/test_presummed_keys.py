"""Counting by keys that Spark's grouping would change."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.plan_harness import Program, Record
from tidemill import Serdes, StreamsBuilder

pytestmark = pytest.mark.spark


def test_zero_and_negative_zero_are_two_keys_as_in_kafka(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=Serdes.double(), value=Serdes.string())
    numbers.group_by_key().count().to_stream().to("counts", value=Serdes.long())
    words = builder.stream("words", key=Serdes.string(), value=Serdes.string())
    words.group_by_key().count().to_stream().to("word-counts", value=Serdes.long())  # summed in the same layer
    program = Program(spark, builder.build(), tmp_path)
    keys = [struct.pack(">d", number) for number in (0.0, -0.0, 1.5, -0.0, float("nan"))]
    program.pipe([*(("in", Record(key, b"v")) for key in keys), ("words", Record(b"a", b"v")), ("words", Record(b"a", b"v"))])
    counts = {record.key: int.from_bytes(record.value or b"", "big") for record in program.outputs["counts"]}
    assert counts == {keys[0]: 1, keys[1]: 2, keys[2]: 1, keys[4]: 1}
    assert [(r.key, int.from_bytes(r.value or b"", "big")) for r in program.outputs["word-counts"]] == [(b"a", 2)]
