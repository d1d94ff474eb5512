"""A topology drawn: every node, topic and store is there, nothing lies on anything else, and arrows lead down."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from typing import Any

import pytest

from tidemill import JoinWindows, Serdes, StreamsBuilder, Topology
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode

SVG = "{http://www.w3.org/2000/svg}"
TEXT = Serdes.string()


def record(key: Any, value: Any) -> Any:
    return value


def wordcount() -> Topology:
    builder = StreamsBuilder()
    builder.stream("lines", key=TEXT, value=TEXT).group_by(record, key=TEXT).count(store="counts").to_stream().to("counted")
    return builder.build()


def joined() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    both = left.join(right, record, JoinWindows.of_time_difference(5))
    split = both.split(name="by-").branch(record, name="a").default_branch(name="rest")
    split["by-a"].to("left-again")
    split["by-rest"].to(lambda key, value, record: value)
    left.merge(right).to("left")
    builder.global_table("names", store="names")
    return builder.build()


def empty_pattern() -> Topology:
    builder = StreamsBuilder()
    builder.stream(re.compile("t-.*")).to("out", name="sink-with-a-name-that-is-much-too-long-to-be-shown-in-one-line-0000000001")
    return builder.build()


PROGRAMS = {"wordcount": wordcount, "joined": joined, "a pattern": empty_pattern}


@pytest.fixture(params=PROGRAMS)
def topology(request: pytest.FixtureRequest) -> Topology:
    return PROGRAMS[request.param]()


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    return [
        (float(each.get("x", "")), float(each.get("y", "")), float(each.get("width", "")), float(each.get("height", "")))
        for each in ElementTree.fromstring(svg).iter(f"{SVG}rect")
    ]


def test_every_node_topic_and_store_is_drawn(topology: Topology) -> None:
    texts = [each.text or "" for each in ElementTree.fromstring(topology._repr_html_()).iter(f"{SVG}text")]
    for node in topology.nodes.values():
        assert any(text == node.name or (text.startswith(node.name[:20]) and text.endswith(node.name[-8:])) for text in texts)
        if isinstance(node, SourceNode):
            assert set(node.topics or [node.topic_pattern]) <= set(texts)
        if isinstance(node, SinkNode):
            assert (node.topic or "topics named by a function") in texts
        if isinstance(node, ProcessorNode) and node.stores:
            assert any(all(store in text for store in node.stores) or "..." in text for text in texts)


def test_nothing_lies_on_anything_else(topology: Topology) -> None:
    drawn = boxes(topology._repr_html_())
    assert len(drawn) > len(topology.nodes)  # topics, too
    for (x, y, width, height), (other_x, other_y, other_width, other_height) in combinations(drawn, 2):
        assert x + width < other_x or other_x + other_width < x or y + height < other_y or other_y + other_height < y


def test_arrows_lead_down_and_all_is_on_the_picture(topology: Topology) -> None:
    svg = topology._repr_html_()
    root = ElementTree.fromstring(svg)
    ways = [re.findall(r"-?\d+", each.get("d", "")) for each in root.iter(f"{SVG}path") if each.get("marker-end")]
    assert len(ways) >= len(topology.nodes)
    assert all(int(way[-1]) > int(way[1]) for way in ways)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    assert all(x >= 0 and x + w <= width and y >= 0 and y + h <= height for x, y, w, h in boxes(svg))


def test_the_picture_needs_no_network_and_no_script(topology: Topology) -> None:
    svg = topology._repr_html_().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http" not in svg
    assert "<script" not in svg


def test_a_topic_that_is_written_and_read_again_is_two_and_a_repartition_topic_is_one() -> None:
    def times(topology: Topology, topic: str) -> int:
        return [each.text for each in ElementTree.fromstring(topology._repr_html_()).iter(f"{SVG}text")].count(topic)

    assert times(joined(), "left") == 2
    assert times(wordcount(), "counts-repartition") == 1


def test_an_empty_topology_is_an_empty_picture() -> None:
    assert boxes(StreamsBuilder().build()._repr_html_()) == []


def test_names_are_escaped() -> None:
    name = '<b a="&">'
    drawn = Topology(nodes={name: SourceNode(name=name, topics=("t",))}, parents={name: ()}, stores={}, repartition_topics={})
    texts = [each.text for each in ElementTree.fromstring(drawn._repr_html_()).iter(f"{SVG}text")]
    assert name in texts
    assert r'"node <b a=\"&\">"' in drawn.to_dot()


def test_dot_has_clusters_topics_and_ways() -> None:
    text = wordcount().to_dot()
    assert text.startswith("digraph topology {\n")
    assert text.endswith("}\n")
    assert 'subgraph cluster_0 { label="Sub-topology 0";' in text
    assert 'subgraph cluster_1 { label="Sub-topology 1";' in text
    assert '"topic lines, read" [shape=parallelogram, label="lines"];' in text
    assert '"topic lines, read" -> "node KSTREAM-SOURCE-0000000000";' in text
    assert text.count("{") == text.count("}")


def test_mermaid_is_that_of_the_command() -> None:
    assert wordcount().to_mermaid().startswith("flowchart TD\n")
