"""One name, one meaning: no two classes of one name, and no module that imports in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCE.rglob("*.py")
}
OPERATIONS = {"tidemill.topology.operations", "tidemill.topology.join_operations"}
CIRCLES = {
    "tidemill.config.rules": "a config applies the rules when it is made, and a rule reads the whole config: for its type only",
    "tidemill.dsl.stream": "Kafka Streams' API is one: streams make groups, groups make tables, and tables make streams",
    "tidemill.operators.node_context": "a context is a node's view of its graph, which makes it: for the graph's type only",
    "tidemill.schema_registry.registry": "a registry makes serdes, which keep it: its settings and client are one public value",
    "tidemill.topology.nodes": "Topology.describe and the drawings are methods, as in Kafka Streams; their texts are made apart",
}
"""One module of each circle that is closed by a type, or by an import within a function, and why it is one."""


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def _classes() -> dict[str, set[str]]:
    """The modules that define a class of a name. The operator of an operation has the operation's name, and its meaning."""
    found: dict[str, set[str]] = {}
    for module in MODULES:
        for node in _tree(module).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).add(module)
    for modules in found.values():
        if OPERATIONS & modules and len(modules) == 2 and any(module.startswith("tidemill.operators.") for module in modules):
            modules.difference_update(OPERATIONS)
    return found


def test_no_two_classes_have_one_name() -> None:
    assert {name: modules for name, modules in _classes().items() if len(modules) > 1} == {}


def _imports(node: ast.AST, *, later: bool) -> Iterator[str]:
    """What a module imports when it is imported; with ``later`` also within functions, and for types."""
    for child in ast.iter_child_nodes(node):
        is_later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        )
        if isinstance(child, ast.ImportFrom) and child.module is not None:
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield inner if inner in MODULES else child.module
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        if later or not is_later:
            yield from _imports(child, later=later)


def _circles(*, later: bool) -> list[set[str]]:
    """Modules that import one another, directly or through others. The two public packages load everything by name."""
    inner = MODULES.keys() - {"tidemill", "tidemill.testing"}
    imported = {module: {name for name in _imports(_tree(module), later=later) if name in inner} - {module} for module in inner}
    left = dict(imported)
    while bare := {module for module, names in left.items() if not names & left.keys()}:  # what imports nothing that is left
        for module in bare:
            del left[module]
    reached = {module: _reached(module, left) for module in left}
    circles: list[set[str]] = []
    for module in sorted(left):
        if module in reached[module] and not any(module in circle for circle in circles):
            circles.append({other for other in reached[module] if module in reached[other]})
    return circles


def _reached(module: str, imported: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        for name in imported.get(waiting.pop(), set()) & imported.keys() - found:
            found.add(name)
            waiting.append(name)
    return found


def test_no_module_needs_itself_to_be_imported() -> None:
    assert _circles(later=False) == []


def test_every_circle_that_types_and_functions_close_is_named_with_its_reason() -> None:
    circles = _circles(later=True)
    assert [sorted(circle) for circle in circles if not circle & CIRCLES.keys()] == []
    assert {module for module in CIRCLES if not any(module in circle for circle in circles)} == set()
