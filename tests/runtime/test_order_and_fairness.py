"""A backlog does not starve what is downstream; timestamps are maxima; what is processed is purged (rules 13, 24, 25)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.runtime.local_application import Place, reports_noted
from tests.waiting import until
from tidemill import Serdes, StreamsBuilder
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

CAP = 1_000
BACKLOG = 30 * CAP


@pytest.fixture
def place(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]) -> Place:
    return Place(broker.bootstrap_servers, spark, tmp_path, unique_name("order"))


def counted(place: Place) -> StreamsBuilder:
    place.create("in", "out")
    builder = StreamsBuilder()
    lines = builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.string())
    words = lines.flat_map_values(lambda v: F.split(v, " "))
    words.group_by(lambda k, v: v).count(store="counts").to_stream().to(place.topic("out"))
    return builder


def test_a_backlog_of_sources_does_not_starve_repartition_topics_and_those_are_purged_as_far_as_committed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, noted = counted(place), reports_noted(monkeypatch)
    place.send("in", [(None, f"a b{number % 50}".encode()) for number in range(BACKLOG)])
    source = TopicPartition(place.topic("in"), 0)
    repartition = TopicPartition(f"{place.name}-counts-repartition", 0)
    settings = {"tidemill.batch.max.records": CAP, "repartition.purge.interval.ms": 300}
    with place.running(builder, **settings) as streams:
        [thread] = streams.threads
        assert until(lambda: thread.metrics.ends.get(source) == BACKLOG)
        reports = list(noted)
        admin = Admin({"bootstrap.servers": place.bootstrap_servers})
        assert until(lambda: admin.beginning_offsets([repartition])[repartition] > 0)
    ends = [report.ends for report in reports if report.ends.get(source, 0) >= CAP]
    busy = ends[: next(number for number, end in enumerate(ends, 1) if end[source] == BACKLOG)]  # not those of idle batches
    assert len({end[source] for end in busy}) >= BACKLOG // CAP - 1, "the cap did not hold"
    moved = [after.get(repartition, 0) > before.get(repartition, 0) for before, after in pairwise(busy)]
    # What a batch writes is there for the next one, or, when the broker is slow to show it, for one of those after it.
    assert sum(moved) >= len(moved) // 4
    begin = admin.beginning_offsets([repartition])[repartition]
    assert 0 < begin <= committed(place, repartition)


def committed(place: Place, tp: TopicPartition) -> int:
    admin = AdminClient({"bootstrap.servers": place.bootstrap_servers})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(place.name)])[place.name].result(60)
    return max(at.offset for at in found.topic_partitions if (at.topic, at.partition) == (tp.topic, tp.partition))


@pytest.mark.parametrize("presum", [True, False])
def test_a_counts_timestamp_is_the_highest_of_what_it_counts(place: Place, presum: bool) -> None:
    builder = counted(place)
    for timestamp in (5_000, 9_000, 7_000):
        place.send("in", [(None, b"a"), (None, b"b")], timestamp_ms=timestamp)
    with place.running(builder, **{"tidemill.presum": presum}):
        place.send("in", [(None, b"a")], timestamp_ms=6_000)

        def last() -> dict[bytes, tuple[int, int]]:
            found = place.received("out", 100, limit_s=1)
            return {m.key(): (int.from_bytes(m.value(), "big"), m.timestamp()[1]) for m in found}

        assert until(lambda: last() == {b"a": (4, 9_000), b"b": (3, 9_000)}), last()
