"""Sources that read by a pattern get the topics there are whose whole names match."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from tidemill import JoinWindows, Serdes, StreamsBuilder
from tidemill.errors import ConfigError, RetriableError, TopologyError
from tidemill.kafka.admin.client import Admin
from tidemill.membership.topology_metadata import topology_metadata
from tidemill.runtime.instance.pattern_topics import PatternWatch, topology_on
from tidemill.runtime.instance.start_checks import CheckedTopics, require_fitting_topics
from tidemill.runtime.thread.task_topology import task_topology
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


def test_a_pattern_that_matches_nothing_yet_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers("other")
    assert topics_of(topology_on(admin_of(brokers), reading("in-.*").build(), "app")) == ()
    assert "event=pattern-matches-nothing source=source-0 pattern=in-.*" in caplog.text
    caplog.clear()
    brokers.there.add("in-a")
    assert topics_of(topology_on(admin_of(brokers), reading("in-.*").build(), "app")) == ("in-a",)
    assert not caplog.text


def test_an_instance_does_not_start_where_a_repartition_topic_needs_a_topic_of_the_pattern() -> None:
    """As in Kafka Streams: their number of partitions would be anyone's guess."""
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*")).group_by(lambda key, value: value).count()
    admin = admin_of(Brokers("other"))
    metadata = topology_metadata(topology_on(admin, builder.build(), "app"), "app")
    with pytest.raises(ConfigError, match=r"number of partitions of the repartition topics .* every pattern matches a topic"):
        require_fitting_topics("app", metadata, {}, admin)


class Instance:
    """``unreadable``: topics of which a check fails."""

    def __init__(self, *patterns: str, unreadable: frozenset[str] = frozenset()) -> None:
        self.brokers, program = Brokers("in-b"), reading(*patterns).build()
        self.unreadable = unreadable
        self.reads: list[frozenset[str]] = []
        self.watch = PatternWatch(
            program, frozenset({"in-b"}), "app", topics=self.brokers.topics, check=self.checked, read=self.read
        )

    def checked(self, topology: Topology) -> CheckedTopics:
        metadata, known = topology_metadata(topology, "app"), task_topology(topology, "app")
        if refused := metadata.source_topics & self.unreadable:
            raise ConfigError(f"{sorted(refused)} can't be read")
        return CheckedTopics(topology=topology, metadata=metadata, task_topology=known)

    def read(self, topics: CheckedTopics) -> None:
        self.reads.append(topics.metadata.source_topics)


def test_topics_that_appear_are_read_with_those_of_before_that_are_still_there() -> None:
    """The checks of a start, which a topic that is gone does not pass, keep no other from being read. It may come back."""
    instance = Instance("in-.*")
    instance.watch.look()
    assert instance.reads == []
    instance.brokers.there = {"in-a", "in-c", "other"}
    instance.watch.look()
    instance.watch.look()
    assert instance.reads == [{"in-a", "in-c"}]
    instance.brokers.there.add("in-b")
    instance.watch.look()
    assert instance.reads[1:] == [{"in-a", "in-b", "in-c"}]


def test_a_topic_that_cannot_be_read_keeps_no_other_from_being_read_and_is_reported_once(caplog: Any) -> None:
    instance = Instance("in-.*", unreadable=frozenset({"in-c"}))
    instance.brokers.there |= {"in-a", "in-c", "in-d"}
    instance.watch.look()
    instance.watch.look()
    assert instance.reads[-1] == {"in-a", "in-b", "in-d"}
    (warning,) = [line for line in caplog.messages if "event=topic-not-read" in line]
    assert "topic=in-c problem=\"['in-c'] can't be read\"" in warning
    instance.brokers.there.add("in-e")
    instance.watch.look()
    assert instance.reads[-1] == {"in-a", "in-b", "in-d", "in-e"}
    instance.unreadable = frozenset()
    instance.brokers.there.remove("in-c")
    instance.watch.look()
    instance.brokers.there.add("in-c")
    instance.watch.look()
    assert instance.reads[-1] == {"in-a", "in-b", "in-c", "in-d", "in-e"}


def test_a_topic_that_matches_two_patterns_is_not_read_when_it_appears(caplog: Any) -> None:
    instance = Instance("in-.*", ".*-x")
    instance.brokers.there |= {"in-x", "in-a"}
    instance.watch.look()
    assert instance.reads == [{"in-a", "in-b"}]
    assert "the topic 'in-x' matches the patterns of two sources" in caplog.text


def test_topics_are_looked_for_again_after_brokers_that_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Instance("in-.*")
    instance.brokers.there.add("in-a")
    checked = instance.checked
    monkeypatch.setattr(instance.watch, "_check", Answers([RetriableError("no broker answers"), checked]))
    with pytest.raises(RetriableError):
        instance.watch.look()
    instance.watch.look()
    assert instance.reads == [{"in-a", "in-b"}]


class Answers:
    """One after the other, each an error or a function."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers

    def __call__(self, topology: Topology) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(topology)
