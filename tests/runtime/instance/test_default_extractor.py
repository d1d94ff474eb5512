"""``default.timestamp.extractor``: the times of sources that have no extractor of their own."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tidemill import Record, Serdes, SourceRecord, StreamsBuilder
from tidemill.config.slices import TopologyConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError, TopologyError
from tidemill.runtime.instance.configured_topology import configured_topology
from tidemill.steps.timestamp_extractors import extractor_function
from tidemill.topology.nodes import SourceNode

TEXT = Serdes.string()


def own(record: SourceRecord, _partition_time: int) -> int:
    return record.timestamp


def default(record: SourceRecord, _partition_time: int) -> int:
    return record.timestamp + 1


NOT_CALLABLE = 1


def of_one_argument(record: SourceRecord) -> int:
    return record.timestamp


def extractors(given: object) -> dict[str, Any]:
    """Extractor by topic."""
    builder = StreamsBuilder()
    builder.stream("own", key=TEXT, value=TEXT, timestamp_extractor=own).to("out")
    builder.global_table("global", key=TEXT, value=TEXT)
    builder.table("table", key=TEXT, value=TEXT)
    builder.stream("open", key=TEXT, value=TEXT).repartition(name="between").to("out")
    needed = {"application.id": "app", "bootstrap.servers": "localhost:9092"}
    config = StreamsConfig.of({**needed, "default.timestamp.extractor": given})
    nodes = configured_topology(builder, config.slice(TopologyConfig)).nodes.values()
    return {topic: node.timestamp_extractor for node in nodes if isinstance(node, SourceNode) for topic in node.topics}


@pytest.mark.parametrize("given", [default, f"{__name__}:default"])
def test_it_is_for_sources_of_the_program_that_have_none(given: object) -> None:
    assert extractors(given) == {
        "own": own, "global": None, "table": default, "open": default, "between-repartition": None,
    }  # fmt: skip


def test_kafka_streams_default_is_none_at_all() -> None:
    assert extractors("org.apache.kafka.streams.processor.FailOnInvalidTimestamp") == extractors("FailOnInvalidTimestamp")
    assert extractors("FailOnInvalidTimestamp")["open"] is None


def test_kafka_streams_own_classes_are_known() -> None:
    at = [SourceRecord.of(Record(None, None, stamp), "open", 0, 3) for stamp in (7, -1)]
    skip, use, clock = (
        extractor_function(extractors(name)["open"])
        for name in ("LogAndSkipOnInvalidTimestamp", "UsePartitionTimeOnInvalidTimestamp", "WallclockTimestampExtractor")
    )
    assert [skip(record, 9) for record in at] == [7, -1]
    assert [use(record, 9) for record in at] == [7, 9]
    with pytest.raises(ValueError, match="no time is known"):
        use(at[1], -1)
    before = time.time_ns() // 1_000_000
    assert before <= clock(at[0], 9) <= time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("SomeExtractor", "LogAndSkipOnInvalidTimestamp"), (5, "module:function"), ("no.such.module:f", "can't be imported"),
        (f"{__name__}:NOT_CALLABLE", "is no function"),
    ],
)  # fmt: skip
def test_what_is_none_is_refused(given: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        extractors(given)


def test_one_of_other_arguments_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"default\.timestamp\.extractor"):
        extractors(of_one_argument)
