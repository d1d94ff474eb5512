"""Filters and mappings of tables by Columns with a versioned store: versions and changes as with Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import KTable, Materialized, Serdes, StreamsBuilder, per_record
from tidemill.spark.plan.planned_topology import planned
from tidemill.testing import TestRecord, TopologyTestDriver
from tidemill.topology.nodes import processor_node
from tidemill.topology.operations import TableFilter, TableSource

pytestmark = pytest.mark.spark
TEXT, LONG = Serdes.string(), Serdes.long()
SENT = (
    ("x", 500), (None, 600), ("v1", 1000), ("v22", 1500), ("v0", 900), ("x", 1200), ("w", 1600), (None, 1550), ("x", 2000),
    ("x", 2100), (None, 2200), ("late", 2150), ("too late", 1),
)  # fmt: skip
GIVEN = [TestRecord(key="k", value=value, timestamp=at) for value, at in SENT]
CONFIG = {"application.id": "app", "statestore.cache.max.bytes": 0}
Way = Callable[[Callable[..., Any], Callable[..., Any], Any], Any]
"""Of a function of Columns and one of Python values, the one that the program is written with."""


def columns(of: Callable[..., Any], _python: Callable[..., Any], _serde: Any = None) -> Any:
    return of


def python(_of: Callable[..., Any], function: Callable[..., Any], serde: Any = None) -> Any:
    return per_record(function, serde)


def versions(name: str = "kept", value: Any = TEXT) -> Materialized:
    return Materialized(name=name, key=TEXT, value=value, history_retention=2000)


def filtered(table: KTable, way: Way) -> KTable:
    return table.filter(way(lambda _, v: ~v.startswith("x"), lambda _, v: not v.startswith("x"), None), store=versions())


def measured(table: KTable, way: Way) -> KTable:
    return table.map_values(way(lambda v: F.length(v).cast("bigint"), len, LONG), store=versions(value=LONG))


def in_store(builder: StreamsBuilder, store: Any) -> KTable:
    return builder.stream("in", key=TEXT, value=TEXT).to_table(store=store)


PROGRAMS: dict[str, Callable[[StreamsBuilder, Way], KTable]] = {
    "a filter": lambda b, way: filtered(b.table("in", key=TEXT, value=TEXT), way),
    "a filter of a table with a store": lambda b, way: filtered(in_store(b, "rows"), way),
    "a filter of a versioned table": lambda b, way: filtered(in_store(b, versions("rows")), way),
    "a mapping": lambda b, way: measured(b.table("in", key=TEXT, value=TEXT), way),
    "a mapping of a versioned table": lambda b, way: measured(in_store(b, versions("rows")), way),
    "a grouped filter": lambda b, way: filtered(b.table("in", key=TEXT, value=TEXT), way)
    .group_by(lambda _, v: (v, v), key=TEXT, value=TEXT)
    .count(),
}


def written(spark: SparkSession, program: str, way: Way, batch: int) -> Any:
    """What was sent, the changelog of the versions, and the versions, as values."""
    builder = StreamsBuilder()
    PROGRAMS[program](builder, way).to_stream().to("out")
    with TopologyTestDriver(builder, CONFIG, session=spark) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(GIVEN, batch=batch)
        topics = [driver.create_output_topic(topic, Serdes.bytes(), Serdes.bytes()) for topic in ("out", "app-kept-changelog")]
        return *(topic.read_records() for topic in topics), list(driver.store("kept").history("k", 0, 3000))


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("program", PROGRAMS)
def test_versions_made_by_columns_are_those_made_by_python(spark: SparkSession, program: str, batch: int) -> None:
    """As answers of Kafka Streams say of the latter."""
    expected = written(spark, program, python, 1)
    assert len(expected[-1]) > 1
    assert written(spark, program, columns, batch) == expected


def test_a_stream_finds_the_version_of_its_time(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    table = PROGRAMS["a filter"](builder, columns)
    asked_for = builder.stream("asked", key=TEXT, value=TEXT)
    asked_for.join(table, per_record(lambda asked, found: f"{asked} {found}", TEXT)).to("out")
    with TopologyTestDriver(builder, CONFIG, session=spark) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(GIVEN)
        asked = driver.create_input_topic("asked", TEXT, TEXT)
        for at in (950, 1100, 1300, 1500):
            asked.pipe_input("k", str(at), timestamp=at)
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["950 v0", "1100 v1", "1500 v22"]


def test_the_plan_has_a_function_above_a_table() -> None:
    builder = StreamsBuilder()
    PROGRAMS["a filter of a table with a store"](builder, columns).to_stream().to("out")
    found = planned(builder.build())
    name = next(name for name, node in found.nodes.items() if "kept" in getattr(node, "stores", ()))
    assert processor_node(found, name).operation == TableSource("kept", drops_null_changes=True)
    (above,) = found.parents[name]
    function = processor_node(found, above)
    assert isinstance(function.operation, TableFilter)
    assert function.operation.store is None
    assert not function.stores
    assert planned(found) == found
