"""ARCHITECTURE.md and the code are one: the functions that it names exist, its packages are all packages, its paths are short."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tidemill"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
FUNCTION = re.compile(r"`([\w/]+\.py):([\w.]+)`")
PACKAGES, RECORD, REBALANCE, QUERY = (part for part in re.split(r"^## .*\n", PAGE, flags=re.MULTILINE)[1:])
MOST_HOPS = {"record": (RECORD, 15), "rebalance": (REBALANCE, 20), "query": (QUERY, 15)}


@cache
def _defined(path: str) -> frozenset[str]:
    """Functions, classes and methods (``Class.method``) of a module."""
    found = set()
    for node in ast.parse((SOURCE / path).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (member for member in node.body if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)))
            found |= {f"{node.name}.{member.name}" for member in inner}
    return frozenset(found)


def _layers() -> list[list[str]]:
    """The packages of each layer of the import rules, from above."""
    (listed,) = re.findall(r'type = "layers"\nlayers = \[\n(.*?)\n\]', PYPROJECT, re.DOTALL)
    return [re.findall(r"tidemill\.(\w+)", line) for line in listed.splitlines()]


def test_every_function_that_the_map_names_exists() -> None:
    named = FUNCTION.findall(PAGE)
    assert len(named) > 40
    gone = [f"{path}:{name}" for path, name in named if not (SOURCE / path).is_file() or name not in _defined(path)]
    assert gone == []


@pytest.mark.parametrize("way", MOST_HOPS)
def test_a_way_is_numbered_without_a_gap_and_short(way: str) -> None:
    text, most = MOST_HOPS[way]
    hops = re.findall(r"^\| (\d+) \|.*$", text, re.MULTILINE)
    assert [int(number) for number in hops] == list(range(1, len(hops) + 1))
    assert 10 <= len(hops) <= most
    assert [line for line in re.findall(r"^\| \d+ \|.*$", text, re.MULTILINE) if not FUNCTION.search(line)] == []


def test_the_packages_are_those_of_the_source() -> None:
    there = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    table = re.findall(r"^\| (`.*?`) \| ", PACKAGES, re.MULTILINE)
    listed_there = [package for cell in table for package in re.findall(r"`(\w+)`", cell)]
    assert sorted(listed_there) == sorted(there)


def test_the_picture_shows_each_layer_s_packages_above_those_that_they_may_import() -> None:
    """Arrows go from one layer to the next; the boxes of a layer name its packages."""
    labels = re.findall(r'(\w+)\["([^"]*)"\]', PACKAGES)
    boxes = {name: set(re.findall(r"\w+", label.partition(":")[0])) for name, label in labels}
    depth = {package: at for at, packages in reversed(list(enumerate(_layers()))) for package in packages}
    depth_of = {name: {depth[package] for package in label & depth.keys()} for name, label in boxes.items()}
    assert [name for name, depths in depth_of.items() if not depths] == []
    arrows = []
    for sources, targets in re.findall(r'^    ([\w& ]+?)(?:\["[^"]*"\])? --> ([\w& ]+)', PACKAGES, re.MULTILINE):
        arrows += [(source, target) for source in sources.split(" & ") for target in targets.split(" & ")]
    assert len(arrows) >= len(boxes) - 1
    assert [(one, other) for one, other in arrows if max(depth_of[one]) >= min(depth_of[other.strip()])] == []
    assert set().union(*boxes.values()) >= set(depth) - {"endpoint", "printable", "text_table", "replay", "config"}
