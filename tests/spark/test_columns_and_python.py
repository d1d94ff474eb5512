"""Operators of the DSL with functions of Columns, on their Spark plan, and the same with Python functions, record by record: for
drawn records (null, empty, garbage, timestamps in any order) both give the same records in the same order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.plan_harness import Program, Record
from tidemill import Serdes, StreamsBuilder, per_record

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TEXT = Serdes.string()

# Operator -> (with Columns, with Python functions), each of a stream of strings.
STATELESS: dict[str, tuple[Any, Any]] = {
    "filter": (
        lambda s: s.filter(lambda k, v: F.length(v) > 1),
        lambda s: s.filter(per_record(lambda k, v: v is not None and len(v) > 1)),
    ),
    "filter_not": (
        lambda s: s.filter_not(lambda k, v: F.coalesce(F.length(v) > 1, F.lit(False))),
        lambda s: s.filter_not(per_record(lambda k, v: v is not None and len(v) > 1)),
    ),
    "map_values": (
        lambda s: s.map_values(lambda v: F.concat(v, F.lit("!"))),
        lambda s: s.map_values(per_record(lambda v: None if v is None else v + "!", TEXT)),
    ),
    "map": (
        lambda s: s.map(lambda k, v: (v, k)),
        lambda s: s.map(per_record(lambda k, v: (v, k), (TEXT, TEXT))),
    ),
    "select_key": (
        lambda s: s.select_key(lambda k, v: F.substring(v, 1, 1)),
        lambda s: s.select_key(per_record(lambda k, v: None if v is None else v[:1], TEXT)),
    ),
    "flat_map_values": (
        lambda s: s.flat_map_values(lambda v: F.split(v, ",")),
        lambda s: s.flat_map_values(per_record(lambda v: [] if v is None else v.split(","), TEXT)),
    ),
    "filter, map_values, select_key": (
        lambda s: s.filter(lambda k, v: k.isNotNull()).map_values(lambda v: F.coalesce(v, F.lit("-"))).select_key(lambda k, v: v),
        lambda s: s.filter(per_record(lambda k, v: k is not None))
        .map_values(per_record(lambda v: "-" if v is None else v, TEXT))
        .select_key(per_record(lambda k, v: v, TEXT)),
    ),
    "merge": (
        lambda s: s.filter(lambda k, v: F.length(v) == 1).merge(s.filter(lambda k, v: F.length(v) == 2)),
        lambda s: s.filter(per_record(lambda k, v: v is not None and len(v) == 1)).merge(
            s.filter(per_record(lambda k, v: v is not None and len(v) == 2))
        ),
    ),
}


def both(builder: StreamsBuilder) -> None:
    """Each operator writes to ``columns-<n>`` and ``python-<n>``; counts to ``columns-count`` and ``python-count``."""
    stream = builder.stream("in", key=TEXT, value=TEXT)
    for number, (by_columns, by_python) in enumerate(STATELESS.values()):
        by_columns(stream).to(f"columns-{number}", key=TEXT, value=TEXT)
        by_python(stream).to(f"python-{number}", key=TEXT, value=TEXT)
    counted = stream.group_by(lambda k, v: F.substring(v, 1, 1), key=TEXT, value=TEXT).count()
    counted.to_stream().to("columns-count", key=TEXT, value=Serdes.long())
    counted = stream.group_by(per_record(lambda k, v: None if v is None else v[:1], TEXT), key=TEXT, value=TEXT).count()
    counted.to_stream().to("python-count", key=TEXT, value=Serdes.long())


@pytest.fixture(scope="module")
def program(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Program:
    builder = StreamsBuilder()
    both(builder)
    folder: Path = tmp_path_factory.mktemp("both")
    return Program(spark, builder.build(), folder)


RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.sampled_from([b"", b"a", b"b", "é".encode(), b"\xff"]),
        value=st.none()
        | st.sampled_from([b"", b"x", b"xy", b"x,y", b",", b"xyz,,", "€,😀".encode(), b"\xc3", b"a\x00b", b" "])
        | st.text(max_size=5).map(lambda text: text.encode("utf-8", "replace")),
        timestamp=st.sampled_from([0, 1, 5, 1_000, 2**40]),
        headers=st.sampled_from([(), (("h", b"1"),)]),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(RECORDS)
def test_functions_of_columns_and_python_functions_give_the_same_records(program: Program, records: list[Record]) -> None:
    before = {topic: len(out) for topic, out in program.outputs.items()}
    program.pipe([("in", record) for record in records])

    def new(topic: str) -> list[Record]:
        return program.outputs.get(topic, [])[before.get(topic, 0) :]

    for number, operator in enumerate(STATELESS):
        assert new(f"columns-{number}") == new(f"python-{number}"), operator
    counts = [{r.key: r.value for r in program.outputs.get(f"{side}-count", [])} for side in ("columns", "python")]
    assert counts[0] == counts[1]


def test_each_operator_gives_something(program: Program) -> None:
    """So that the comparison is not of nothing with nothing."""
    program.pipe([("in", Record(b"k", value, 1)) for value in (b"x", b"xy", b"x,y")])
    ends = [*range(len(STATELESS)), "count"]
    assert [end for end in ends if not (program.outputs.get(f"columns-{end}") and program.outputs.get(f"python-{end}"))] == []
