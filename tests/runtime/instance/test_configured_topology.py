"""Settings of the topology that name something: what is wrong with it is said before anything is started."""

from __future__ import annotations

import re

import pytest

from tidemill import KafkaStreams, Serdes, State, StreamsBuilder, TopologyBuilder
from tidemill.errors import ConfigError, TidemillError, TopologyError

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize("name", ["default.key.serde", "default.value.serde"])
@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        (Serdes.string, TopologyError, "string is not a serde but a function; give what it makes, such as Serdes.string()"),
        (5, TopologyError, "5 is not a serde; give one of Serdes, such as Serdes.string()"),
        ("strng", ConfigError, "unknown serde 'strng': expected one of string, bytes"),
        ("json:customer strin", ConfigError, "strin"),
    ],
)
def test_a_default_serde_that_is_none_is_refused_by_its_setting(
    name: str, given: object, kind: type[TidemillError], told: str
) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with pytest.raises(kind) as error:
        KafkaStreams(builder, {**NEEDED, name: given})
    assert str(error.value).startswith(f"{name}: ")
    assert told in str(error.value)


def keeping(store: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.table("in", store=store)
    return builder


def test_an_internal_topic_whose_name_is_too_long_is_refused_before_anything_is_started() -> None:
    """The store's name alone is short enough; a broker would refuse that of the changelog."""
    longest = "s" * (249 - len("app-") - len("-changelog"))
    KafkaStreams(keeping(longest), NEEDED)
    said = r"can't be the name of an internal topic, which begins with application\.id: it has 250 characters"
    with pytest.raises(TopologyError, match=said):
        KafkaStreams(keeping(longest + "s"), NEEDED)


@pytest.mark.parametrize("empty", [StreamsBuilder, TopologyBuilder])
def test_a_topology_that_reads_nothing_is_refused_as_in_kafka_streams(empty: type[StreamsBuilder | TopologyBuilder]) -> None:
    """It is rather another builder than the one that was meant."""
    with pytest.raises(TopologyError, match="the topology reads no topic"):
        KafkaStreams(empty(), NEEDED)


def test_a_topology_that_reads_only_a_pattern_or_a_global_table_is_none_that_reads_nothing() -> None:
    of_pattern, of_table = StreamsBuilder(), StreamsBuilder()
    of_pattern.stream(re.compile("in-.*"))
    of_table.global_table("names")
    assert [KafkaStreams(builder, NEEDED).state for builder in (of_pattern, of_table)] == [State.CREATED] * 2
