"""What a serde reads and writes is the same by itself and in the plan, which the test driver runs; operators: ``test_intake``."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.steps.drawn_bytes import BYTES_FOR, SERDES
from tidemill import Serdes, StreamsBuilder
from tidemill.errors import SerdeError, StopError, TopologyError
from tidemill.testing import TestRecord, TopologyTestDriver
from tidemill.testing.topics import RawRecord

pytestmark = pytest.mark.spark
BYTES = Serdes.bytes()
Pair = tuple["bytes | None", "bytes | None"]


@st.composite
def samples(draw: st.DrawFn) -> dict[str, list[Pair]]:
    """Keys and values for each serde, null among them."""
    return {
        name: draw(st.lists(st.tuples(st.none() | drawn, drawn), min_size=1, max_size=12)) for name, drawn in BYTES_FOR.items()
    }


def by_the_serde(serde: Any, pairs: list[Pair]) -> list[Pair]:
    """What is read, written again; pairs that can't be read are left out."""
    found = []
    for pair in pairs:
        try:
            found.append(tuple(serde.serialize(serde.deserialize(side)) for side in pair))
        except SerdeError:
            continue
    return found  # type: ignore[return-value]


def through(builder: StreamsBuilder, name: str, serde: Any, function: Any) -> None:
    builder.stream(f"in-{name}", key=serde, value=serde).map_values(function).to(f"out-{name}", key=serde, value=serde)


@pytest.fixture(scope="module")
def tidemill_session(spark: SparkSession) -> SparkSession:
    return spark


@pytest.fixture(scope="module")
def driver(tidemill_session: SparkSession) -> Any:
    """All serdes in one plan of columns."""
    builder = StreamsBuilder()
    for name, serde in SERDES.items():
        through(builder, name, serde, lambda value: F.coalesce(value, value))
    config = {"deserialization.exception.handler": "continue"}
    with TopologyTestDriver(builder, config, session=tidemill_session) as made:
        yield made


def writes_shortest_digits(spark: SparkSession) -> bool:
    """Java's own text of a double is the shortest that means it since version 19."""
    return int(spark._jvm.java.lang.System.getProperty("java.specification.version")) >= 19  # type: ignore[union-attr]


def as_written(serde: Any, pairs: list[Pair], *, exact: bool) -> list[Any]:
    """The bytes, or the values that they mean."""
    return pairs if exact else [tuple(serde.deserialize(side) for side in pair) for pair in pairs]


# No shrinking: an example is a batch of all serdes, and the message names the record.
@settings(max_examples=40, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(drawn=samples())
def test_the_plan_reads_refuses_and_writes_what_the_serde_does(
    driver: TopologyTestDriver, tidemill_session: SparkSession, drawn: dict[str, list[Pair]]
) -> None:
    outputs = {name: driver.create_output_topic(f"out-{name}", BYTES, BYTES) for name in drawn}
    for topic in outputs.values():  # what a failed example has left
        topic.read_key_values()
    refused = driver.skipped
    driver._pipe([RawRecord(f"in-{name}", *pair, 0, ()) for name, pairs in drawn.items() for pair in pairs])
    sent = {name: topic.read_key_values() for name, topic in outputs.items()}
    readable = {name: by_the_serde(SERDES[name], pairs) for name, pairs in drawn.items()}
    for name, expected in readable.items():
        exact = name != "json" or writes_shortest_digits(tidemill_session)
        serde = SERDES[name]
        assert as_written(serde, sent[name], exact=exact) == as_written(serde, expected, exact=exact), (name, drawn[name])
    assert driver.skipped - refused == sum(len(pairs) - len(readable[name]) for name, pairs in drawn.items())


def test_columns_read_each_form_of_a_time_at_every_depth_as_the_serde_does(tidemill_session: SparkSession) -> None:
    """Of a time with an offset and no seconds, which Java writes where they are 0, Spark by itself reads null."""
    times_in_all = "`a.b` timestamp, l timestamp_ntz, t array<timestamp>, m map<string,struct<z:timestamp,f:float>>"
    serde = Serdes.json(f"{times_in_all}, s string")
    ends = ["", ":59", ":59.5", ":59.123456789"]
    offsets = ["Z", "+02:00", "-0930", "+02"]
    times = [f"2026-01-31{between}12:00{end}{offset}" for between in "T " for end in ends for offset in offsets]
    values: list[dict[str, Any]] = [
        {"a.b": time, "l": time[:16], "t": [time, None], "m": {"k": {"z": time, "f": 0.1}, "n": None}, "s": time}
        for time in times
    ]
    texts = [json.dumps(value).encode() for value in [*values, {}, {"t": [], "m": {}}, {"m": {"k": {}}}]]
    builder = StreamsBuilder()
    read = builder.stream("in", key=BYTES, value=serde)
    read.map_values(lambda v: F.struct(*[v[name].alias(name) for name in ("a.b", "l", "t", "m", "s")])).to("out", value=serde)
    with TopologyTestDriver(builder, session=tidemill_session) as driver:
        driver.create_input_topic("in", BYTES, BYTES).pipe_records([TestRecord(text, text, 1) for text in texts], batch=None)
        found = driver.create_output_topic("out", BYTES, BYTES).read_key_values()
    assert found == [(text, serde.serialize(serde.deserialize(text))) for text in texts]


NUMBERS = Serdes.json("d double, f float, t array<double>, m map<string,struct<f:float>>")
INFINITE = {
    "a number": lambda v: F.struct((v * F.lit(float("inf"))).alias("d")),
    "a float": lambda v: F.struct((v * F.lit(float("inf"))).cast("float").alias("f")),
    "an item": lambda v: F.struct(F.array(F.lit(1.0), v * F.lit(float("inf"))).alias("t")),
    "a number in a map": lambda v: F.struct(
        F.create_map(F.lit("a"), F.struct((v * F.lit(float("inf"))).cast("float").alias("f"))).alias("m")
    ),
}


@pytest.mark.parametrize("where", INFINITE)
def test_a_number_that_json_has_no_form_for_is_not_written_as_text(tidemill_session: SparkSession, where: str) -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=BYTES, value=Serdes.double())
    numbers.map_values(lambda v: F.struct(v.alias("d"))).to("plain", key=BYTES, value=NUMBERS)
    numbers.filter(lambda _, v: v > 1).map_values(INFINITE[where]).to("out", key=BYTES, value=NUMBERS)
    with TopologyTestDriver(builder, session=tidemill_session) as driver:
        numbers_in = driver.create_input_topic("in", BYTES, Serdes.double())
        numbers_in.pipe_value(1.0)
        assert driver.create_output_topic("plain", BYTES, NUMBERS).read_value()["d"] == 1.0
        with pytest.raises(Exception, match="NaN and infinite numbers have no form in JSON"):
            numbers_in.pipe_value(2.0)


def test_structs_are_written_in_the_schemas_order_and_types(tidemill_session: SparkSession) -> None:
    builder, written = StreamsBuilder(), Serdes.json("s string, n bigint, o struct<a:double,b:int>, t array<struct<x:bigint>>")

    def made(value: Any) -> Any:
        inner = F.struct(F.lit(1).alias("b"), F.lit(0.5).cast("float").alias("a"))
        items = F.array(F.struct(F.lit(2).alias("x")))
        return F.struct(items.alias("t"), inner.alias("o"), F.lit(7).alias("n"), value.alias("s"))

    builder.stream("in", key=BYTES, value=Serdes.string()).map_values(made).to("out", key=BYTES, value=written)
    with TopologyTestDriver(builder, session=tidemill_session) as driver:
        driver.create_input_topic("in", BYTES, Serdes.string()).pipe_value("x")
        [(_, value)] = driver.create_output_topic("out", BYTES, BYTES).read_key_values()
    assert value == written.serialize({"s": "x", "n": 7, "o": {"a": 0.5, "b": 1}, "t": [{"x": 2}]})


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (lambda v: F.struct(v.cast("string").alias("n")), "has type string, but the serde's schema has bigint there"),
        (lambda v: F.struct(v.alias("n"), v.alias("other")), "has the field 'other', which the serde's schema"),
        (lambda v: F.struct(F.array(v.cast("double")).alias("t")), "has type double, but the serde's schema has int there"),
    ],
)
def test_a_column_that_the_schema_has_no_place_for_is_refused_when_the_plan_is_built(
    tidemill_session: SparkSession, column: Any, problem: str
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=BYTES, value=Serdes.long())
    stream.map_values(column).to("out", key=BYTES, value=Serdes.json("n bigint, t array<int>"))
    with pytest.raises(TopologyError, match=problem):
        TopologyTestDriver(builder, session=tidemill_session)


def test_a_struct_for_json_without_a_schema_is_refused_with_the_schema_to_give(tidemill_session: SparkSession) -> None:
    builder = StreamsBuilder()
    pairs = builder.stream("in", key=BYTES, value=Serdes.long()).map_values(lambda v: F.struct(v.alias("n"), v.alias("2n")))
    pairs.to("out", key=BYTES, value=Serdes.json())
    with pytest.raises(TopologyError, match=re.escape("json writes string: give Serdes.json('n bigint, `2n` bigint'), or")):
        TopologyTestDriver(builder, session=tidemill_session)


@pytest.mark.parametrize(
    "value", [b'{"a":"12.5"}', b'["ada",12.5]', b'{"a":1} trailing', b'{"a":1,"a":2}', b'{"a":"\xff"}', b'{"a":NaN}'], ids=repr
)
def test_the_sentence_says_where_the_record_is_and_what_is_wrong_with_it(tidemill_session: SparkSession, value: bytes) -> None:
    builder, serde = StreamsBuilder(), Serdes.json("a double")
    builder.stream("in", key=BYTES, value=serde).filter(lambda _, v: v["a"] > 0).to("out", key=BYTES, value=serde)
    with TopologyTestDriver(builder, session=tidemill_session) as driver:
        given = driver.create_input_topic("in", BYTES, BYTES)
        given.pipe_value(b'{"a":1}')
        with pytest.raises(StopError, match=r"in-0 at offset 1: .* expected .* value of json; the value can't be read: json: "):
            given.pipe_value(value)
