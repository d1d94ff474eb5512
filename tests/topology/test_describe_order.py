"""The order of nodes in describe(), on Kafka's own texts: also of operators that Tidemill does not have."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from tidemill import Topology
from tidemill.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from tidemill.topology.operations import PassThrough

NODE = re.compile(
    r"^    (?P<kind>Source|Processor|Sink): (?P<name>\S+) \(\w+: (?P<what>.*)\)$"
    r"(?:\n      --> .*)?(?:\n      <-- (?P<above>.*))?",
    re.MULTILINE,
)

with gzip.open(Path(__file__).parents[1] / "vectors" / "topologies.jsonl.gz", "rt") as lines:
    TEXTS = {
        vector["id"]: vector["describe"]
        for vector in map(json.loads, lines)
        if "global store" not in vector["describe"] and "extractor" not in vector["describe"]
    }


def read(text: str) -> Topology:
    """The topology that a describe() text shows, its nodes in the order of the text."""
    nodes: dict[str, Node] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for match in NODE.finditer(text):
        name, what = match["name"], match["what"]
        items = tuple(item for item in what.strip("[]").split(", ") if item)
        if match["kind"] == "Source":
            pattern = None if what.startswith("[") else what
            nodes[name] = SourceNode(name=name, topics=() if pattern else items, topic_pattern=pattern)
        elif match["kind"] == "Sink":
            nodes[name] = SinkNode(name=name, topic=what)
        else:
            nodes[name] = ProcessorNode(name=name, operation=PassThrough(), stores=items)
        parents[name] = tuple((match["above"] or "").split(", ")) if match["above"] else ()
    return Topology(nodes=nodes, parents=parents, stores={}, repartition_topics={})


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_that_is_read_is_described_the_same_again(case: str) -> None:
    assert read(TEXTS[case]).describe() == TEXTS[case]
