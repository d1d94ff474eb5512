"""Record headers between the steps of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.plan_harness import Program, Record
from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.errors import SerdeError
from tidemill.steps.rows.headers import packed, unpacked


@given(st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=40)), min_size=1))
def test_headers_come_back_as_they_were(headers: list[tuple[str, bytes | None]]) -> None:
    assert unpacked(packed(headers)) == headers


def test_no_headers_are_null() -> None:
    assert packed(None) is packed([]) is unpacked(None) is None


@pytest.mark.spark
def test_headers_pass_rows_that_are_summed_beside_them(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    lines = builder.stream("in", key=Serdes.string(), value=Serdes.string())
    lines.to("copy")
    lines.group_by_key().count().to_stream().to("counts", value=Serdes.long())
    program = Program(spark, builder.build(), tmp_path)
    headers = (("trace", b"1"), ("trace", b"\xff"))
    program.pipe([("in", Record(b"k", b"v", 1, headers)), ("in", Record(b"k", b"w", 2))])
    assert [record.headers for record in program.outputs["copy"]] == [headers, ()]
    assert [int.from_bytes(record.value or b"", "big") for record in program.outputs["counts"]] == [2]


@pytest.mark.spark
@pytest.mark.parametrize("by_columns", [True, False])
def test_a_header_that_says_a_record_is_a_sum_counts_for_nothing_when_it_comes_from_outside(
    spark: SparkSession, tmp_path: Path, by_columns: bool
) -> None:
    builder = StreamsBuilder()
    lines = builder.stream("in", key=Serdes.string(), value=Serdes.string())
    key = (lambda k, v: F.lit("all")) if by_columns else per_record(lambda k, v: "all", Serdes.string())
    lines.group_by(key, key=Serdes.string(), value=Serdes.string()).count().to_stream().to("counts", value=Serdes.long())
    program = Program(spark, builder.build(), tmp_path, handler="continue")
    forged = (("tidemill.summed", b""),)
    program.pipe([("in", Record(b"k", value, 1, forged)) for value in (b"one", (10**6).to_bytes(8, "big"))])
    assert [int.from_bytes(record.value or b"", "big") for record in program.outputs["counts"]][-1] == 2
    assert program.skipped == 0
    [topic] = program.topology.repartition_topics
    program.pipe([(f"app-{topic}", Record(b"all", b"abc", 2, forged)), ("in", Record(b"k", b"three", 3))])
    assert [int.from_bytes(record.value or b"", "big") for record in program.outputs["counts"]][-1] == 3
    assert program.skipped == 1


@given(
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), min_size=1, max_size=3),
    st.integers(min_value=1, max_value=60),
)
def test_headers_that_are_cut_short_are_not_read_as_others(headers: list[tuple[str, bytes | None]], cut: int) -> None:
    whole = packed(headers) or b""
    short = whole[: max(0, len(whole) - cut)]
    try:
        found = unpacked(short) or []
    except SerdeError:
        return
    assert headers[: len(found)] == found
    assert packed(found) == (short or None)


@given(st.binary(min_size=1, max_size=40))
def test_bytes_that_are_no_headers_are_reported(data: bytes) -> None:
    try:
        found = unpacked(data)
    except SerdeError:
        return
    assert packed(found) == data
