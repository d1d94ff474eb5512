"""Programs of the whole DSL, as deep as chance made them, and records of chance for them.

The steps are those of the topologies' tests. Values are of any type under one serde, as the programs' functions are all alike. A
few programs join the windowed keys of a table with plain ones, which no serde can write: those stop with an error of the record,
as they would in Java.
"""

from __future__ import annotations

import gzip
import json
import pickle
import random
from typing import Any

import pytest

from tests.operators import harness
from tests.operators.harness import ALL, VECTORS
from tests.topology import random_dsl_programs
from tidemill.dsl.functions import per_record
from tidemill.errors import RecordError
from tidemill.operators.processors import ProcessorContext
from tidemill.operators.record import Record
from tidemill.topology.nodes import SourceNode, Topology

Sent = tuple[str, "bytes | None", "bytes | None", int]
"""Topic, key, value, timestamp."""


def cases(every: int) -> list[dict[str, Any]]:
    """Each ``every``-th program, or all with TIDEMILL_ALL_VECTORS=1."""
    with gzip.open(VECTORS / "dsl_programs_stateful.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [case for case in map(json.loads, lines) if "error" not in case][:: 1 if ALL else every]


class Anything:
    """A serde of all values; None is null."""

    name, sql_type = "anything", "binary"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else pickle.dumps(value, protocol=4)

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else pickle.loads(data)


ANYTHING = Anything()
PAIR = (ANYTHING, ANYTHING)


class PassesOn:
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record)


class Routes:
    def __call__(self, key: Any, value: Any, record: Any) -> str:
        return "routed"


class Program(random_dsl_programs.Program):
    """The programs' steps, with functions of records that return what their operators need."""

    def run_simple(self, operator: str, result: str, above: str, name: str | None) -> None:
        functions = {
            "map": per_record(lambda k, v: (v, k), PAIR),
            "flat_map": per_record(lambda k, v: [(k, v), (v, k)], PAIR),
            "map_values": per_record(lambda v: v, ANYTHING),
            "flat_map_values": per_record(lambda v: [v, v], ANYTHING),
            "peek": lambda k, v: None,
            "foreach": lambda k, v: None,
        }
        made = getattr(self.made[above], operator)
        if operator in ("to_stream", "group_by_key"):
            self.made[result] = made(name=name)
        else:
            self.made[result] = made(functions.get(operator, per_record(lambda k, v: v, ANYTHING)), name=name)

    def run_tgroup(self, result: str, above: str, name: str | None) -> None:
        self.made[result] = self.made[above].group_by(per_record(lambda k, v: (v, k), PAIR), name=name)


def built(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Topology:
    """The program's topology, with ``Anything`` as the only serde."""
    monkeypatch.setattr(random_dsl_programs, "STRING", ANYTHING)
    monkeypatch.setattr(random_dsl_programs, "Noop", PassesOn)
    monkeypatch.setattr(random_dsl_programs, "Route", Routes)
    monkeypatch.setattr(random_dsl_programs, "record", per_record(lambda k, v: v, ANYTHING))
    monkeypatch.setattr(random_dsl_programs, "one", per_record(lambda v: v, ANYTHING))
    monkeypatch.setattr(harness, "DEFAULT_SERDE", ANYTHING)
    return Program(case["program"]).builder.build(optimization=case["topology_optimization"])


def records_for(topology: Topology, seed: int, count: int) -> list[Sent]:
    """Records of chance for the program's topics; those of global tables come first."""
    chance, timestamp = random.Random(seed), 1000
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
    topics = sorted({topic for node in sources for topic in node.topics if topic not in topology.repartition_topics})
    shared = {topic for node in sources if node.is_global for topic in node.topics}
    found: list[Sent] = []
    for _ in range(count if topics else 0):
        timestamp = max(0, timestamp + chance.choice((0, 10, 100, 1000, 5000, -500, -3000)))
        key, value = chance.choice(("a", "b", "c", None)), chance.choice(("a", "b", "xx", "yy", None))
        found.append((chance.choice(topics), ANYTHING.serialize(key), ANYTHING.serialize(value), timestamp))
    return sorted(found, key=lambda record: record[0] not in shared)


def is_of_another_type(error: RecordError) -> bool:
    """A plain key came where a windowed one is written or read."""
    return "expected Windowed" in str(error)
