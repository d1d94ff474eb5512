"""The program on the page of the Processor API runs and does what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.operators.harness import start

PAGE = Path(__file__).parents[2] / "docs" / "processor-api.md"


def test_the_page_s_processor_alarms_at_the_third_use_within_ten_seconds() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    program = "\n".join(line[4:] for line in lines if not line or line.startswith("    "))
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, str(PAGE), "exec", dont_inherit=True), names)
    run = start(names["builder"].build())
    for at, (card, timestamp) in enumerate((("a", 1000), ("a", 2000), ("b", 3000), ("a", 3000), ("a", 10_000), ("a", 11_000))):
        run.pipe(at, "payments", card.encode(), b"1", timestamp)
    assert [(value, at) for _topic, _key, value, _timestamp, _headers, at in run.written] == [(b"used 3 times", 4)]
