"""Each operator that takes functions of batches and async ones gives what it gives with ``per_record``, in the same order: over
many records, with null keys and values, behind Columns and before them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from doc_blocks import DOCS, fenced
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.plan_harness import Program
from tests.spark.plan_harness import Record as Bytes
from tidemill import KStream, Serdes, StreamsBuilder, TimeWindows, per_batch, per_record, per_record_async
from tidemill.errors import StopError
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG = Serdes.string(), Serdes.long()
ORDER = Serdes.json("name string, pieces bigint")
Functions = dict[str, Callable[..., Any]]


def _pieces(value: Any) -> list[str]:
    return value.split(",") if isinstance(value, str) else []


def _label(key: Any, value: Any) -> str:
    return f"{key}:{len(_pieces(value))}"


def _upper(key: str | None) -> str | None:
    return None if key is None else key.upper()


RECORD: Functions = {
    "map": lambda key, value: (_label(key, value), len(_pieces(value))),
    "select_key": _label,
    "flat_map": lambda key, value: [(_upper(key), piece) for piece in _pieces(value)],
    "flat_map_values": _pieces,
}
PANDAS: Functions = {
    "map": lambda keys, values: ([*map(_label, keys, values)], values.str.count(",").add(1).fillna(0).astype("int64")),
    "select_key": lambda keys, values: [*map(_label, keys, values)],
    "flat_map": lambda keys, values: (
        [[_upper(key)] * len(_pieces(value)) for key, value in zip(keys, values, strict=True)], values.str.split(","),
    ),
    "flat_map_values": lambda values: values.str.split(","),
}  # fmt: skip


def _arrow_label(keys: pa.Array, values: pa.Array) -> pa.Array:
    return pa.array([_label(key, value) for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)])


def _repeated(keys: pa.Array, values: pa.Array) -> pa.Array:
    both = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    return pa.array([[key] * len(_pieces(value)) for key, value in both], pa.list_(pa.string()))


ARROW: Functions = {
    "map": lambda keys, values: (
        _arrow_label(keys, values), pc.fill_null(pc.list_value_length(pc.split_pattern(values, ",")), 0),
    ),
    "select_key": _arrow_label,
    "flat_map": lambda keys, values: (
        _repeated(pc.utf8_upper(keys), values), pc.split_pattern(values, ","),
    ),
    "flat_map_values": lambda values: pc.split_pattern(values, ","),
}  # fmt: skip
SERDES: dict[str, Any] = {"map": (TEXT, LONG), "select_key": TEXT, "flat_map": (TEXT, TEXT), "flat_map_values": TEXT}
WRITTEN: dict[str, Any] = {"map": LONG, "select_key": TEXT, "flat_map": TEXT, "flat_map_values": TEXT}


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """Later records are answered first."""
    if function is _pieces:

        async def of_value(value: Any) -> Any:
            return await _later(function(value))

        return of_value

    async def of_both(key: Any, value: Any) -> Any:
        return await _later(function(key, value))

    return of_both


async def _later(result: Any) -> Any:
    for _ in range(hash(str(result)) % 5):
        await asyncio.sleep(0)
    return result


def ways(operator: str) -> dict[str, Any]:
    serde = SERDES[operator]
    return {
        "record": per_record(RECORD[operator], serde), "pandas": per_batch(PANDAS[operator], serde),
        "pyarrow": per_batch(ARROW[operator], serde, form="pyarrow"),
        "async": per_record_async(awaited(RECORD[operator]), serde, max_in_flight=7),
    }  # fmt: skip


def chain(stream: KStream, way: str) -> None:
    """Many of one, behind Columns and before them, three times, then a count by the new keys."""
    flat = stream.filter(lambda key, value: F.coalesce(F.length(value), F.lit(1)) > 0)
    flat = flat.flat_map(ways("flat_map")[way]).flat_map_values(lambda value: F.array(value, F.concat(value, F.lit(",z"))))
    flat = flat.flat_map_values(ways("flat_map_values")[way]).map_values(lambda value: F.concat(value, F.lit(",")))
    flat = flat.flat_map(ways("flat_map")[way])
    flat.to(f"chain-{way}", key=TEXT, value=TEXT)
    counts = flat.select_key(ways("select_key")[way]).group_by_key(key=TEXT, value=TEXT).count(store=f"counts-{way}")
    counts.to_stream().to(f"counts-{way}", key=TEXT, value=LONG)


WAYS = tuple(ways("map"))


@pytest.fixture(scope="module")
def driver(spark: SparkSession) -> Any:
    """All of it in one plan."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    for operator in SERDES:
        for way, function in ways(operator).items():
            getattr(stream, operator)(function).to(f"{operator}-{way}")
    for way in WAYS:
        chain(stream, way)
    with TopologyTestDriver(builder, session=spark) as made:
        yield made


def sent(seed: int, number: int) -> list[TestRecord]:
    chance = random.Random(seed)
    keys, values = ["a", "b", "\u00e9", "", None], ["x", "x,y", "", ",", "\u20ac,zz,1", None]
    return [
        TestRecord(chance.choice(keys), chance.choice(values), timestamp=at, headers=((("n", str(at).encode()),)))
        for at in range(number)
    ]


@pytest.mark.parametrize(("seed", "number", "batch"), [(1, 700, None), (2, 40, 7), (3, 5, 1)])
def test_all_ways_give_the_same_records_in_the_same_order(
    driver: TopologyTestDriver, seed: int, number: int, batch: int | None
) -> None:
    driver.create_input_topic("in", TEXT, TEXT).pipe_records(sent(seed, number), batch=batch)
    for operator in [*SERDES, "chain"]:
        found = {
            way: driver.create_output_topic(f"{operator}-{way}", TEXT, WRITTEN.get(operator, TEXT)).read_records() for way in WAYS
        }
        assert found["record"], operator
        for way in WAYS:
            assert found[way] == found["record"], (operator, way)
    counts = [list(driver.store(f"counts-{way}").all()) for way in WAYS]
    assert counts[0]
    assert all(found == counts[0] for found in counts)


def refusing(keys: Any, values: Any) -> Any:
    if (values == "bad").any():
        raise ValueError("no such value")
    return [[key, key] for key in keys], [[value, "again"] for value in values]


async def asked(key: Any, value: Any) -> Any:
    if value == "bad":
        raise ValueError("no such value")
    return [(key, value), (key, "again")]


@pytest.mark.parametrize("function", [per_batch(refusing, (TEXT, TEXT)), per_record_async(asked, (TEXT, TEXT))],
                         ids=["per_batch", "per_record_async"])  # fmt: skip
def test_the_handler_decides_on_a_record_that_the_function_fails_on(spark: SparkSession, function: Any) -> None:
    builder = StreamsBuilder()
    # A layer of Columns between both, so that the first does not run in the step that commits.
    flat = builder.stream("in", key=TEXT, value=TEXT).flat_map(function, name="asked")
    flat.map_values(F.upper).flat_map_values(per_batch(lambda values: values.str.split(","), TEXT)).to("out")
    records = [TestRecord("a", "x"), TestRecord("b", "bad"), TestRecord("c", None), TestRecord("d", "y,z")]
    stops = pytest.raises(StopError, match="in-0 at offset 1: the function of asked failed: ValueError: no such value")
    with TopologyTestDriver(builder, session=spark) as driver, stops:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(records, batch=None)
    with TopologyTestDriver(builder, {"processing.exception.handler": "continue"}, session=spark) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(records, batch=None)
        found = driver.create_output_topic("out", TEXT, TEXT).read_key_values()
        assert found == [("a", "X"), ("a", "AGAIN"), ("c", "AGAIN"), ("d", "Y"), ("d", "Z"), ("d", "AGAIN")]
        assert driver.dropped == 1


def test_a_key_in_a_window_is_the_same_for_all_of_them(spark: SparkSession) -> None:
    """Also behind Columns, which have it as a struct."""
    builder = StreamsBuilder()
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by_key().windowed_by(TimeWindows.of_size(10)).count().to_stream()
    functions: Functions = {
        "record": lambda key, _value: f"{type(key).__name__} {key.key} {key.start} {key.end}",
        "pandas": lambda keys, _values: [f"Windowed {one.key} {one.start} {one.end}" for one in keys.itertuples()],
    }
    for where, stream in {"plain": counts, "behind": counts.filter(lambda key, value: value > 0)}.items():
        stream.select_key(per_record(functions["record"], TEXT)).to(f"{where}-record")
        stream.select_key(per_batch(functions["pandas"], TEXT)).to(f"{where}-pandas")
        stream.select_key(per_record_async(awaited(functions["record"]), TEXT)).to(f"{where}-async")
    with TopologyTestDriver(builder, session=spark) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records([TestRecord("a", "x", timestamp=12)])
        found = {topic: driver.create_output_topic(topic, TEXT, LONG).read_key_values() for topic in driver.produced_topics}
    names = {f"{where}-{way}" for where in ("plain", "behind") for way in ("record", "pandas", "async")}
    assert {name: rows for name, rows in found.items() if name in names} == {name: [("Windowed a 10 20", 1)] for name in names}


def test_the_program_of_the_page_runs(spark: SparkSession) -> None:
    page = "how-to/functions-in-batches.md"
    names: dict[str, Any] = {"__name__": "page"}
    for block in fenced(page, (DOCS / page).read_text(encoding="utf-8")):
        if block.language == "python":
            exec(compile(block.text, page, "exec", dont_inherit=True), names)
    order, scored = names["order"], names["scored"]
    with TopologyTestDriver(names["builder"], session=spark) as driver:

        def written(topic: str, value: Any = TEXT) -> list[Any]:
            return [one for _, one in driver.create_output_topic(topic, TEXT, value).read_key_values()]

        orders = [{"customer": "ada", "amount": 150.0, "pieces": 2}, {"customer": "eve", "amount": 8.0, "pieces": 1}, None]
        driver.create_input_topic("orders", TEXT, order).pipe_records([TestRecord("k", one) for one in orders], batch=None)
        driver.create_input_topic("lines", TEXT, TEXT).pipe_input("l", "To be OR not")
        assert written("words") == ["to", "be", "or", "not"]
        assert written("risks", scored) == [{"customer": "ada", "risk": 50.0}, {"customer": "eve", "risk": 4.0}, None]
        assert len(written("countries")) == 3
        assert dict(driver.store("orders-by-risk").all()) == {"high": (1, 0), "low": (1, 0)}


def test_each_node_of_each_step_says_what_its_functions_took(spark: SparkSession, tmp_path: Any) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    flat = stream.flat_map_values(per_batch(lambda values: values.str.split(",")), name="split").peek(
        per_record_async(awaited(lambda key, value: None), max_in_flight=2), name="asked"
    )
    long = flat.filter(lambda key, value: F.length(value) > 0)
    later = long.select_key(per_batch(lambda keys, values: values, TEXT), name="by")
    later.group_by_key(key=TEXT, value=TEXT).count().to_stream().to("out", key=TEXT, value=LONG)
    program = Program(spark, builder.build(), tmp_path, default=TEXT)
    assert len(program.compiled.steps) > 1, "what a step that is not the last has called travels on with the rows"
    given = [("in", Bytes(b"a", value)) for value in (b"x,y", None, b"z,", b"")]
    calls = program._run(given).functions
    assert {name: (one.calls, one.records, one.failures) for name, one in calls.items()} == {
        "split": (1, 3, 0), "asked": (5, 5, 0), "by": (1, 3, 0)
    }  # fmt: skip
    assert {name: one.most_in_flight for name, one in calls.items()} == {"split": 0, "asked": 2, "by": 0}
    assert all(0 < one.longest_ms <= one.calls_ms for one in calls.values())


def test_a_step_in_the_middle_that_raises_is_noticed_though_the_source_waits(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    flat = builder.stream("in", key=TEXT, value=TEXT).flat_map(per_record_async(asked, (TEXT, TEXT)), name="asked")
    flat.map_values(F.upper).flat_map_values(per_batch(lambda values: values.str.split(","), TEXT)).to("out")
    # Several times: now and then the JVM hears of it by itself.
    for _ in range(4):
        with TopologyTestDriver(builder, session=spark) as driver, pytest.raises(StopError, match="the function of asked failed"):
            driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "bad")
