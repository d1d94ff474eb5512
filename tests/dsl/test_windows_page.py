"""The page about windows shows programs that build."""

from __future__ import annotations

import textwrap
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "dsl" / "windows.md"


def test_the_program_of_the_page_builds() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    code = textwrap.dedent("\n".join(line for line in lines if line.startswith("    ") or not line.strip()))
    names: dict[str, object] = {}
    exec(code, names)
    described = names["builder"].build().describe()  # type: ignore[attr-defined]
    assert "KTABLE-TOSTREAM" in described
    assert "(topic: visits)" in described
