"""200 random programs of up to 50 operators, with what Kafka Streams 4.3.0 made of each.

A step is ``[operator, result, input, name, ...]``, with ``-`` for what is not given; ``with`` as a store stands for a
``Materialized`` without a name.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tidemill import Materialized, Serdes, StreamsBuilder, Topology
from tidemill.errors import TopologyError
from tidemill.topology.graph import InternalTopicKind, copartition_groups, internal_topics, subtopologies

with gzip.open(Path(__file__).parents[1] / "vectors" / "dsl_programs.jsonl.gz", "rt") as lines:
    CASES: list[dict[str, Any]] = [json.loads(line) for line in lines]
STRING = Serdes.string()


def record(key: Any, value: Any) -> Any:
    return value


def value(value: Any) -> Any:
    return value


def aggregate(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate


class Program:
    """Runs the steps of a program against the DSL."""

    def __init__(self, steps: list[list[str]]) -> None:
        self.builder = StreamsBuilder()
        self.made: dict[str, Any] = {}
        for step in steps:
            self.run(*step)

    def run(self, operator: str, result: str, above: str, given_name: str, *more: str) -> None:
        name = None if given_name == "-" else given_name
        at = self.made.get(above)
        match operator:
            case "stream":
                topics = re.compile(above[1:]) if above.startswith("/") else above.split(",")
                self.made[result] = self.builder.stream(topics, key=STRING, value=STRING, name=name)
            case "table":
                self.made[result] = self.builder.table(above, key=STRING, value=STRING, name=name, store=store(more[0]))
            case "split":
                self.split(at, name, result.split(","), *more)
            case "merge":
                self.made[result] = at.merge(self.made[more[0]], name=name)
            case "repartition":
                partitions = None if more[0] == "-" else int(more[0])
                self.made[result] = at.repartition(name=name, partitions=partitions)
            case "reduce":
                self.made[result] = at.reduce(record, name=name, store=store(more[0]))
            case "aggregate":
                self.made[result] = at.aggregate(dict, aggregate, name=name, store=store(more[0]))
            case "count" | "to_table":
                self.made[result] = getattr(at, operator)(name=name, store=store(more[0]))
            case "tfilter":
                self.made[result] = at.filter(record, name=name, store=store(more[0]))
            case "tmap_values":
                self.made[result] = at.map_values(value, name=name, store=store(more[0]))
            case "to":
                at.to(more[0], name=name)
            case "print" | "to_stream" | "group_by_key":
                self.made[result] = getattr(at, operator)(name=name)
            case _:
                function = value if operator in ("map_values", "flat_map_values") else record
                self.made[result] = getattr(at, operator)(function, name=name)

    def split(self, at: Any, name: str | None, results: list[str], names: str, ending: str) -> None:
        split = at.split(name=name)
        for number, (result, branch) in enumerate(zip(results, names.split(","), strict=True)):
            is_default = ending == "default" and number == len(results) - 1
            grow = split.default_branch if is_default else partial(split.branch, record)
            grow(name=None if branch == "-" else branch, consumer=partial(self.made.__setitem__, result))


def store(text: str) -> str | Materialized | None:
    return {"-": None, "with": Materialized(key=STRING)}.get(text, text)


def topics_of(topology: Topology) -> list[str]:
    """Sub-topologies, internal topics and copartition groups, in the words of the recorded answers."""
    lines = []
    internal = internal_topics(topology, "app")
    for part in subtopologies(topology, "app"):
        if not part.source_topics:
            continue
        lists = (part.source_topics, part.sink_topics, part.repartition_source_topics, part.changelog_topics,
                 part.source_topic_changelogs)
        lines.append(f"SUB {part.id} " + "".join(f"[{', '.join(names)}]" for names in lists))
        for name in sorted({*part.repartition_source_topics, *part.changelog_topics} - {*part.source_topic_changelogs}):
            topic = internal[name]
            is_changelog = topic.kind is InternalTopicKind.CHANGELOG
            partitions = "" if is_changelog else str(topic.partitions or "-")
            settings = ", ".join(f"{key}={value}" for key, value in sorted(topic.properties().items()))
            lines.append(f"TOPIC {name} {partitions}{{{settings}}}")
    return lines + [f"CO [{', '.join(group)}]" for group in copartition_groups(topology, "app")]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_random_program_becomes_kafkas_topology(number: int) -> None:
    case = CASES[number]
    if "error" in case:
        with pytest.raises(TopologyError):
            Program(case["program"]).builder.build(optimization=case["topology_optimization"])
        return
    topology = Program(case["program"]).builder.build(optimization=case["topology_optimization"])
    assert topology.describe() == case["describe"]
    assert topics_of(topology) == case["topics"]
