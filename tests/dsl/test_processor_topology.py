"""Topologies that are written node by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemill import Serdes, Stores, StreamsBuilder, TopologyBuilder
from tidemill.errors import TopologyError
from tidemill.topology.graph import internal_topics, subtopologies
from tidemill.topology.nodes import ProcessorNode, SourceNode
from tidemill.topology.operations import GlobalUpdate, ProcessRecords

STRING = Serdes.string()


class Noop:
    def process(self, record: Any) -> None:
        pass


def test_a_processor_knows_the_stores_that_are_connected_to_it_later() -> None:
    builder = TopologyBuilder().add_source("s", "in", key=STRING).add_processor("p", Noop, "s")
    builder.add_state_store(Stores.key_value_store("a"), "p").add_state_store(Stores.key_value_store("b"))
    topology = builder.connect_processor_and_state_stores("p", "b").build()
    node = topology.nodes["p"]
    assert isinstance(node, ProcessorNode)
    assert node.stores == ("a", "b")
    assert node.operation == ProcessRecords(Noop, ("a", "b"))


def test_names_of_nodes_are_any_printable_text_as_with_kafka_streams() -> None:
    topology = (
        TopologyBuilder().add_source("Desired State", "in").add_processor("Höhe & Wind", Noop, "Desired State")
        .add_sink("To Twins", "out", "Höhe & Wind").build()
    )  # fmt: skip
    assert list(topology.nodes) == ["Desired State", "Höhe & Wind", "To Twins"]
    assert "Processor: Höhe & Wind (stores: [])\n      --> To Twins\n      <-- Desired State" in topology.describe()


def test_what_the_dsl_made_goes_on_by_hand() -> None:
    dsl = StreamsBuilder()
    dsl.stream("in", name="source").filter(lambda k, v: v, name="kept")
    topology = TopologyBuilder(dsl.build()).add_processor("p", Noop, "kept").add_sink("sink", "out", "p").build()
    assert list(topology.nodes) == ["source", "kept", "p", "sink"]
    assert [part.sink_topics for part in subtopologies(topology, "app")] == [("out",)]
    assert "p" not in dsl.build().nodes


def test_a_global_store_is_a_subtopology_without_tasks() -> None:
    builder = TopologyBuilder().add_global_store(Stores.key_value_store("g", key=STRING), "gs", "topic", "gp", Noop)
    topology = builder.add_source("s", "in").add_sink("k", "out", "s").build()
    first, second = subtopologies(topology, "app")
    assert (first.is_global, first.source_topics, first.changelog_topics) == (True, (), ())
    assert (second.is_global, second.source_topics) == (False, ("in",))
    source, keeper = topology.nodes["gs"], topology.nodes["gp"]
    assert isinstance(source, SourceNode)
    assert (source.is_global, source.key_serde) == (True, STRING)
    assert isinstance(keeper, ProcessorNode)
    assert keeper.operation == GlobalUpdate("g", Noop)
    assert topology.stores["g"].source_topic == "topic"


def test_a_read_only_store_has_its_source_topic_as_changelog() -> None:
    store = Stores.key_value_store("r", key=STRING)
    topology = TopologyBuilder().add_read_only_state_store(store, "rs", "topic", "rp", Noop).build()
    (part,) = subtopologies(topology, "app")
    assert (part.state_stores, part.changelog_topics, part.source_topic_changelogs) == (("r",), ("topic",), ("topic",))
    assert internal_topics(topology, "app") == {}


REFUSED: dict[str, tuple[Callable[[TopologyBuilder], Any], str]] = {
    "a parent that is not there": (
        lambda t: t.add_processor("p", Noop, "nobody"), r"the parent 'nobody' of 'p' is no node \(nodes so far: s\)",
    ),
    "no parent": (lambda t: t.add_processor("p", Noop), "'p' has no parent"),
    "parents in a list": (
        lambda t: t.add_processor("p", Noop, ["s"]), r"add_processor 'p': parents: expected names, .*, got \['s'\]",
    ),
    "parents of a sink in a list": (lambda t: t.add_sink("p", "out", ["s"]), "add_sink 'p': parents: expected names"),
    "topics in a list": (lambda t: t.add_source("t", ["a", "b"]), "add_source 't': topics: expected names"),
    "stores in a list": (
        lambda t: t.add_processor("p", Noop, "s").connect_processor_and_state_stores("p", ["a"]),
        "connect_processor_and_state_stores 'p': stores: expected names",
    ),
    "processors in a list": (
        lambda t: t.add_state_store(Stores.key_value_store("a"), ["s"]), "add_state_store: processors: expected names",
    ),
    "a sink as parent": (
        lambda t: t.add_sink("k", "out", "s").add_processor("p", Noop, "k"), "is the sink to out, which forwards nothing",
    ),
    "a name used twice": (lambda t: t.add_source("s", "other"), "two nodes have the name 's'"),
    "a name of two lines": (lambda t: t.add_sink("a\nb", "out", "s"), "can't be the name of a sink: expected printable text"),
    "no name": (lambda t: t.add_source("", "other"), "'' can't be the name of a source: expected printable text"),
    "a topic read twice": (lambda t: t.add_source("t", "in"), "the topic 'in' is read by two nodes"),
    "a store of a source": (
        lambda t: t.add_state_store(Stores.key_value_store("a"), "s"), "can't be connected to 's': it is the source of in",
    ),
    "a store that nobody adds": (
        lambda t: t.add_processor("p", Noop, "s").connect_processor_and_state_stores("p", "a").build(),
        "'p' uses the store 'a', which is not added",
    ),
    "a sink below a global store": (
        lambda t: _below_global(t).add_processor("p", Noop, "gp").add_sink("k", "out", "p").build(),
        "'k' is below 'p' of a global store, .* is the sink to out: only tasks write to topics",
    ),
    "a processor of a global store and of tasks": (
        lambda t: _below_global(t).add_processor("p", Noop, "gp", "s").build(),
        "'p' is below 'gp' of a global store, .* gets records of 's', too, which tasks run",
    ),
    "a store below a global one": (
        lambda t: _below_global(t).add_processor("p", Noop, "gs").add_state_store(Stores.key_value_store("a"), "p").build(),
        "'p' is below 'gs' of a global store, .* uses the store 'a': only tasks have stores",
    ),
    "two stores of one name": (
        lambda t: t.add_state_store(Stores.key_value_store("a")).add_state_store(Stores.key_value_store("a")),
        "two stores have the name 'a'",
    ),
}


def _below_global(topology: TopologyBuilder) -> TopologyBuilder:
    return topology.add_global_store(Stores.key_value_store("g", key=STRING), "gs", "topic", "gp", Noop)


def test_a_processor_may_follow_that_of_a_global_store() -> None:
    topology = _below_global(TopologyBuilder()).add_processor("p", Noop, "gp").build()
    assert [part.is_global for part in subtopologies(topology, "app")] == [True]


def test_what_is_no_topology_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"TopologyBuilder: expected a topology, got .*; give builder\.build\(\)"):
        TopologyBuilder(StreamsBuilder())  # type: ignore[arg-type]


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    write, message = REFUSED[what]
    with pytest.raises(TopologyError, match=message):
        write(TopologyBuilder().add_source("s", "in"))
