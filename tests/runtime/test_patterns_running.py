"""On an instance: a stream of all topics that match a pattern."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.runtime.local_application import LIMIT_S, Place
from tests.waiting import until
from tidemill import Materialized, Processor, ProcessorContext, Record, Serdes, StreamsBuilder
from tidemill.deadline import Deadline
from tidemill.runtime.instance.application import KafkaStreams
from tidemill.runtime.thread.batch_runner import BatchRunner

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG = Serdes.string(), Serdes.long()


def test_all_topics_that_match_are_read(bootstrap_servers: str, spark: SparkSession, unique_name: Any, tmp_path: Path) -> None:
    place = Place(bootstrap_servers, spark, tmp_path, unique_name("patterns"))
    place.create("in-a", "counts", partitions=1)
    place.create("in-b", "out-in-c", partitions=3)
    for end, partition in (("in-a", 0), ("in-b", 0), ("in-b", 2), ("out-in-c", 1)):
        place.send(end, [(b"k", f"{end}-{partition}".encode())], partition=partition)
    builder = StreamsBuilder()
    stream = builder.stream(re.compile(re.escape(place.topic("in-")) + ".*"), key=TEXT, value=TEXT)
    stream.group_by(lambda key, value: value, key=TEXT, value=TEXT).count(store="n").to_stream().to(
        place.topic("counts"), key=TEXT, value=LONG
    )
    with place.running(builder):
        counts = sorted(message.key() for message in place.received("counts", 3))
    assert counts == [b"in-a-0", b"in-b-0", b"in-b-2"]


def counting(place: Place) -> StreamsBuilder:
    """Counts keys in a store on disk ("n", topic "counts") and one in memory (topic "kept"), and what came of each topic."""
    builder = StreamsBuilder()
    stream = builder.stream(re.compile(re.escape(place.topic("in-")) + ".*"), key=TEXT, value=TEXT)
    grouped = stream.filter(lambda key, value: key.isNotNull()).group_by_key()
    grouped.count(store="n").to_stream().to(place.topic("counts"), key=TEXT, value=LONG)
    grouped.count(store=Materialized(name="volatile", persistent=False)).to_stream().to(place.topic("kept"), key=TEXT, value=LONG)
    stream.process(OfTopic).group_by_key(key=TEXT, value=TEXT).count().to_stream().to(
        place.topic("topics"), key=TEXT, value=LONG
    )
    return builder


class OfTopic(Processor):
    """Forwards each record under the name of its topic."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        metadata = self._context.record_metadata
        assert metadata is not None
        self._context.forward(record.with_key(metadata.topic))


OTHERS = {"processing.guarantee": "at_least_once", "rebalance.protocol": "eager", "num.standby.replicas": 1}


@pytest.mark.parametrize("settings", [{"num.stream.threads": 2}, OTHERS], ids=["defaults", "at least once, eager"])
def test_topics_that_appear_are_read_while_it_runs(
    bootstrap_servers: str, spark: SparkSession, unique_name: Any, tmp_path: Path, settings: dict[str, object]
) -> None:
    """Each record counts once. The topic's place among the others is the first, so those of the others are other ones then."""
    place = Place(bootstrap_servers, spark, tmp_path, unique_name("appearing"))
    place.create("in-b", partitions=2)
    place.create("counts", "kept", "topics")
    place.send("in-b", [(b"k", b"")] * 5, partition=1)
    with place.running(counting(place), **settings, **{"kafka.metadata.max.age.ms": 500}) as streams:
        assert last_of(place, "counts", "k", 5) == last_of(place, "kept", "k", 5) == 5
        place.create("in-a", partitions=2)
        place.send("in-a", [(b"k", b"")] * 3, partition=1)
        place.send("in-b", [(b"k", b"")] * 2, partition=1)
        assert last_of(place, "counts", "k", 10) == last_of(place, "kept", "k", 10) == 10
        assert last_of(place, "topics", place.topic("in-a"), 3) == 3
        assert last_of(place, "topics", place.topic("in-b"), 7) == 7
        assert streams.store("n").get("k") == 10


def test_a_topic_that_appears_is_read_once_both_instances_have_found_it(
    bootstrap_servers: str, spark: SparkSession, unique_name: Any, tmp_path: Path
) -> None:
    place = Place(bootstrap_servers, spark, tmp_path, unique_name("both"))
    place.create("in-b", partitions=2)
    place.create("counts", "kept", "topics")
    other = {"state.dir": str(tmp_path / "other"), "kafka.metadata.max.age.ms": 3_000}
    own = {"kafka.metadata.max.age.ms": 300}
    with place.running(counting(place), **own) as one, place.running(counting(place), **other) as two:
        assert until(lambda: one.threads[0].tasks and two.threads[0].tasks)
        place.create("in-a", partitions=2)
        for number in (0, 1):
            place.send("in-a", [(b"k%d" % number, b"")] * 3, partition=number)
        for number in (0, 1):
            assert last_of(place, "counts", f"k{number}", 3) == 3
        assert one.error is two.error is None
        inputs = [str(tp) for streams in (one, two) for task in streams.threads[0].tasks.values() for tp in task.inputs]
        assert {f"{place.topic('in-a')}-{number}" for number in (0, 1)} <= {*inputs}


def test_records_that_come_during_the_change_count_also_where_latest_is_the_policy_and_nothing_was_committed(
    bootstrap_servers: str, spark: SparkSession, unique_name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(bootstrap_servers, spark, tmp_path, unique_name("latest"))
    place.create("in-b", "counts", "kept", "topics")
    place.send("in-b", [(b"k", b"")] * 5)
    changing, end_workers = list[str](), BatchRunner.end_workers

    def send_first(runner: BatchRunner) -> None:
        if not changing:
            changing.append("the plan")
            place.send("in-b", [(b"k", b"")] * 2)
        end_workers(runner)

    with place.running(counting(place), **{"auto.offset.reset": "latest", "kafka.metadata.max.age.ms": 500}) as streams:
        monkeypatch.setattr(BatchRunner, "end_workers", send_first)
        place.create("in-a")
        assert until(lambda: changing or streams.error)
        assert last_of(place, "counts", "k", 2) == 2


@pytest.mark.parametrize("settings", [{"num.stream.threads": 2}, OTHERS], ids=["defaults", "at least once, eager"])
def test_topics_that_are_deleted_end_nothing_and_are_read_again_when_they_come_back(
    bootstrap_servers: str, spark: SparkSession, unique_name: Any, tmp_path: Path, settings: dict[str, object]
) -> None:
    place = Place(bootstrap_servers, spark, tmp_path, unique_name("deleted"))
    place.create("in-a", "in-b", "in-c", partitions=2)
    place.create("counts", "kept", "topics")
    with place.running(counting(place), **settings, **{"kafka.metadata.max.age.ms": 500}) as streams:
        for end in ("in-a", "in-b"):
            place.send(end, [(b"k", b"")] * 2, partition=1)
        assert last_of(place, "counts", "k", 4) == last_of(place, "kept", "k", 4) == 4
        place.delete("in-a")
        assert until(lambda: streams.error or topics_of(streams) == {place.topic("in-b"), place.topic("in-c")})
        assert streams.error is None
        place.send("in-b", [(b"k", b"")], partition=1)
        assert last_of(place, "counts", "k", 5) == last_of(place, "kept", "k", 5) == 5
        place.create("in-a", partitions=2)
        place.send("in-a", [(b"k", b"")], partition=1)
        assert last_of(place, "counts", "k", 6) == last_of(place, "kept", "k", 6) == 6
        place.delete("in-b")
        assert until(lambda: streams.error or topics_of(streams) == {place.topic("in-a"), place.topic("in-c")})
        assert streams.error is None
        place.create("in-d", partitions=2)  # found by the look that finds in-b missing
        place.send("in-d", [(b"k", b"")], partition=1)
        assert last_of(place, "counts", "k", 7) == last_of(place, "kept", "k", 7) == 7
        assert last_of(place, "topics", place.topic("in-a"), 3) == 3
        assert streams.error is None


def topics_of(streams: KafkaStreams) -> set[str]:
    """The topics that the instance's tasks read, without repartition topics."""
    inputs = {partition.topic for thread in streams.threads for task in thread.tasks.values() for partition in task.inputs}
    return {topic for topic in inputs if not topic.endswith("-repartition")}


def last_of(place: Place, end: str, key: str, wanted: int) -> int:
    """The last count of the key, or the wanted one as soon as it comes."""
    found = 0
    with contextlib.closing(place.reader(end)) as consumer:
        limit = Deadline.after(LIMIT_S)
        while found != wanted and not limit.is_over:
            for message in consumer.consume(100, 0.2):
                if message.error() is None and message.key() == key.encode():
                    found = int.from_bytes(message.value(), "big")
    return found


@pytest.mark.parametrize("others", [False, True])
def test_a_pattern_that_matches_nothing_yet_reads_topics_when_they_appear(
    bootstrap_servers: str, spark: SparkSession, unique_name: Any, tmp_path: Path, others: bool
) -> None:
    place = Place(bootstrap_servers, spark, tmp_path, unique_name("patterns"))
    place.create("counts", "other", "copy")
    builder = StreamsBuilder()
    stream = builder.stream(re.compile(re.escape(place.topic("in-")) + ".*"), key=TEXT, value=TEXT)
    stream.group_by_key().count(store="n").to_stream().to(place.topic("counts"), key=TEXT, value=LONG)
    if others:
        builder.stream(place.topic("other"), key=TEXT, value=TEXT).to(place.topic("copy"), key=TEXT, value=TEXT)
    with place.running(builder, **{"kafka.metadata.max.age.ms": 300}) as streams:
        if others:
            place.send("other", [(b"k", b"v")])
            assert len(place.received("copy", 1)) == 1
        place.create("in-a", partitions=2)
        place.send("in-a", [(b"k", b"v")] * 3, partition=1)
        assert until(lambda: streams.error is not None or any(m.value()[-1] == 3 for m in place.received("counts", 3, limit_s=2)))
        assert streams.error is None
