"""Programs of today's operators on their real Spark plans give what the real Kafka Streams classes gave for the same input.

A batch may hold one record or all of them: records in order per key and topic where Kafka's answer is defined record by
record, otherwise the last one of each key.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.plan_harness import Program, Record
from tidemill import Serdes, StreamsBuilder, of_columns

pytestmark = pytest.mark.spark

VECTORS = Path(__file__).parent.parent / "vectors" / "semantics.jsonl.gz"
STRING, LONG, INTEGER = Serdes.string(), Serdes.long(), Serdes.integer()
SERDES = {"String": STRING, "Long": LONG, "Integer": INTEGER, "Double": Serdes.double()}
ALL = 1 << 30
TRAILING_BLANKS = r" +$"


def words(value: Any) -> Any:
    """Java's ``split(" ")`` leaves trailing empty strings out, and so gives nothing at all for blanks only."""
    kept = F.regexp_replace(value, TRAILING_BLANKS, "")
    return F.when((value != "") & (kept == ""), F.array().cast("array<string>")).otherwise(F.split(kept, " "))


def text(value: Any) -> Any:
    """What Java's string concatenation makes of a value."""
    return F.coalesce(value, F.lit("null"))


def map_swap(b: StreamsBuilder) -> None:
    b.stream("in").map(lambda k, v: (v, k)).to("out")


def flatmap_words(b: StreamsBuilder) -> None:
    def pairs(k: Any, v: Any) -> Any:
        return F.transform(F.filter(words(v), lambda w: w != ""), lambda w: F.struct(w.alias("key"), F.length(w).alias("value")))

    b.stream("in").flat_map(pairs).to("out", value=INTEGER)


def flatmapvalues_filter_filternot(b: StreamsBuilder) -> None:
    b.stream("in").flat_map_values(words).filter(lambda k, v: v != "").filter_not(lambda k, v: v.startswith("b")).to("out")


def null_handling_stateless(b: StreamsBuilder) -> None:
    s = b.stream("in")
    s.filter(lambda k, v: v.isNull()).to("nulls")
    s.filter_not(lambda k, v: k.isNull()).map_values(lambda k, v: F.concat(k, F.lit("="), text(v))).to("keyed")
    s.peek(lambda k, v: None).map_values(F.upper).to("all")


def branch_without_default(b: StreamsBuilder) -> None:
    branches = (
        b.stream("in").split(name="b-")
        .branch(lambda k, v: v.startswith("red"), name="red")
        .branch(lambda k, v: v.startswith("blue"), name="blue")
        .no_default_branch()
    )  # fmt: skip
    for number, stream in enumerate(branches.values(), start=1):
        stream.map_values(lambda v, n=number: F.concat(F.lit(f"{n}:"), v)).to("out")


def merge_three(b: StreamsBuilder) -> None:
    first, second, third = (b.stream(topic) for topic in "abc")
    first.merge(second).merge(third.map_values(lambda v: F.concat(F.lit("c:"), text(v)))).to("out")


def diamond_order(b: StreamsBuilder) -> None:
    s = b.stream("in")
    first = s.map_values(lambda v: F.concat(F.lit("1"), text(v)))
    second = s.flat_map_values(lambda v: F.array(F.concat(F.lit("2"), text(v)), F.concat(F.lit("3"), text(v))))
    second.merge(first).to("out")
    s.map_values(lambda v: F.concat(F.lit("4"), text(v))).to("out")


def select_key_repartition(b: StreamsBuilder) -> None:
    keyed = b.stream("in").select_key(lambda k, v: v).repartition(name="by-value")
    keyed.map_values(lambda k, v: F.concat(k, F.lit("/"), v)).to("out")


def named_operators(b: StreamsBuilder) -> None:
    counts = b.stream("in").filter(lambda k, v: v.isNotNull()).group_by(lambda k, v: v).count(store="my-store")
    counts.map_values(lambda n: F.concat(F.lit("n="), n)).to_stream().to("out", value=STRING)


def count_by_key(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().count(store="counts").to_stream().to("out", value=LONG)


def wordcount(b: StreamsBuilder) -> None:
    words_of = b.stream("in").flat_map_values(lambda v: words(F.lower(v)))
    words_of.group_by(lambda k, v: v).count(store="counts").to_stream().to("out", value=LONG)


def reduce_concat(b: StreamsBuilder) -> None:
    reduced = b.stream("in").group_by_key().reduce(lambda a, v: v if len(a) > 12 else a + "," + v, store="r")
    reduced.to_stream().to("out")


def reduce_to_null(b: StreamsBuilder) -> None:
    grouped = b.stream("in", value=LONG).group_by_key(key=STRING, value=LONG)
    grouped.reduce(lambda a, v: None if (a + v) % 5 == 0 else a + v).to_stream().to("out", value=LONG)


def aggregate_sum(b: StreamsBuilder) -> None:
    summed = b.stream("in", value=LONG).group_by_key().aggregate(lambda: 100, lambda k, v, a: a + v, store="agg", value=LONG)
    summed.to_stream().to("out", value=LONG)


def table_to_stream(b: StreamsBuilder) -> None:
    b.table("in").to_stream().to("out")


def table_materialized(b: StreamsBuilder) -> None:
    b.table("in", store="tbl").to_stream().to("out")


def table_filter_unmaterialized(b: StreamsBuilder) -> None:
    b.table("in", value=LONG).filter(lambda k, v: v % 2 == 0).to_stream().to("out", value=LONG)


def table_filternot_mapvalues_chain(b: StreamsBuilder) -> None:
    kept = b.table("in", value=LONG).filter_not(lambda k, v: v > 6).map_values(lambda v: v * 10).filter(lambda k, v: v > 10)
    kept.map_values(lambda v: F.concat(F.lit("v"), v)).to_stream().to("out", value=STRING)


def stream_to_table_rekeyed(b: StreamsBuilder) -> None:
    keyed = b.stream("in").select_key(lambda k, v: F.coalesce(v, k))
    keyed.map_values(lambda k, v: F.concat(k, F.length(v))).to_table(store="tt").to_stream().to("out")


def stream_to_table(b: StreamsBuilder) -> None:
    b.stream("in").to_table().map_values(lambda v: F.concat(v, F.lit("!"))).to_stream().to("out")


PROGRAMS: tuple[Callable[[StreamsBuilder], None], ...] = (
    map_swap, flatmap_words, flatmapvalues_filter_filternot, null_handling_stateless, branch_without_default, merge_three,
    diamond_order, select_key_repartition, named_operators, count_by_key, wordcount, reduce_concat, reduce_to_null,
    aggregate_sum, table_to_stream, table_materialized, table_filter_unmaterialized, table_filternot_mapvalues_chain,
    stream_to_table_rekeyed, stream_to_table,
)  # fmt: skip


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return spark


def all_cases(program: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS, "rt") as lines:
        found = [case for line in lines if (case := json.loads(line))["program"] == program]
    assert found, f"{program} has no case: a test of it would assert nothing"
    return found


def cases(program: str) -> list[dict[str, Any]]:
    found = all_cases(program)
    return found if os.environ.get("TIDEMILL_ALL_VECTORS") else found[:2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_program_gives_what_kafka_streams_gives(
    program: Callable[[StreamsBuilder], None], session: SparkSession, tmp_path: Path
) -> None:
    builder = StreamsBuilder()
    program(builder)
    topology = builder.build()
    for case, size in zip(cases(program.__name__), cycle((ALL, 7)), strict=False):
        run = Program(session, topology, tmp_path, default=STRING)
        inputs = [(entry["topic"], record(entry, case["serdes"]["inputs"])) for entry in case["inputs"]]
        for start in range(0, len(inputs), size):
            run.pipe(inputs[start : start + size])
        compare(case, run, size)


def reduce_concat_of_columns(b: StreamsBuilder) -> None:
    """Not associative, so true to Kafka's for single records only."""
    joined = of_columns(lambda a, v: F.when(F.length(a) > 12, v).otherwise(F.concat_ws(",", a, v)))
    b.stream("in").group_by_key().reduce(joined, store="r").to_stream().to("out")


def reduce_to_null_of_columns(b: StreamsBuilder) -> None:
    grouped = b.stream("in", value=LONG).group_by_key(key=STRING, value=LONG)
    grouped.reduce(of_columns(lambda a, v: F.when((a + v) % 5 != 0, a + v))).to_stream().to("out", value=LONG)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", [reduce_concat_of_columns, reduce_to_null_of_columns], ids=lambda p: p.__name__)
def test_a_reduce_of_columns_gives_what_kafka_streams_gives_for_each_record(
    program: Callable[[StreamsBuilder], None], session: SparkSession, tmp_path: Path
) -> None:
    builder = StreamsBuilder()
    program(builder)
    found = all_cases(program.__name__.removesuffix("_of_columns"))
    case = min((case for case in found if len(case["inputs"]) >= 20), key=lambda case: len(case["inputs"]))
    run = Program(session, builder.build(), tmp_path, default=STRING)
    for entry in case["inputs"]:
        run.pipe([(entry["topic"], record(entry, case["serdes"]["inputs"]))])
    compare(case, run, 1)


def record(entry: dict[str, Any], serdes: dict[str, Any]) -> Record:
    kinds = serdes[entry["topic"]]
    headers = tuple((name, bytes.fromhex(value)) for name, value in entry.get("headers", ()))
    return Record(
        SERDES[kinds["key"]].serialize(entry["key"]),
        SERDES[kinds["value"]].serialize(entry["value"]),
        entry["timestamp"],
        headers,
    )


def compare(case: dict[str, Any], run: Program, size: int) -> None:
    where = f"{case['program']} case {case['case']} in batches of {size}"
    for topic, kinds in case["serdes"]["outputs"].items():
        key_serde, value_serde = SERDES[kinds["key"]], SERDES[kinds["value"]]
        found: dict[Any, list[tuple[Any, int]]] = {}
        for got in run.outputs.get(topic, []):
            entry = (value_serde.deserialize(got.value), got.timestamp)
            found.setdefault(key_serde.deserialize(got.key), []).append(entry)
        expected: dict[Any, list[tuple[Any, int]]] = {}
        for wanted in case["outputs"].get(topic, []):
            expected.setdefault(wanted["key"], []).append((wanted["value"], wanted["timestamp"]))
        if case["match"] == "record":
            assert found == expected, where
        else:
            last = {key: rows[-1] for key, rows in found.items() if rows[-1][0] is not None}
            assert last == {key: rows[-1] for key, rows in expected.items() if rows[-1][0] is not None}, where
    assert run.dropped == case["dropped_records"]["total"], f"{where}: dropped records"
