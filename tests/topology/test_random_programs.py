"""475 random programs of up to 50 operators, with what Kafka Streams 4.3.0 made of each: 200 of operators without windows, 275
with windows, joins, cogroup, suppress and processors too."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.topology.random_dsl_programs import Program, topics_of
from tidemill.errors import TopologyError

VECTORS = Path(__file__).parents[1] / "vectors"


def cases(name: str) -> list[dict[str, Any]]:
    with gzip.open(VECTORS / name, "rt") as lines:
        return [json.loads(line) for line in lines]


PLAIN, STATEFUL = cases("dsl_programs.jsonl.gz"), cases("dsl_programs_stateful.jsonl.gz")
KINDS = (("plain", PLAIN), ("stateful", STATEFUL))
NUMBERED = {f"{kind}-{number}": case for kind, found in KINDS for number, case in enumerate(found)}


def test_there_are_programs_of_every_operator() -> None:
    operators = {step[0] for case in STATEFUL for step in case["program"]}
    wanted = {name.removeprefix("run_") for name in vars(Program) if name.startswith("run_")} - {"run_simple", "simple"}
    assert wanted <= operators
    assert (len(PLAIN), len(STATEFUL)) == (200, 275)


@pytest.mark.parametrize("name", NUMBERED)
def test_random_program_becomes_kafkas_topology(name: str) -> None:
    case = NUMBERED[name]
    if "error" in case:
        with pytest.raises(TopologyError):
            Program(case["program"]).builder.build(optimization=case["topology_optimization"])
        return
    topology = Program(case["program"]).builder.build(optimization=case["topology_optimization"])
    assert topology.describe() == case["describe"]
    assert topics_of(topology) == case["topics"]
