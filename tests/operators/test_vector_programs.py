"""Each program gives what Kafka Streams gives: every record in its order, every row, every dropped record."""

from __future__ import annotations

import programs_aggregates
import pytest
from harness import Program, problems_of, programs_in

PROGRAMS = {**programs_in(programs_aggregates)}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_gives_what_kafka_streams_gives(program: Program) -> None:
    assert problems_of(program) == []
