"""Each program gives what Kafka Streams gives: every record in its order, every row, every dropped record."""

from __future__ import annotations

import pytest

from tests.operators.harness import Program, all_programs, problems_of


@pytest.mark.parametrize("program", all_programs().values(), ids=all_programs().keys())
def test_a_program_gives_what_kafka_streams_gives(program: Program) -> None:
    assert problems_of(program) == []
