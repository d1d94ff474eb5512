"""Operators on a running instance: what they keep survives a restart and the loss of the state directory."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession

from tests.runtime.local_application import Place
from tests.waiting import until
from tidemill import (
    JoinWindows,
    Materialized,
    ProcessorContext,
    QueryError,
    Record,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    per_record,
)
from tidemill.task.partition_time import PartitionTime, metadata_of

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
STRING = Serdes.string()
TEXT = {"default.key.serde": "string", "default.value.serde": "string"}


@pytest.fixture
def place(
    bootstrap_servers: str, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]
) -> Place:
    return Place(bootstrap_servers, spark, tmp_path, unique_name("operators"))


def joins_and_windows(place: Place) -> StreamsBuilder:
    b = StreamsBuilder()
    left, right = b.stream(place.topic("left")), b.stream(place.topic("right"))
    joined = left.join(right, lambda x, y: f"{x}+{y}", JoinWindows.of_time_difference(10_000))
    joined.to(place.topic("joined"))
    rekeyed = left.map(per_record(lambda k, v: (v, k), (STRING, STRING)))
    sessions = rekeyed.group_by_key().windowed_by(SessionWindows.of_inactivity_gap(5_000)).count(store="sessions")
    named = sessions.to_stream().map(per_record(lambda k, n: (k.key, f"{k.start}-{k.end}:{n}"), (STRING, STRING)))
    named.to(place.topic("sessions"))
    counted = right.group_by_key().windowed_by(TimeWindows.of_size(60_000)).count(store="minutes")
    counted.to_stream().map(per_record(lambda k, n: (k.key, f"{k.start}:{n}"), (STRING, STRING))).to(place.topic("minutes"))
    return b


def values(place: Place, end: str, count: int) -> list[tuple[bytes, bytes]]:
    return [(m.key(), m.value()) for m in place.received(end, count)]


def test_windows_sessions_and_joins_go_on_after_a_restart_and_after_their_state_was_lost(place: Place) -> None:
    place.create("left", "right", "joined", "sessions", "minutes", partitions=2)
    now = int(time.time()) // 60 * 60_000  # the broker deletes records of changelogs that are older than their retention
    with place.running(joins_and_windows(place), **TEXT):
        place.send("left", [(b"a", b"x")], timestamp_ms=now + 1_000)
        assert until(lambda: bool(place.received("sessions", 1, 1.0)))
        place.send("right", [(b"a", b"1")], timestamp_ms=now + 2_000)
        assert values(place, "joined", 1) == [(b"a", b"x+1")]
        assert values(place, "minutes", 1) == [(b"a", b"%d:1" % now)]
    with place.running(joins_and_windows(place), **TEXT):
        place.send("right", [(b"a", b"2")], timestamp_ms=now + 3_000)
        assert values(place, "joined", 2) == [(b"a", b"x+1"), (b"a", b"x+2")]
    shutil.rmtree(place.folder / place.name)
    with place.running(joins_and_windows(place), **TEXT):
        place.send("left", [(b"a", b"x")], timestamp_ms=now + 4_000)
        assert values(place, "joined", 4)[2:] == [(b"a", b"x+1"), (b"a", b"x+2")]
        assert values(place, "minutes", 2) == [(b"a", b"%d:1" % now), (b"a", b"%d:2" % now)]
        found = values(place, "sessions", 3)
        first, last = now + 1_000, now + 4_000
        assert [value for _, value in found] == [
            b"%d-%d:1" % (first, first), b"%d-%d:None" % (first, first), b"%d-%d:2" % (first, last)
        ]  # fmt: skip


def telling_times(place: Place) -> StreamsBuilder:
    """Records are never older than those before them; tells the stream time that an operator begins with."""

    class Tells:
        def init(self, context: ProcessorContext) -> None:
            self._context, self._at_first = context, context.current_stream_time_ms

        def process(self, record: Record) -> None:
            self._context.forward(record.with_value(f"{record.value}, at first {self._at_first}"))

    def never_back(record: Record, partition_time: int) -> int:
        return max(partition_time, int(record.value))

    builder = StreamsBuilder()
    builder.stream(place.topic("in"), timestamp_extractor=never_back).process(Tells).to(place.topic("out"))
    return builder


def committed_metadata(place: Place) -> list[str]:
    """What is committed with the offset of each partition."""
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=place.bootstrap_servers)) as admin:
        return [committed.metadata for committed in admin.list_group_offsets(place.name)[place.name].values()]


def test_stream_time_and_partition_times_go_on_after_a_restart(place: Place) -> None:
    place.create("in", "out")
    first = int(time.time() * 1000)
    for number, guarantee in enumerate(["exactly_once_v2", "at_least_once", "exactly_once_v2"]):
        with place.running(telling_times(place), **TEXT, **{"processing.guarantee": guarantee}):
            place.send("in", [(b"a", b"%d" % (first - number))])
            found = place.received("out", number + 1)
        zero = "\0" if guarantee == "exactly_once_v2" else ""  # which confluent-kafka adds
        wanted = [metadata_of(PartitionTime(first)) + zero]
        # A transaction's offsets may be there a moment after its records.
        assert until(lambda wanted=wanted: committed_metadata(place) == wanted), f"{guarantee}: {committed_metadata(place)}"
    assert [m.timestamp()[1] for m in found] == [first] * 3
    assert [m.value().decode().split(", at first ")[1] for m in found] == ["-1", str(first), str(first)]


def test_a_sink_sends_where_its_functions_say(place: Place) -> None:
    place.create("in", "big", "small", partitions=3)
    b = StreamsBuilder()

    big_topic, small_topic = place.topic("big"), place.topic("small")  # the function travels: it must not hold the session

    def topic_of(key: str, value: str, record: object) -> str:
        return big_topic if len(value) > 3 else small_topic

    b.stream(place.topic("in")).to(topic_of, partitioner=lambda topic, key, value, partitions: partitions - 1)
    with place.running(b, **TEXT):
        place.send("in", [(b"a", b"1"), (b"b", b"12345"), (b"c", b"2")])
        small, big = place.received("small", 2), place.received("big", 1)
    assert [(m.value(), m.partition()) for m in small] == [(b"1", 2), (b"2", 2)]
    assert [(m.value(), m.partition()) for m in big] == [(b"12345", 2)]


def test_a_stream_finds_the_rows_of_a_global_table_whatever_their_partitions(place: Place) -> None:
    place.create("in", "out", partitions=1)
    place.create("names", partitions=3)
    for number, (key, value) in enumerate([(b"1", b"one"), (b"2", b"two"), (b"3", b"three")]):
        place.send("names", [(key, value)], partition=number)
    b = StreamsBuilder()
    names = b.global_table(place.topic("names"))
    joined = b.stream(place.topic("in")).join(names, lambda v, name: f"{v}={name}", selector=lambda k, v: v)
    joined.to(place.topic("out"))
    with place.running(b, **TEXT):
        place.send("in", [(b"k", b"3"), (b"k", b"1"), (b"k", b"4")])
        assert values(place, "out", 2) == [(b"k", b"3=three"), (b"k", b"1=one")]
        place.send("names", [(b"4", b"four")], partition=1)
        assert until(lambda: (place.send("in", [(b"k", b"4")]), len(place.received("out", 3, 1.0)) == 3)[1])


def with_versions(place: Place) -> StreamsBuilder:
    b = StreamsBuilder()
    prices = b.table(place.topic("prices"), store=Materialized(name="prices", history_retention=600_000))
    names = b.global_table(place.topic("names"), store="names")
    told = prices.to_stream().join(names, lambda price, name: f"{name}: {price}", selector=lambda key, price: key)
    told.to(place.topic("out"))
    kept = b.stream(place.topic("orders")).group_by_key()
    kept.count(store=Materialized(name="orders", history_retention=600_000))
    return b


def test_versioned_stores_are_read_while_they_are_written(place: Place) -> None:
    place.create("prices", "names", "orders", "out")
    now = int(time.time() * 1000)
    place.send("names", [(b"tea", b"Tea")])
    for number in range(3):
        place.send("prices", [(b"tea", b"%d" % number)], timestamp_ms=now + number)
        place.send("orders", [(b"ada", b"x")], timestamp_ms=now + number)
    place.send("prices", [(b"cup", b"9"), (b"pot", b"1")], timestamp_ms=now)
    place.send("prices", [(b"pot", None)], timestamp_ms=now + 1)
    with place.running(with_versions(place), **TEXT) as streams:
        assert until(lambda: dict(streams.store("prices").all()) == {"tea": "2", "cup": "9"})
        assert until(lambda: streams.store("orders").get("ada") == 3)
        prices = streams.versioned_store("prices")
        assert [prices.get_as_of("tea", now + at) for at in (0, 1, 5)] == [("0", now), ("1", now + 1), ("2", now + 2)]
        assert [version.value for version in streams.versioned_store("orders").history("ada")] == [1, 2, 3]
        rows = streams.store_dataframe("prices").dataframe.select("key", "value").collect()
        assert {row.key: row.value for row in rows} == {"tea": "2", "cup": "9"}
        assert "<td>tea</td><td>2</td>" in streams.live("prices")._repr_html_()
        with pytest.raises(QueryError, match="names is a global store"):
            streams.store("names")
