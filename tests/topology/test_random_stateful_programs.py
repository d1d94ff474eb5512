"""275 random programs with windows, joins, cogroup, suppress and processors, with what Kafka Streams 4.3.0 made of each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from random_dsl_programs import Program, topics_of

from tidemill.errors import TopologyError

with gzip.open(Path(__file__).parents[1] / "vectors" / "dsl_programs_stateful.jsonl.gz", "rt") as lines:
    CASES: list[dict[str, Any]] = [json.loads(line) for line in lines]


def test_there_are_programs_of_every_operator() -> None:
    operators = {step[0] for case in CASES for step in case["program"]}
    wanted = {name.removeprefix("run_") for name in vars(Program) if name.startswith("run_")} - {"run_simple", "simple"}
    assert wanted <= operators
    assert len(CASES) == 275


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
