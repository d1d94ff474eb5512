"""The pages about aggregates, tables and joins show programs that build, and the table of operators names only what there is."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import tidemill

PAGES = Path(__file__).parents[2] / "docs" / "dsl"


@pytest.mark.parametrize(
    ("page", "written"), [("tables.md", "totals"), ("joins.md", "named-rows-changes"), ("aggregates.md", "means")]
)
def test_the_program_of_the_page_builds(page: str, written: str) -> None:
    lines = (PAGES / page).read_text(encoding="utf-8").splitlines()
    code = textwrap.dedent("\n".join(line for line in lines if line.startswith("    ") or not line.strip()))
    names: dict[str, object] = {}
    exec(code, names)
    builder = names["builder"]
    assert isinstance(builder, tidemill.StreamsBuilder)
    for optimization in ("none", "all"):
        assert f"(topic: {written})" in builder.build(optimization=optimization).describe()


def test_every_no_of_the_table_says_why_or_what_instead() -> None:
    text = (PAGES / "operators.md").read_text(encoding="utf-8")
    verdicts = [row.split("|")[2].strip() for row in text.splitlines() if row.startswith(("| `", "| windows"))]
    assert len(verdicts) > 40
    assert all(re.match(r"no: .{10}|differs\b.{10}|yes|`|earliest", verdict) for verdict in verdicts)


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = ("aggregates.md", "tables.md", "joins.md", "windows.md", "operators.md")
    texts = [(PAGES / page).read_text(encoding="utf-8") for page in pages]
    targets = {target for text in texts for target in re.findall(r"\]\(([^)#]+)\)", text)}
    assert targets
    assert {target for target in targets if not (PAGES / target).exists()} == set()
