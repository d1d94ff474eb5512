"""`python -O`, which leaves asserts out, also those of kafka-python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"
PROGRAM = """
import tidemill.kafka.group.client
from kafka.protocol.metadata import ApiVersionsResponse

answer = ApiVersionsResponse(error_code=0, api_keys=[(18, 0, 4), (3, 0, 13)], throttle_time_ms=7, version=4)
found = ApiVersionsResponse.decode(answer.encode(version=4), version=4)
print(__debug__, [key.api_key for key in found.api_keys], found.throttle_time_ms)
"""


@pytest.mark.parametrize("options", [[], ["-O"]])
def test_answers_of_brokers_are_read_with_and_without_asserts(options: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, *options, "-c", PROGRAM]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.stdout, ran.stderr) == (f"{not options} [18, 3] 7\n", "")
