"""Sources that read by a pattern get the topics there are whose whole names match."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from tidemill import JoinWindows, Serdes, StreamsBuilder
from tidemill.errors import ConfigError, TopologyError
from tidemill.kafka.admin.client import Admin
from tidemill.runtime.instance.pattern_topics import UnreadTopics, topology_on
from tidemill.topology.graph import copartition_groups, subtopologies
from tidemill.topology.nodes import SourceNode, Topology
from tidemill.topology.patterns import with_topics_of_patterns


class Brokers:
    def __init__(self, *topics: str) -> None:
        self.there = set(topics)

    def topics(self) -> frozenset[str]:
        return frozenset(self.there)


def admin_of(brokers: Brokers) -> Admin:
    return cast("Admin", brokers)


def reading(*patterns: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    for number, pattern in enumerate(patterns):
        builder.stream(re.compile(pattern), name=f"source-{number}").to("out")
    return builder


def topics_of(topology: Topology, source: str = "source-0") -> tuple[str, ...]:
    node = topology.nodes[source]
    assert isinstance(node, SourceNode)
    return node.topics


def test_the_topics_whose_whole_name_matches_are_read() -> None:
    found = with_topics_of_patterns(reading("in-.*").build(), "app", ["in-b", "in-a", "xin-c", "in", "in-"])
    assert topics_of(found) == ("in-", "in-a", "in-b")
    (part,) = subtopologies(found, "app")
    assert part.source_topics == ("in-", "in-a", "in-b")


def test_kafkas_own_topics_and_the_applications_internal_ones_are_not_read() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("(app-|__).*"), name="source-0").select_key(lambda k, v: v).group_by_key().count(store="n")
    there = ["app-n-repartition", "app-n-changelog", "app-orders", "__consumer_offsets", "__transaction_state", "n-changelog"]
    assert topics_of(with_topics_of_patterns(builder.build(), "app", there)) == ("app-orders",)


def test_a_topic_that_two_patterns_match_is_refused() -> None:
    topology = reading("in-.*", ".*-a").build()
    assert topics_of(with_topics_of_patterns(topology, "app", ["in-b", "x-a"]), "source-1") == ("x-a",)
    with pytest.raises(TopologyError, match="the topic 'in-a' matches the patterns of two sources"):
        with_topics_of_patterns(topology, "app", ["in-a"])


def test_topics_of_a_pattern_need_as_many_partitions_as_what_is_joined() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream(re.compile("l-.*")), builder.stream("right")
    left.join(right, lambda one, other: one, JoinWindows.of_time_difference(5))
    topology = with_topics_of_patterns(builder.build(), "app", ["l-1", "l-2"])
    assert ("l-1", "l-2", "right") in copartition_groups(topology, "app")


def test_a_topology_without_patterns_is_the_same() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string()).to("out")
    topology = builder.build()
    assert with_topics_of_patterns(topology, "app", ["in"]) is topology


def test_an_instance_does_not_start_where_a_pattern_matches_nothing() -> None:
    brokers = Brokers("other")
    with pytest.raises(ConfigError, match=r"no topic matches the pattern 'in-\.\*' of source-0"):
        topology_on(admin_of(brokers), reading("in-.*").build(), "app")
    brokers.there.add("in-a")
    assert topics_of(topology_on(admin_of(brokers), reading("in-.*").build(), "app")) == ("in-a",)


def test_topics_that_appear_later_are_reported_once(caplog: Any) -> None:
    brokers, topology = Brokers("in-a"), reading("in-.*").build()
    later = UnreadTopics(admin_of(brokers), topology, topology_on(admin_of(brokers), topology, "app"), "app")
    later.check()
    brokers.there |= {"in-b", "other"}
    later.check()
    later.check()
    (warning,) = caplog.messages
    assert "event=topics-appeared application=app topics=[in-b]" in warning
