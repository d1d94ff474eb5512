"""reduce(of_columns(f)) in a standing run and behind a backlog: values of every form, merged as a loop in Python merges them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from pprint import pformat
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder, of_columns
from tidemill.spark.engine import BatchEngine
from tidemill.testing import TestRecord, TopologyTestDriver
from tidemill.topology.values import Serde

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TEXT = Serdes.string()
NAN, INF = float("nan"), float("inf")
_Batch = list[TestRecord]


@pytest.fixture(params=["standing", "backlog"])
def plan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Micro-batches of a standing run, or each a job of its own, in which the JVM merges before the step too."""
    name: str = request.param
    if name == "backlog":
        run = BatchEngine.run
        monkeypatch.setattr(BatchEngine, "run", lambda self, asked, patience=1: run(self, asked, patience, has_backlog=True))
    return name


def one_of(a: Column, b: Column) -> Column:
    """The greater one, nulls aside."""
    return F.greatest(a, b)


def fields_added(a: Column, b: Column) -> Column:
    return F.struct(
        (a["n"] + b["n"]).alias("n"), F.concat(a["t"], b["t"]).alias("t"), b["d"].alias("d"),
        F.map_concat(F.map_filter(a["m"], lambda k, _: ~F.map_contains_key(b["m"], k)), b["m"]).alias("m"),
        F.greatest(a["at"], b["at"]).alias("at"),
    )  # fmt: skip


def fields_added_by_python(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {"n": a["n"] + b["n"], "t": a["t"] + b["t"], "d": b["d"], "m": {**a["m"], **b["m"]}, "at": max(a["at"], b["at"])}


def struct(n: int, t: str, d: str, **m: int) -> dict[str, Any]:
    return {"n": n, "t": t, "d": Decimal(d), "m": m, "at": datetime(2026, 1, 1 + n % 28, tzinfo=timezone.utc)}


STRUCTS = [struct(1, "a,:-", "1.10"), struct(2**60, "é\n", "-0.01", x=1), struct(-7, "", "99999999.99", x=2, y=3)]
CASES: dict[str, tuple[Serde, Callable[[Column, Column], Column], Callable[[Any, Any], Any], Sequence[Any]]] = {
    "string": (TEXT, F.concat, lambda a, b: a + b, ["", "a", "-", "1:2,3", "é\x00\n", "𝒳"]),
    "bytes": (Serdes.bytes(), F.concat, lambda a, b: a + b, [b"", b"-", b"\xff\x00,:", b"\x01\x80"]),
    "long": (Serdes.long(), lambda a, b: a + b, lambda a, b: a + b, [0, -1, 2**53 + 1, -(2**60), 7]),
    "integer": (Serdes.integer(), F.greatest, max, [0, -(2**31), 2**31 - 1, 5]),
    "short": (Serdes.short(), F.greatest, max, [0, -(2**15), 2**15 - 1, 5]),
    "double": (Serdes.double(), lambda a, b: b, lambda a, b: b, [0.1, -0.0, INF, -INF, NAN, 5e-324, 1.7976931348623157e308]),
    "float": (Serdes.float(), lambda a, b: b, lambda a, b: b, [0.5, -0.0, INF, NAN, 3.4028234663852886e38]),
    "boolean": (Serdes.boolean(), lambda a, b: a & b, lambda a, b: a and b, [True, False]),
    "uuid": (Serdes.uuid(), one_of, lambda a, b: max(a, b, key=str), [UUID(int=n << 90) for n in (0, 1, 5, 2**20)]),
    "struct": (
        Serdes.json("n bigint, t string, d decimal(10,2), m map<string,int>, at timestamp"),
        fields_added, fields_added_by_python, STRUCTS,
    ),
}  # fmt: skip


def batches_of(values: Sequence[Any]) -> list[_Batch]:
    """Ten keys in all, of which some come once, some often and some again in a later batch; times go back, too."""
    drawn = random.Random(7)
    return [
        [TestRecord(f"k{drawn.randrange(top)}", drawn.choice(values), timestamp=drawn.randrange(1_000)) for _ in range(size)]
        for top, size in ((3, 20), (10, 12), (1, 1), (6, 30))
    ]


def shown(rows: dict[str, tuple[Any, int]]) -> str:
    """NaN is equal to itself, 0.0 is not -0.0, and the entries of maps have no order."""
    return pformat(rows, sort_dicts=True)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_are_merged_as_they_are_by_python(spark: SparkSession, plan: str, case: Any) -> None:
    serde, function, in_python, values = case
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=serde).group_by_key(key=TEXT, value=serde)
    grouped.reduce(of_columns(function), store="s").to_stream().to("out", key=TEXT, value=serde)
    expected: dict[str, tuple[Any, int]] = {}
    with TopologyTestDriver(builder, session=spark) as driver:
        topic, out = driver.create_input_topic("in", TEXT, serde), driver.create_output_topic("out", TEXT, serde)
        for batch in batches_of(values):
            for record in batch:
                value, time = expected.get(record.key, (None, -1))
                merged = record.value if value is None else in_python(value, record.value)
                expected[record.key] = merged, max(time, record.timestamp)
            topic.pipe_records(batch, batch=None)
            forwarded = {record.key: (record.value, record.timestamp) for record in out.read_records()}
            assert shown(forwarded) == shown({key: expected[key] for key in forwarded})
            assert forwarded.keys() == {record.key for record in batch}, "one result of each key"
        assert shown({key: tuple(driver.store("s").get(key)) for key in expected}) == shown(expected)


def test_what_a_merge_deletes_begins_again(spark: SparkSession, plan: str) -> None:
    """The function gives null where the sum is 0: the value after it is the first again, with its timestamp."""
    builder, long = StreamsBuilder(), Serdes.long()
    sums = builder.stream("in", key=TEXT, value=long).group_by_key().reduce(
        of_columns(lambda a, b: F.nullif(a + b, F.lit(0))), store="s"
    )  # fmt: skip
    sums.to_stream().to("out", key=TEXT, value=long)
    with TopologyTestDriver(builder, session=spark) as driver:
        topic, out = driver.create_input_topic("in", TEXT, long), driver.create_output_topic("out", TEXT, long)
        given = [(5, 900), (-5, 10), (3, 20)]
        topic.pipe_records([TestRecord("a", n, timestamp=at) for n, at in given], batch=None)
        assert driver.store("s").get("a") == (3, 20)
        topic.pipe_input("a", -3, timestamp=30)
        assert driver.store("s").get("a") is None
        topic.pipe_records([TestRecord("a", None, timestamp=40), TestRecord(None, 1, timestamp=50)], batch=None)
        assert driver.dropped == 2
        topic.pipe_input("a", 8, timestamp=7)
        assert driver.store("s").get("a") == (8, 7)
        assert out.read_key_values() == [("a", 3), ("a", None), ("a", 8)]


def test_headers_are_those_of_the_last_record(spark: SparkSession, plan: str) -> None:
    builder = StreamsBuilder()
    joined = builder.stream("in", key=TEXT, value=TEXT).group_by_key().reduce(of_columns(F.concat), store="s")
    joined.to_stream().to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        topic, out = driver.create_input_topic("in", TEXT, TEXT), driver.create_output_topic("out", TEXT, TEXT)
        topic.pipe_records(
            [TestRecord("a", each, timestamp=1, headers=[("h", each.encode())]) for each in "xyz"]
            + [TestRecord("b", "1", timestamp=2)],
            batch=None,
        )
        found = {record.key: (record.value, list(record.headers)) for record in out.read_records()}
        assert found == {"a": ("xyz", [("h", b"z")]), "b": ("1", [])}


def test_its_clock_is_the_batchs(spark: SparkSession, plan: str) -> None:
    builder, long = StreamsBuilder(), Serdes.long()
    grouped = builder.stream("in", key=TEXT, value=long).group_by_key()
    grouped.reduce(of_columns(lambda a, b: F.unix_millis(F.current_timestamp())), store="s")
    with TopologyTestDriver(builder, session=spark, start_ms=5_000) as driver:
        topic = driver.create_input_topic("in", TEXT, long)
        topic.pipe_key_values([("a", 1), ("b", 2)])
        topic.pipe_key_values([("a", 3), ("b", 4)])
        driver.advance_wall_clock_time(250)
        topic.pipe_key_values([("a", 5), ("c", 6)])
        assert [driver.store("s").get(key)[0] for key in "abc"] == [5_250, 5_000, 6]


def jobs(spark: SparkSession) -> int:
    scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()
    return int(scheduler.numTotalJobs())


def test_micro_batches_share_a_job(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    sums = builder.stream("in", key=TEXT, value=Serdes.long()).group_by_key().reduce(of_columns(lambda a, b: a + b), store="s")
    sums.to_stream().to("out", key=TEXT, value=Serdes.long())
    with TopologyTestDriver(builder, session=spark) as driver:
        topic = driver.create_input_topic("in", TEXT, Serdes.long())
        topic.pipe_input("a", 1)
        before = jobs(spark)
        for number in range(5):
            topic.pipe_input("a", number)
        assert driver.store("s").get("a")[0] == 11
        assert jobs(spark) == before
