"""Each program gives what Kafka Streams gives: every record in its order, every row, every dropped record."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.operators.harness import Program, problems_of, programs_in

MODULES = sorted(f"tests.operators.{path.stem}" for path in Path(__file__).parent.glob("programs_*.py"))
PROGRAMS = {name: program for module in MODULES for name, program in programs_in(import_module(module)).items()}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_gives_what_kafka_streams_gives(program: Program) -> None:
    assert problems_of(program) == []
