"""Sub-topologies and internal topics of topologies that are put together by hand."""

from __future__ import annotations

from dataclasses import replace

from tidemill import JoinWindows, Materialized, Serdes, Stores, StreamJoined, StreamsBuilder, TimeWindows, Topology
from tidemill.topology.graph import (
    changelog_of,
    copartition_groups,
    internal_topics,
    keys_are_placed,
    node_groups,
    subtopologies,
    united,
)
from tidemill.topology.nodes import BATCH_SINK, ProcessorNode, RepartitionTopic, SinkNode, SourceNode, place_of_sink
from tidemill.topology.operations import PassThrough


def topology(*nodes: SourceNode | ProcessorNode | SinkNode, parents: dict[str, tuple[str, ...]]) -> Topology:
    return Topology(
        nodes={node.name: node for node in nodes},
        parents={node.name: parents.get(node.name, ()) for node in nodes},
        stores={},
        repartition_topics={"inner-repartition": RepartitionTopic(name="inner-repartition")},
    )


def processor(name: str, *stores: str) -> ProcessorNode:
    return ProcessorNode(name=name, operation=PassThrough(), stores=stores)


def test_nodes_that_share_a_store_are_in_one_subtopology() -> None:
    made = topology(
        SourceNode(name="s1", topics=("a",)), SourceNode(name="s2", topics=("b",)), SourceNode(name="s3", topics=("c",)),
        processor("p1", "shared"), processor("p2", "shared"), processor("p3", "own"),
        parents={"p1": ("s1",), "p2": ("s3",), "p3": ("s2",)},
    )
    assert node_groups(made) == (("s1", "s3", "p1", "p2"), ("s2", "p3"))


def test_subtopologies_are_numbered_by_their_first_node_not_by_name() -> None:
    made = topology(
        SourceNode(name="z", topics=("z",)), SourceNode(name="a", topics=("a",)), parents={}
    )
    assert [part.source_topics for part in subtopologies(made, "app")] == [("z",), ("a",)]


def test_internal_topics_carry_the_application_id_and_others_do_not() -> None:
    made = topology(
        SourceNode(name="in", topics=("inner-repartition", "outer")),
        SinkNode(name="out", topic="inner-repartition"),
        parents={"out": ("in",)},
    )
    (part,) = subtopologies(made, "my-app")
    assert part.source_topics == ("my-app-inner-repartition", "outer")
    assert part.sink_topics == part.repartition_source_topics == ("my-app-inner-repartition",)


def test_a_source_of_a_pattern_is_a_subtopology_without_known_topics() -> None:
    made = topology(SourceNode(name="in", topics=(), topic_pattern="x.*"), parents={})
    (part,) = subtopologies(made, "app")
    assert part.source_topics == ()


def test_a_copartition_group_joins_the_first_one_that_it_meets_and_united_they_are_one() -> None:
    made = replace(
        topology(SourceNode(name="s", topics=("a",)), parents={}),
        copartition_groups=(
            frozenset({"a", "b"}), frozenset({"c", "inner-repartition"}), frozenset({"d"}), frozenset({"b", "c"}),
        ),
    )
    groups = copartition_groups(made, "app")
    assert groups == (("a", "b", "c"), ("app-inner-repartition", "c"), ("d",))  # as Kafka Streams lists them
    assert set(united(groups)) == {frozenset({"a", "app-inner-repartition", "b", "c"}), frozenset({"d"})}


def test_a_store_without_logging_has_no_changelog_and_is_not_stateful() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store=Materialized(name="counts", logged=False))
    made = builder.build()
    (part,) = subtopologies(made, "app")
    assert changelog_of(made, "app", "counts") is None
    assert internal_topics(made, "app") == {}
    assert part.state_stores == ("counts",)
    assert not part.is_stateful


def test_settings_of_a_topic_stand_over_defaults_and_these_over_the_librarys() -> None:
    builder = StreamsBuilder()
    store = Materialized(name="counts", changelog_config={"cleanup.policy": "compact,delete", "segment.ms": "1"})
    builder.stream("in").group_by_key().count(store=store)
    topic = internal_topics(builder.build(), "app")["app-counts-changelog"]
    assert topic.properties({"segment.ms": "2", "min.insync.replicas": "2"}) == {
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "2",
        "segment.ms": "1",
    }


def test_the_changelog_of_a_joins_side_is_never_compacted() -> None:
    builder = StreamsBuilder()
    joined = StreamJoined(store_name="j", changelog_config={"cleanup.policy": "compact", "segment.ms": "1"})
    builder.stream("a").join(builder.stream("b"), lambda a, b: a, JoinWindows.of_time_difference(5, grace=2), joined=joined)
    topic = internal_topics(builder.build(), "app")["app-j-this-join-store-changelog"]
    assert topic.properties(additional_retention_ms=100) == {
        "cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "retention.ms": "112", "segment.ms": "1",
    }


def test_the_programs_own_retention_of_a_changelog_stands() -> None:
    builder = StreamsBuilder()
    store = Materialized(name="w", changelog_config={"retention.ms": "7"})
    builder.stream("a").group_by_key().windowed_by(TimeWindows.of_size(5)).count(store=store)
    builder.table("t", store=Materialized(name="v", history_retention=5))
    topics = internal_topics(builder.build(), "app")
    assert topics["app-w-changelog"].properties()["retention.ms"] == "7"
    assert topics["app-v-changelog"].properties(additional_retention_ms=1)["min.compaction.lag.ms"] == "86400005"


def test_only_keys_that_tidemill_itself_has_partitioned_are_where_the_default_partitioner_says() -> None:
    class Totals:
        def process(self, record: object) -> None: ...

    builder, text = StreamsBuilder(), Serdes.string()
    words = builder.stream("words", key=text, value=text)
    words.group_by(lambda key, value: value, key=text, value=text).count(store="counts")
    words.repartition(name="by-key", key=text, value=text).to_table(store="latest")
    words.repartition(name="chosen", key=text, value=text, partitioner=lambda _t, _k, _v, _n: 0).to_table(store="elsewhere")
    builder.table("table", key=text, value=text, store="source")
    builder.add_state_store(Stores.key_value_store("totals", key=text, value=text))
    words.repartition(name="totalled", key=text, value=text).process(Totals, "totals")
    few = words.repartition(name="few", key=text, value=text, partitions=2)
    few.merge(words.repartition(name="many", key=text, value=text, partitions=5)).to_table(store="merged")
    made = builder.build()
    assert {name for name in made.stores if keys_are_placed(made, name)} == {"counts", "latest"}
    assert set(made.stores) > {"elsewhere", "source", "totals", "merged"}


def test_keys_of_aggregates_over_several_co_partitioned_streams_are_placed() -> None:
    builder, text = StreamsBuilder(), Serdes.string()
    groups = [builder.stream(topic).group_by(lambda key, value: value, key=text, value=text, name=topic) for topic in ("a", "b")]
    groups[0].cogroup(lambda _key, value, _sum: value).cogroup(groups[1], lambda _key, value, _sum: value).aggregate(
        lambda: "", value=text, store="sums"
    )
    assert keys_are_placed(builder.build(), "sums")


def test_the_place_of_a_sink_has_what_there_is_to_say() -> None:
    assert place_of_sink("sink", "out", "orders.py, line 12") == "sink (topic out; orders.py, line 12)"
    assert place_of_sink("sink", "", "orders.py, line 12") == "sink (orders.py, line 12)"
    assert place_of_sink("each", f"{BATCH_SINK}each", "") == "each"
