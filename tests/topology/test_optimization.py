"""What optimisations do to programs, and where they keep away: the cases that Kafka's vectors don't show."""

from __future__ import annotations

import pytest

from tidemill import Serdes, StreamsBuilder
from tidemill.config.slices import TopologyConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError, TopologyError
from tidemill.runtime.instance.configured_topology import configured_topology
from tidemill.topology.graph import internal_topics, subtopologies
from tidemill.topology.nodes import SinkNode, SourceNode
from tidemill.topology.optimization import OPTIMIZATIONS, optimizations


def record(key: object, value: object) -> object:
    return value


def pair(key: object, value: object) -> object:
    return key, value


def repartition_topics(builder: StreamsBuilder) -> set[str]:
    return set(builder.build(optimization="merge.repartition.topics").repartition_topics)


# --- the setting -----------------------------------------------------------------------------------------------------


def test_the_setting_takes_none_all_or_names() -> None:
    assert optimizations("none") == optimizations([]) == frozenset()
    assert optimizations("all") == optimizations(["all"]) == OPTIMIZATIONS
    both = {"merge.repartition.topics", "reuse.ktable.source.topics"}
    assert optimizations("merge.repartition.topics , reuse.ktable.source.topics") == both


@pytest.mark.parametrize(("setting", "reason"), [
    ("merge", "'merge' is unknown"),
    ("all,merge.repartition.topics", "'all' can't be combined"),
    (["none", "all"], "'none' can't be combined"),
    ("", "'' is unknown"),
])
def test_another_setting_is_refused(setting: str | list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        optimizations(setting)


def test_building_leaves_the_program_as_it_is() -> None:
    builder = StreamsBuilder()
    changed = builder.stream("in").select_key(record)
    changed.group_by_key().count(store="one")
    changed.group_by_key().count(store="other")
    plain = builder.build()
    assert set(builder.build(optimization="all").repartition_topics) == {"one-repartition"}
    assert builder.build() == plain


# --- merge.repartition.topics ----------------------------------------------------------------------------------------


def test_the_shared_repartition_has_the_serdes_that_are_known() -> None:
    builder = StreamsBuilder()
    changed = builder.stream("in").map(pair)
    changed.group_by_key(value=Serdes.long()).count(store="one")
    changed.group_by_key(key=Serdes.string(), value=Serdes.long()).count(store="other")
    topology = builder.build(optimization="all")
    sink, source = topology.nodes["one-repartition-sink"], topology.nodes["one-repartition-source"]
    for node in (sink, source):
        assert isinstance(node, (SinkNode, SourceNode))
        assert (node.key_serde, node.value_serde) == (Serdes.string(), Serdes.long())


def test_a_change_of_values_between_keeps_repartitions_apart() -> None:
    builder = StreamsBuilder()
    changed = builder.stream("in").select_key(record)
    changed.group_by_key().count(store="one")
    changed.map_values(lambda value: value).group_by_key().count(store="other")
    assert repartition_topics(builder) == {"one-repartition", "other-repartition"}


@pytest.mark.parametrize("operator", ["process", "process_values"])
def test_a_repartition_stays_below_a_processor_that_forwards_values_of_another_serde(operator: str) -> None:
    """Kafka Streams moves it above the processor, where the values have not been converted yet."""
    builder = StreamsBuilder()
    changed = builder.stream("in", key=Serdes.string(), value=Serdes.long()).select_key(record)
    getattr(changed, operator)(object, value=Serdes.string(), name="converts").group_by_key().count(store="converted")
    getattr(changed, operator)(object, value=Serdes.long(), name="keeps").group_by_key().count(store="kept")
    topology = builder.build(optimization="merge.repartition.topics")
    assert topology.parents["converted-repartition-filter"] == ("converts",)
    assert topology.parents["keeps"] == ("kept-repartition-source",)


def test_merged_streams_share_one_repartition_below_the_merge() -> None:
    builder = StreamsBuilder()
    one, other = builder.stream("a").select_key(record), builder.stream("b").select_key(record)
    merged = one.merge(other)
    merged.group_by_key().count(store="one")
    merged.filter(record).group_by_key().count(store="other")
    topology = builder.build(optimization="merge.repartition.topics")
    assert set(topology.repartition_topics) == {"one-repartition"}
    assert topology.parents["one-repartition-filter"] == ("KSTREAM-MERGE-0000000004",)


def test_two_groups_below_one_filter_share_a_repartition() -> None:
    """Kafka Streams fails to build this."""
    builder = StreamsBuilder()
    kept = builder.stream("in").select_key(record).filter(record, name="kept")
    kept.group_by_key().count(store="one")
    kept.group_by_key().count(store="other")
    topology = builder.build(optimization="all")
    assert set(topology.repartition_topics) == {"one-repartition"}
    assert topology.parents["kept"] == ("one-repartition-source",)


def test_a_repartition_that_also_serves_another_stream_stays_where_it_is() -> None:
    """Kafka Streams moves it up, and the other stream's records are counted in the wrong tasks."""
    builder = StreamsBuilder()
    changed = builder.stream("a").select_key(record)
    changed.merge(builder.stream("b"), name="both").group_by_key().count(store="merged")
    changed.group_by_key().count(store="alone")
    topology = builder.build(optimization="all")
    assert topology.parents["merged-repartition-filter"] == ("both",)
    assert set(topology.repartition_topics) == {"merged-repartition", "alone-repartition"}


def test_all_ways_from_the_change_of_keys_move_below_the_shared_repartition() -> None:
    """Kafka Streams may move one of the ways only, and the other goes round the repartition."""
    builder = StreamsBuilder()
    changed = builder.stream("a").select_key(record)
    one, other = changed.filter(record, name="one"), changed.filter_not(record, name="other")
    one.merge(other, name="again").group_by_key().count(store="merged")
    changed.group_by_key().count(store="alone")
    topology = builder.build(optimization="all")
    assert set(topology.repartition_topics) == {"merged-repartition"}
    assert topology.parents["one"] == topology.parents["other"] == ("merged-repartition-source",)
    assert topology.parents["KSTREAM-AGGREGATE-0000000005"] == ("again",)


def test_a_merge_below_a_merge_has_the_repartition_below_the_last() -> None:
    """Kafka Streams fails to build this."""
    builder = StreamsBuilder()
    first = builder.stream("a").select_key(record).merge(builder.stream("b").select_key(record), name="first")
    last = builder.stream("c").select_key(record).merge(first, name="last")
    last.group_by_key().count(store="one")
    last.group_by_key().count(store="other")
    topology = builder.build(optimization="all")
    assert set(topology.repartition_topics) == {"one-repartition"}
    assert topology.parents["one-repartition-filter"] == ("last",)


def test_a_stream_is_merged_with_what_is_made_of_it_behind_the_shared_repartition() -> None:
    """One of the repartitions is on another's way: behind the count, whose changes are counted with the stream's own records."""
    builder = StreamsBuilder()
    changed = builder.stream("a").select_key(record, name="changed")
    counts = changed.group_by_key().count(store="one")
    changed.group_by_key().count(store="other")
    counts.to_stream().merge(changed, name="both").group_by_key().count(store="again")
    topology = builder.build(optimization="all")
    assert set(topology.repartition_topics) == {"one-repartition"}
    assert topology.children("changed") == ("one-repartition-filter",)
    assert set(topology.parents["both"]) == {"one-repartition-source", "KTABLE-TOSTREAM-0000000010"}
    assert len(subtopologies(topology, "app")) == 2


def test_a_repartition_that_moves_above_a_processor_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka Streams takes a processor for an operator that keeps its keys (KAFKA-19668), and so do the names of its topics."""
    builder = StreamsBuilder()
    builder.stream("a").select_key(record).process(object, name="changes").filter(record).group_by_key().count(store="one")
    builder.stream("b").select_key(record).process_values(object, name="keeps").group_by_key().count(store="two")
    builder.stream("c").select_key(record).process(object, name="asked").repartition(name="three").group_by_key().count()
    builder.stream("d").process(object, name="plain").group_by_key().count(store="four")
    settings = {"application.id": "app"}
    configured_topology(builder, StreamsConfig.read_slice(TopologyConfig, settings))
    assert caplog.messages == []
    settings["topology.optimization"] = "all"
    topology = configured_topology(builder, StreamsConfig.read_slice(TopologyConfig, settings))
    assert topology.parents["changes"] == ("one-repartition-source",)
    assert topology.processors_below_merged_repartition == ("changes", "keeps")
    (warning,) = caplog.messages
    assert "event=repartition-above-processors processors=changes" in warning


def test_a_repartition_that_the_program_asks_for_is_not_merged() -> None:
    builder = StreamsBuilder()
    changed = builder.stream("in").select_key(record)
    changed.repartition(name="asked", partitions=3).group_by_key().count(store="one")
    changed.group_by_key().count(store="two")
    changed.group_by_key().count(store="three")
    assert repartition_topics(builder) == {"asked-repartition", "two-repartition"}


def test_a_long_chain_of_operators_is_optimised_and_described() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(record)
    for _ in range(1500):
        stream = stream.filter(record)
    stream.group_by_key().count()
    assert len(subtopologies(builder.build(optimization="all"), "app")) == 2
    assert "KSTREAM-FILTER-0000001501" in builder.build().describe()


# --- reuse.ktable.source.topics --------------------------------------------------------------------------------------


def test_a_table_without_a_store_reuses_nothing() -> None:
    builder = StreamsBuilder()
    builder.table("in").to_stream().to("out")
    (part,) = subtopologies(builder.build(optimization="all"), "app")
    assert part.changelog_topics == part.source_topic_changelogs == ()


def test_a_reused_source_topic_is_no_internal_topic_and_its_store_is_not_logged() -> None:
    builder = StreamsBuilder()
    builder.table("in", store="table").to_stream().to("out")
    topology = builder.build(optimization="reuse.ktable.source.topics")
    assert internal_topics(topology, "app") == {}
    assert topology.stores["table"].source_topic == "in"
    assert not topology.stores["table"].logged


# --- equal sources ---------------------------------------------------------------------------------------------------


def test_streams_of_the_same_topics_become_one_source_under_the_first_name() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"], name="first").to("x")
    builder.stream(["b", "a"], name="second").to("y")
    topology = builder.build()
    assert "second" not in topology.nodes
    assert topology.children("first") == ("KSTREAM-SINK-0000000001", "KSTREAM-SINK-0000000003")


def test_streams_that_share_some_topics_are_refused() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"])
    builder.stream("b")
    with pytest.raises(TopologyError, match=r"share some topics but not all"):
        builder.build()


def test_different_offset_resets_of_the_same_topic_are_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("a", offset_reset="latest")
    builder.stream("a")
    with pytest.raises(TopologyError, match=r"different offset resets \(latest and None\)"):
        builder.build()
