"""Programs in Python beside Kafka Streams' answers for the same programs in Java, to the character."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill import Materialized, Serdes, StreamsBuilder
from tidemill.dsl.stream import KStream
from tidemill.topology.describe import to_json, to_mermaid
from tidemill.topology.graph import copartition_groups, internal_topics, subtopologies

VECTORS = Path(__file__).parents[1] / "vectors" / "topologies.jsonl.gz"
PROGRAMS: dict[str, Callable[[StreamsBuilder], None]] = {}


def program(build: Callable[[StreamsBuilder], None]) -> Callable[[StreamsBuilder], None]:
    """Registers a program under its name in the vectors."""
    PROGRAMS[build.__name__] = build
    return build


def true(key: Any, value: Any) -> Any:
    return key == key


def new(*arguments: Any) -> Any:
    return arguments


def of_record(key: Any, value: Any) -> Any:
    return value


def of_value(value: Any) -> Any:
    return value


def nothing(key: Any, value: Any) -> None:
    """What peek and foreach do here."""


# --- the programs, by their names in the vectors --------------------------------------------------------------------


@program
def wordcount_demo(b: StreamsBuilder) -> None:
    source = b.stream("streams-plaintext-input")
    counts = source.flat_map_values(of_value).group_by(of_record).count()
    counts.to_stream().to("streams-wordcount-output", key=Serdes.string(), value=Serdes.long())


@program
def wordcount_article_named_store(b: StreamsBuilder) -> None:
    counts = b.stream("streams-plaintext-input").flat_map_values(of_value).group_by(of_record).count(store="counts-store")
    counts.to_stream().to("streams-wordcount-output", key=Serdes.string(), value=Serdes.long())


@program
def pipe(b: StreamsBuilder) -> None:
    b.stream("streams-plaintext-input").to("streams-pipe-output")


@program
def line_split(b: StreamsBuilder) -> None:
    b.stream("streams-plaintext-input").flat_map_values(of_value).to("streams-linesplit-output")


@program
def source_only(b: StreamsBuilder) -> None:
    b.stream("in")


@program
def multi_topic_source(b: StreamsBuilder) -> None:
    b.stream(["in-b", "in-a", "in-c"]).map_values(of_value).to("out")


@program
def pattern_source(b: StreamsBuilder) -> None:
    b.stream(re.compile("in-[a-z]+")).filter(true).to("out")


@program
def filter_map_foreach(b: StreamsBuilder) -> None:
    b.stream("in").filter(true).filter_not(true).map(of_record).peek(nothing).foreach(nothing)


@program
def named_stateless(b: StreamsBuilder) -> None:
    s = b.stream("in", name="my-source")
    s.filter(true, name="my-filter").map_values(of_value, name="my-map").to("out", name="my-sink")


@program
def select_key_then_to(b: StreamsBuilder) -> None:
    b.stream("in").select_key(of_record).to("out")


@program
def merge_two(b: StreamsBuilder) -> None:
    first, second = b.stream("a"), b.stream("b")
    first.merge(second).to("out")


@program
def merge_three_named(b: StreamsBuilder) -> None:
    first, second, third = b.stream("a"), b.stream("b"), b.stream("c")
    first.merge(second, name="ab").merge(third, name="abc").to("out")


@program
def two_independent_pipelines(b: StreamsBuilder) -> None:
    b.stream("a").to("x")
    b.stream("b").to("y")


@program
def split_default(b: StreamsBuilder) -> None:
    branches = b.stream("in").split().branch(true).branch(true).default_branch()
    for name in sorted(branches):
        branches[name].to("out" + name)


@program
def split_named(b: StreamsBuilder) -> None:
    def changed(s: KStream) -> None:
        s.map_values(of_value).to("b-out")

    (b.stream("in").split(name="split-")
      .branch(true, name="a", consumer=lambda s: s.to("a-out"))
      .branch(true, consumer=changed)  # in Java, too, withConsumer drops the name that was given before
      .default_branch(name="rest", consumer=lambda s: s.to("rest")))


@program
def repartition_default(b: StreamsBuilder) -> None:
    b.stream("in").repartition().to("out")


@program
def repartition_named_4(b: StreamsBuilder) -> None:
    b.stream("in").select_key(of_record).repartition(name="by-value", partitions=4).to("out")


@program
def repartition_then_count(b: StreamsBuilder) -> None:
    b.stream("in").select_key(of_record).repartition(name="rp").group_by_key().count().to_stream().to("out")


@program
def group_by_key_reduce_named(b: StreamsBuilder) -> None:
    reduced = b.stream("in").group_by_key().reduce(lambda a, v: a + v, name="my-reduce", store="reduce-store")
    reduced.to_stream(name="to-stream").to("out")


@program
def count_in_memory_caching_off(b: StreamsBuilder) -> None:
    store = Materialized(name="mem", persistent=False, caching=False)
    b.stream("in").group_by_key().count(store=store).to_stream().to("out")


@program
def two_counts_same_key_change(b: StreamsBuilder) -> None:
    s = b.stream("in").select_key(of_record)
    s.group_by_key().count(store="c1").to_stream().to("o1")
    s.group_by_key().reduce(lambda a, v: v, store="r1").to_stream().to("o2")


@program
def table_to_stream(b: StreamsBuilder) -> None:
    b.table("in").to_stream().to("out")


@program
def table_materialized(b: StreamsBuilder) -> None:
    b.table("in", store="tbl").to_stream().to("out")


@program
def table_filter_mapvalues(b: StreamsBuilder) -> None:
    b.table("in").filter(true).map_values(of_value).to_stream().to("out")


@program
def table_filter_materialized(b: StreamsBuilder) -> None:
    b.table("in", store="t").filter(true, store="f").map_values(of_value, name="mv", store="m").to_stream().to("out")


@program
def stream_to_table(b: StreamsBuilder) -> None:
    b.stream("in").to_table().to_stream().to("out")


@program
def diamond_shared_source(b: StreamsBuilder) -> None:
    s = b.stream("in")
    one, other = s.filter(true), s.map_values(of_value)
    one.merge(other).to("out")
    one.to("a-out")
    other.to("b-out")


@program
def through_replacement_chain(b: StreamsBuilder) -> None:
    first = b.stream("in").select_key(of_record).repartition(name="step1").map_values(of_value)
    first.select_key(of_record).repartition(name="step2").map_values(of_value).to("out")


@program
def values_and_keys_flatmap(b: StreamsBuilder) -> None:
    counts = b.stream("in").flat_map(of_record).group_by_key(name="fm").count(name="cnt")
    counts.to_stream(name="ts").map_values(of_value, name="mv").to("out", name="snk")


# --- the answers -----------------------------------------------------------------------------------------------------


def vectors() -> dict[str, dict[str, Any]]:
    with gzip.open(VECTORS, "rt") as lines:
        return {vector["id"]: vector for vector in map(json.loads, lines)}


CASES = {name: vector for name, vector in vectors().items() if vector["name"] in PROGRAMS}


def built(vector: dict[str, Any]) -> Any:
    builder = StreamsBuilder()
    PROGRAMS[vector["name"]](builder)
    return builder.build(optimization=vector["topology_optimization"])


def test_every_program_is_in_the_vectors() -> None:
    assert set(PROGRAMS) == {vector["name"] for vector in CASES.values()}


@pytest.mark.parametrize("case", CASES)
def test_describe_equals_kafkas_text(case: str) -> None:
    assert built(CASES[case]).describe() == CASES[case]["describe"]


@pytest.mark.parametrize("case", CASES)
def test_subtopologies_have_kafkas_numbers_topics_and_stores(case: str) -> None:
    found = [
        {
            "subtopology": part.id,
            "source_topics": list(part.source_topics),
            "sink_topics": list(part.sink_topics),
            "repartition_source_topics": list(part.repartition_source_topics),
            "changelog_topics": list(part.changelog_topics),
            "source_topic_changelogs": list(part.source_topic_changelogs),
            "state_stores": list(part.state_stores),
        }
        for part in subtopologies(built(CASES[case]), "app")
        if part.source_topics  # Kafka leaves out those that only read patterns, until topics are known
    ]
    assert found == CASES[case]["subtopologies"]


@pytest.mark.parametrize("case", CASES)
def test_internal_topics_have_kafkas_names_and_settings(case: str) -> None:
    found = {
        name: {
            "class": topic.kind.value,
            "partitions": topic.partitions,
            "enforced_partitions": topic.has_enforced_partitions,
            "properties": topic.properties(),
        }
        for name, topic in internal_topics(built(CASES[case]), "app").items()
    }
    assert found == CASES[case]["internal_topics"]


@pytest.mark.parametrize("case", CASES)
def test_copartition_groups_are_kafkas(case: str) -> None:
    found = [f"[{', '.join(group)}]" for group in copartition_groups(built(CASES[case]), "app")]
    assert found == CASES[case]["copartition_groups"]


@pytest.mark.parametrize("case", CASES)
def test_json_and_mermaid_name_every_node(case: str) -> None:
    topology = built(CASES[case])
    nodes = [node for part in json.loads(to_json(topology))["subtopologies"] for node in part["nodes"]]
    assert sorted(node["name"] for node in nodes) == sorted(topology.nodes)
    assert all(f'["{name}"]' in to_mermaid(topology) for name in topology.nodes)
