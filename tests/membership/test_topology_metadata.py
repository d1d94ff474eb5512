"""What the leader knows of a built topology is what recorded topologies say of the same program."""

import gzip
import json
from pathlib import Path

import pytest

from tidemill import Serdes, StreamsBuilder, TimeWindows
from tidemill.membership.topology_metadata import topology_metadata
from tidemill.replay.end_to_end import topology_of

VECTORS = Path(__file__).parents[1] / "vectors"


def _recorded():
    with gzip.open(VECTORS / "topologies.jsonl.gz", "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    with open(VECTORS / "topologies_of_e2e.jsonl", encoding="utf-8") as file:
        found += [json.loads(line) for line in file]
    return {topology["id"]: topology for topology in found}


RECORDED = _recorded()


def wordcount_demo(b):
    words = b.stream("streams-plaintext-input").flat_map_values(lambda v: v)
    words.group_by(lambda k, v: v).count().to_stream().to("streams-wordcount-output", key=Serdes.string(), value=Serdes.long())


def group_by_key_count(b):
    b.stream("in").group_by_key().count().to_stream().to("out")


def repartition_named_4(b):
    b.stream("in").repartition(name="my-rep", partitions=4).to("out")


def pipe(b):
    b.stream("streams-plaintext-input").to("streams-pipe-output")


@pytest.mark.parametrize("program", [wordcount_demo, group_by_key_count, pipe])
def test_topology_of_a_built_topology_are_those_recorded_of_kafkas(program):
    builder = StreamsBuilder()
    program(builder)
    metadata = topology_metadata(builder.build(optimization="all"), "app")
    recorded = topology_of(RECORDED[f"{program.__name__}/all"])
    assert metadata == recorded
    assert metadata.source_topics == {topic for part in recorded.subtopologies for topic in part.source_topics}


def test_the_programs_own_number_of_partitions_is_enforced():
    builder = StreamsBuilder()
    repartition_named_4(builder)
    (topic,) = topology_metadata(builder.build(), "app").internal_topics.values()
    assert (topic.name, topic.enforced_partitions, topic.is_repartition) == ("app-my-rep-repartition", 4, True)


def test_topic_defaults_reach_internal_topics():
    builder = StreamsBuilder()
    group_by_key_count(builder)
    (topic,) = topology_metadata(builder.build(), "app", topic_defaults={"min.insync.replicas": "2"}).internal_topics.values()
    assert topic.settings == {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "min.insync.replicas": "2"}


def test_changelogs_of_windows_keep_rows_longer_than_their_stores_as_the_setting_says():
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size(1000, grace=500))
    windowed.count(store="counts")
    (topic,) = topology_metadata(builder.build(), "app", additional_retention_ms=7).internal_topics.values()
    assert (topic.settings["cleanup.policy"], topic.settings["retention.ms"]) == ("compact,delete", "1507")
    (topic,) = topology_metadata(builder.build(), "app").internal_topics.values()
    assert topic.settings["retention.ms"] == str(1500 + 86_400_000)


def test_a_global_table_has_no_tasks_and_no_internal_topic():
    builder = StreamsBuilder()
    table = builder.global_table("ref")
    builder.stream("in").join(table, lambda value, row: row, selector=lambda key, value: key).to("out")
    metadata = topology_metadata(builder.build(), "app")
    assert ([part.subtopology for part in metadata.subtopologies], metadata.source_topics) == ([1], {"in"})
    assert metadata.internal_topics == {}
