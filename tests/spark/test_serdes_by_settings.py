"""What no serde is named for passes functions of Columns with the values and the bytes that it has behind Python functions: those
of a serde that a setting names, and windowed keys."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidemill import KStream, KTable, Materialized, Serdes, StreamsBuilder, TimeWindows, per_record
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark
TEXT, LONG, BYTES = Serdes.string(), Serdes.long(), Serdes.bytes()
Written = dict[str, list[Any]]


def written(spark: SparkSession, builder: StreamsBuilder, settings: dict[str, object], *sent: bytes) -> Written:
    """What the program writes to each of its topics."""
    with TopologyTestDriver(builder, {"application.id": "app", **settings}, session=spark) as driver:
        records = [TestRecord(value, value, 100 + number) for number, value in enumerate(sent)]
        driver.create_input_topic("in", BYTES, BYTES).pipe_records(records, batch=None)
        return {topic: driver.create_output_topic(topic, BYTES, BYTES).read_records() for topic in driver.produced_topics}


def of_kinds(key: object, value: object) -> str:
    return f"{type(key).__name__} {type(value).__name__}"


@pytest.mark.parametrize(
    ("serde", "sent", "kind"),
    [(Serdes.uuid(), str(uuid.UUID(int=1)).encode(), "UUID UUID"), ("json", b'{"a":1}', "dict dict"), ("json", b"5", "int int")],
)
@pytest.mark.parametrize(
    "on_the_way",
    [
        lambda stream: stream,
        lambda stream: stream.repartition(name="between"),
        lambda stream: stream.to_table(store="rows").to_stream(),
        lambda stream: stream.peek(lambda _key, _value: None),
        lambda stream: stream.merge(stream.filter(lambda _key, value: value.isNull())),
    ],
)
def test_python_functions_behind_columns_get_the_values_of_a_serde_that_a_setting_names(
    spark: SparkSession, serde: object, sent: bytes, kind: str, on_the_way: Callable[[KStream], KStream]
) -> None:
    builder = StreamsBuilder()
    passed = on_the_way(builder.stream("in")).filter(lambda _key, value: value.isNotNull())
    passed.map_values(per_record(of_kinds, TEXT)).to("kinds")
    passed.group_by_key().reduce(lambda _first, second: second, store="last").to_stream().to("last")
    out = written(spark, builder, {"default.key.serde": serde, "default.value.serde": serde}, sent)
    assert [(record.key, record.value) for record in out["kinds"]] == [(sent, kind.encode())]
    assert [(record.key, record.value) for record in out["last"]] == [(sent, sent)]
    assert [(record.key, record.value) for record in out["app-last-changelog"]] == [(sent, sent)]


def counted(builder: StreamsBuilder, *, is_cogrouped: bool, names_serdes: bool) -> KTable:
    stream = builder.stream("in", key=TEXT, value=TEXT) if names_serdes else builder.stream("in")
    store, windows = Materialized(name="counts", value=LONG), TimeWindows.of_size(10)
    if is_cogrouped:
        cogrouped = stream.group_by_key().cogroup(lambda _key, _value, so_far: so_far + 1)
        return cogrouped.windowed_by(windows).aggregate(lambda: 0, store=store)
    return stream.group_by_key().windowed_by(windows).count(store=store)


@pytest.mark.parametrize(
    "below",
    [
        lambda table: table.map_values(lambda value: value + 1, store=Materialized(name="more", value=LONG)).to_stream(),
        lambda table: table.map_values(lambda value: value + 1, value=LONG).to_stream(),
        lambda table: table.map_values(lambda value: value + 1, value=LONG).to_stream().to_table(store="more").to_stream(),
    ],
)
@pytest.mark.parametrize(("is_cogrouped", "names_serdes"), [(True, True), (True, False), (False, False)])
def test_windowed_keys_without_a_named_serde_stay_windowed_keys(
    spark: SparkSession, is_cogrouped: bool, names_serdes: bool, below: Callable[[KTable], KStream]
) -> None:
    settings: dict[str, object] = {} if names_serdes else {"default.key.serde": "string", "default.value.serde": "string"}
    builder = StreamsBuilder()
    below(counted(builder, is_cogrouped=is_cogrouped, names_serdes=names_serdes)).to("out", value=LONG)
    key, value = b"a" + (100).to_bytes(8, "big"), (2).to_bytes(8, "big")
    out = written(spark, builder, settings, b"a")
    for topic in out.keys() & {"out", "app-more-changelog"}:
        assert [(record.key, record.value) for record in out[topic]] == [(key, value)]
    assert "out" in out
