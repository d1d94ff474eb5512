"""Programs in Python beside Kafka Streams' answers for the same programs in Java, to the character."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tidemill import (
    Joined,
    JoinWindows,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyBuilder,
)
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


def pair(key: Any, value: Any) -> Any:
    return key, value


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
    b.stream("in").filter(true).filter_not(true).map(pair).peek(nothing).foreach(nothing)


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


# --- the programs with windows, joins, tables and processors ---------------------------------------------------------


def joiner(left: Any, right: Any) -> Any:
    return left


def aggregated(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate


def reduced(aggregate: Any, value: Any) -> Any:
    return aggregate


class Noop:
    """A processor and a fixed-key processor that does nothing."""

    def process(self, record: Any) -> None:
        pass


class RouteByKey:
    def __call__(self, key: Any, value: Any, record: Any) -> Any:
        return key


MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
FIVE_MINUTES = JoinWindows.of_time_difference(5 * MINUTE)


@program
def topic_name_extractor(b: StreamsBuilder) -> None:
    b.stream("in").to(RouteByKey())


@program
def two_counts_unnamed_key_change(b: StreamsBuilder) -> None:
    s = b.stream("in").map(pair)
    s.group_by_key().count().to_stream().to("o1")
    s.filter(true).group_by_key().count().to_stream().to("o2")
    s.group_by_key().windowed_by(TimeWindows.of_size(SECOND)).count()


@program
def windowed_tumbling(b: StreamsBuilder) -> None:
    counts = b.stream("in").group_by_key().windowed_by(TimeWindows.of_size(5 * MINUTE)).count()
    counts.to_stream().map(pair).to("out", key=Serdes.string(), value=Serdes.long())


@program
def windowed_hopping_grace_named(b: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(5 * MINUTE, advance=MINUTE, grace=MINUTE)
    b.stream("in").group_by(of_record).windowed_by(windows).count(store="hop-store").to_stream().to("out")


@program
def windowed_sliding(b: StreamsBuilder) -> None:
    windows = SlidingWindows.of_time_difference(30 * SECOND, grace=10 * SECOND)
    b.stream("in").group_by_key().windowed_by(windows).reduce(reduced).to_stream().to("out")


@program
def windowed_session(b: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap(30 * MINUTE, grace=5 * MINUTE)
    sessions = b.stream("in").group_by_key().windowed_by(windows)
    sessions.aggregate(str, aggregated, lambda key, first, second: first).to_stream().to("out")


@program
def windowed_session_named(b: StreamsBuilder) -> None:
    sessions = b.stream("in").group_by(of_record, name="users").windowed_by(SessionWindows.of_inactivity_gap(30 * MINUTE))
    sessions.count(name="session-count", store="session-store").to_stream().to("out")


@program
def windowed_count_suppress_until_close(b: StreamsBuilder) -> None:
    counts = b.stream("in").group_by_key().windowed_by(TimeWindows.of_size(5 * MINUTE, grace=MINUTE)).count()
    counts.suppress(Suppressed.until_window_closes()).to_stream().to("out")


@program
def table_group_by_count(b: StreamsBuilder) -> None:
    b.table("in").group_by(of_record).count().to_stream().to("out")


@program
def table_group_by_aggregate_named(b: StreamsBuilder) -> None:
    grouped = b.table("in").group_by(of_record, name="by-region")
    grouped.aggregate(int, aggregated, aggregated, store="regions").to_stream().to("out")


@program
def stream_stream_join(b: StreamsBuilder) -> None:
    left, right = b.stream("left"), b.stream("right")
    left.join(right, joiner, FIVE_MINUTES).to("out")


@program
def stream_stream_left_join_named(b: StreamsBuilder) -> None:
    left, right = b.stream("left"), b.stream("right")
    windows = JoinWindows.of_time_difference(5 * MINUTE, grace=MINUTE)
    left.left_join(right, joiner, windows, joined=StreamJoined(store_name="my-join", name="join-op")).to("out")


@program
def stream_stream_outer_join(b: StreamsBuilder) -> None:
    left, right = b.stream("left"), b.stream("right")
    left.outer_join(right, joiner, FIVE_MINUTES).to("out")


@program
def stream_stream_join_rekeyed_both(b: StreamsBuilder) -> None:
    left, right = b.stream("left").select_key(of_record), b.stream("right").map(pair)
    left.join(right, joiner, FIVE_MINUTES).to("out")


@program
def stream_stream_join_rekeyed_named(b: StreamsBuilder) -> None:
    left, right = b.stream("left").select_key(of_record), b.stream("right")
    left.join(right, joiner, FIVE_MINUTES, joined=StreamJoined(store_name="jstore", name="jname")).to("out")


@program
def self_join(b: StreamsBuilder) -> None:
    s = b.stream("in")
    s.join(s, joiner, FIVE_MINUTES).to("out")


@program
def stream_table_join(b: StreamsBuilder) -> None:
    s, t = b.stream("events"), b.table("users")
    s.join(t, joiner).to("out")


@program
def stream_table_join_named(b: StreamsBuilder) -> None:
    s, t = b.stream("events").select_key(of_record), b.table("users", store="users-store")
    s.join(t, joiner, name="enrich").to("out")


@program
def stream_versioned_table_join_grace(b: StreamsBuilder) -> None:
    s = b.stream("events")
    t = b.table("users", store=Materialized(name="v-users", history_retention=timedelta(hours=1)))
    s.join(t, joiner, joined=Joined(name="grace-join", grace=MINUTE)).to("out")


@program
def table_table_outer_join_materialized(b: StreamsBuilder) -> None:
    left, right = b.table("left", store="ls"), b.table("right", store="rs")
    left.outer_join(right, joiner, name="tj", store="joined").to_stream().to("out")


@program
def foreign_key_join(b: StreamsBuilder) -> None:
    orders, users = b.table("orders"), b.table("users")
    orders.join(users, joiner, foreign_key=of_value).to_stream().to("out")


@program
def global_table_join(b: StreamsBuilder) -> None:
    g = b.global_table("ref")
    b.stream("in").join(g, joiner, selector=of_record).to("out")


@program
def global_table_left_join_materialized(b: StreamsBuilder) -> None:
    g = b.global_table("ref", store="ref-store")
    b.stream("in").left_join(g, joiner, selector=of_record, name="gjoin").to("out")


@program
def process_with_store(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.key_value_store("kv", key=Serdes.string(), value=Serdes.long()))
    b.stream("in").process(Noop, "kv").to("out")


@program
def process_values_named_shared_store(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.key_value_store("shared", persistent=False))
    b.stream("a").process_values(Noop, "shared", name="pa").to("oa")
    b.stream("b").process_values(Noop, "shared", name="pb").to("ob")


@program
def same_topic_table_and_stream(b: StreamsBuilder) -> None:
    t = b.table("users")
    counts = b.stream("clicks").join(t, joiner).group_by_key().count(store="clicks-per-user")
    counts.to_stream().to("out")
    t.to_stream().filter(true).to("users-out")


@program
def optimizable_repartition_merge(b: StreamsBuilder) -> None:
    mapped = b.stream("input").map(pair)
    counts = mapped.group_by_key().count(store="count-store")
    mapped.filter(true).group_by_key().aggregate(int, aggregated, store="agg-store").to_stream().to("agg")
    mapped.group_by_key().reduce(reduced, store="reduce-store").to_stream().to("reduce")
    windows = JoinWindows.of_time_difference(5 * SECOND)
    mapped.filter(true).join(counts.to_stream(), joiner, windows).to("joined")


@program
def join_after_aggregation(b: StreamsBuilder) -> None:
    s = b.stream("orders")
    s.join(s.group_by_key().count(), joiner).to("out")


@program
def windowed_join_then_window_count(b: StreamsBuilder) -> None:
    left, right = b.stream("impressions"), b.stream("clicks")
    pairs = left.left_join(right, joiner, JoinWindows.of_time_difference(MINUTE, grace=10 * SECOND))
    counts = pairs.group_by(of_record).windowed_by(TimeWindows.of_size(timedelta(hours=1))).count(store="ctr")
    counts.to_stream(of_record).to("out", key=Serdes.string(), value=Serdes.long())


@program
def copartitioned_three_joins(b: StreamsBuilder) -> None:
    s, t1, t2, g = b.stream("s"), b.table("t1"), b.table("t2"), b.global_table("g")
    s.join(t1, joiner).left_join(t2, joiner).join(g, joiner, selector=of_record).to("out")


@program
def global_store_processor(b: StreamsBuilder) -> None:
    store = Stores.key_value_store("gs", persistent=False, logged=False)
    b.add_global_store(store, "gtopic", Noop, key=Serdes.string(), value=Serdes.string())
    b.stream("in").to("out")


# --- node by node ----------------------------------------------------------------------------------------------------


def papi_linear() -> TopologyBuilder:
    store = Stores.key_value_store("Counts", persistent=False, key=Serdes.string(), value=Serdes.integer())
    b = TopologyBuilder().add_source("Source", "in").add_processor("Process", Noop, "Source")
    return b.add_state_store(store, "Process").add_sink("Sink", "out", "Process")


def papi_shared_store_merges_subtopologies() -> TopologyBuilder:
    b = TopologyBuilder().add_source("s1", "a").add_processor("p1", Noop, "s1")
    b.add_source("s2", "b").add_processor("p2", Noop, "s2")
    return b.add_state_store(Stores.key_value_store("st"), "p1", "p2").add_sink("k", "out", "p1", "p2")


def papi_fan_in_fan_out() -> TopologyBuilder:
    b = TopologyBuilder().add_source("src-b", "b").add_source("src-a", "a", "a2")
    b.add_processor("join", Noop, "src-a", "src-b").add_processor("left", Noop, "join").add_processor("right", Noop, "join")
    return b.add_sink("out-l", "ol", "left").add_sink("out-r", "or", "right", "left")


def papi_reset_offset_pattern() -> TopologyBuilder:
    b = TopologyBuilder().add_source("ps", re.compile("logs-.*"), offset_reset="earliest")
    return b.add_sink("dyn", RouteByKey(), "ps")


WRITTEN_BY_HAND: dict[str, Callable[[], TopologyBuilder]] = {
    build.__name__: build
    for build in (papi_linear, papi_shared_store_merges_subtopologies, papi_fan_in_fan_out, papi_reset_offset_pattern)
}


# --- the answers -----------------------------------------------------------------------------------------------------


def vectors() -> dict[str, dict[str, Any]]:
    with gzip.open(VECTORS, "rt") as lines:
        return {vector["id"]: vector for vector in map(json.loads, lines)}


CASES = vectors()


def built(vector: dict[str, Any]) -> Any:
    if vector["api"] == "processor":
        return WRITTEN_BY_HAND[vector["name"]]().build()
    builder = StreamsBuilder()
    PROGRAMS[vector["name"]](builder)
    return builder.build(optimization=vector["topology_optimization"])


def test_every_vector_has_its_program() -> None:
    assert len(CASES) == 141
    assert {*PROGRAMS, *WRITTEN_BY_HAND} == {vector["name"] for vector in CASES.values()}


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
        if part.source_topics  # Kafka leaves out global ones, and those that only read patterns, until topics are known
    ]
    assert found == CASES[case]["subtopologies"]


@pytest.mark.parametrize("case", CASES)
def test_internal_topics_have_kafkas_names_and_settings(case: str) -> None:
    found = {
        name: {
            "class": topic.kind.value,
            "partitions": topic.partitions,
            "enforced_partitions": topic.partitions is not None,
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
