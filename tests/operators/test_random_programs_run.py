"""Programs of the whole DSL, as deep as chance made them, run on records of chance: none stops for a reason of ours.

Values are of any type under one serde, as the programs' functions are all alike. A few programs join the windowed keys of a table
with plain ones, which no serde can write: those stop with an error of the record, as they would in Java.
"""

from __future__ import annotations

import gzip
import json
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import ALL, VECTORS, MemoryRows, Run
from test_store_formats import KEY_VALUE_KINDS

sys.path.insert(0, str(Path(__file__).parents[1] / "topology"))
import random_dsl_programs

from tidemill.errors import RecordError
from tidemill.operators.processors import ProcessorContext
from tidemill.operators.record import Record
from tidemill.operators.stores import store_of
from tidemill.topology.nodes import SourceNode, Topology

RECORDS = 40
STEP = 1 if ALL else 5
with gzip.open(VECTORS / "dsl_programs_stateful.jsonl.gz", "rt", encoding="utf-8") as lines:
    CASES = [case for case in map(json.loads, lines) if "error" not in case][::STEP]


class Anything:
    """A serde of all values; None is null."""

    name, sql_type = "anything", "binary"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else pickle.dumps(value, protocol=4)

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else pickle.loads(data)


ANYTHING = Anything()


class PassesOn:
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record)


class Program(random_dsl_programs.Program):
    """The programs' steps, with functions that return what their operators need."""

    def run_simple(self, operator: str, result: str, above: str, name: str | None) -> None:
        functions = {
            "map": lambda k, v: (v, k), "flat_map": lambda k, v: [(k, v), (v, k)], "map_values": lambda v: v,
            "flat_map_values": lambda v: [v, v],
        }
        made = getattr(self.made[above], operator)
        if operator in ("to_stream", "group_by_key"):
            self.made[result] = made(name=name)
        else:
            self.made[result] = made(functions.get(operator, lambda k, v: v), name=name)

    def run_tgroup(self, result: str, above: str, name: str | None) -> None:
        self.made[result] = self.made[above].group_by(lambda k, v: (v, k), name=name)


def started(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(random_dsl_programs, "STRING", ANYTHING)
    monkeypatch.setattr(random_dsl_programs, "Noop", PassesOn)
    monkeypatch.setattr(harness, "DEFAULT_SERDE", ANYTHING)
    return harness.start(Program(case["program"]).builder.build(optimization=case["topology_optimization"]))


def topics_of(topology: Topology) -> list[str]:
    sources = (node for node in topology.nodes.values() if isinstance(node, SourceNode))
    return sorted({topic for node in sources for topic in node.topics if topic not in topology.repartition_topics})


def is_of_another_type(error: RecordError) -> bool:
    """A plain key came where a windowed one is written or read."""
    return "expected Windowed" in str(error) or "object has no attribute 'key'" in str(error)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_program_of_chance_runs_and_its_key_value_stores_come_back(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = started(CASES[number], monkeypatch)
    chance, timestamp, topics = random.Random(number), 1000, topics_of(run.topology)
    for at in range(RECORDS if topics else 0):
        timestamp = max(0, timestamp + chance.choice((0, 10, 100, 1000, 5000, -500, -3000)))
        key, value = chance.choice(("a", "b", "c", None)), chance.choice(("a", "b", "xx", "yy", None))
        try:
            run.pipe(at, chance.choice(topics), ANYTHING.serialize(key), ANYTHING.serialize(value), timestamp)
        except RecordError as error:
            if is_of_another_type(error):
                return
            raise
    for name, described in run.topology.stores.items():
        if described.kind in KEY_VALUE_KINDS and described.logged and described.source_topic is None:
            rows = MemoryRows()
            restored = store_of(described, rows, ANYTHING, ANYTHING)
            for store, key_bytes, value_bytes, at_time, headers, _at in run.logged:
                if store == name:
                    restored.restore(key_bytes, value_bytes, at_time, headers)
            assert rows.rows == (run.rows[name].rows if name in run.rows else {})
