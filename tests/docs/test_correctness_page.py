"""docs/correctness.md and the code are one: every rule that is cited exists, every rule and every row names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")
RULES = {int(number): text for number, text in re.findall(r"^\*\*Rule (\d+)\.\*\*(.*?)(?=^\*\*Rule|^## |\Z)", PAGE, re.M | re.S)}
ROWS = [
    line
    for line in PAGE.split("## Bad input")[1].splitlines()
    if line.startswith("| ") and not line.startswith("| input |")
]
TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
CITED = re.compile(r"\brules? (\d+)(?:(?:, (\d+))*(?: (?:and|to) (\d+))?)", re.I)


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def missing(text: str) -> list[str]:
    """The tests named in ``text`` that don't exist."""
    found = []
    for path, name in TEST.findall(text):
        if not (ROOT / path).is_file() or (name and name not in names_in(path)):
            found.append(f"{path}::{name}")
    return found


def test_rules_are_numbered_without_a_gap() -> None:
    assert list(RULES) == list(range(1, len(RULES) + 1))


@pytest.mark.parametrize("number", RULES)
def test_a_rule_says_where_it_is_kept_and_which_tests_fail_without_it(number: int) -> None:
    text = " ".join(RULES[number].split())
    (kept,) = re.findall(r"Kept in: (.*?)\. Tests:", text)
    modules = re.findall(r"`([\w/]+\.py)`", kept)
    assert modules
    assert [name for name in modules if not (ROOT / "src" / "tidemill" / name).is_file()] == []
    named = TEST.findall(text.split("Tests:")[1])
    assert named
    assert all(name for _, name in named)
    assert missing(text) == []


def test_every_kind_of_bad_input_names_its_test() -> None:
    assert ROWS
    assert [row for row in ROWS if not TEST.search(row) or missing(row)] == []


def test_every_rule_that_the_code_cites_is_on_the_page() -> None:
    cited = set()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        if path == Path(__file__):
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if "rule" in line and ("correctness.md" in line or re.search(r"\(rules? \d", line)):
                cited |= {int(number) for found in CITED.findall(line) for number in found if number}
    assert len(cited) > 15
    assert cited <= set(RULES)
