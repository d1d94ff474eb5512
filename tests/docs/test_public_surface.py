"""The public API is what `tidemill` and `tidemill.testing` export: pages and examples import nothing else."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill
import tidemill.errors
import tidemill.testing

ROOT = Path(__file__).parents[2]
PUBLIC = {"tidemill": tidemill, "tidemill.testing": tidemill.testing}
FOR_DEVELOPERS = ("docs/contributing/", "docs/adr/")
"""Pages for those who change Tidemill itself."""
GIVEN_NOT_NAMED = {
    "BooleanSerde", "BytesSerde", "DoubleSerde", "FloatSerde", "JsonClassSerde", "JsonDocumentSerde", "JsonSerde",
    "StringSerde", "UUIDSerde", "VoidSerde", "WholeNumberSerde",
    "SessionWindowedSerde", "TimeWindowedSerde",  # Serdes makes them; programs name their protocol, Serde
    "OfColumns", "PerBatch", "PerRecord", "PerRecordAsync",  # marked functions, which are handed on to an operator
    "StreamThread", "CopyReader",  # looked at in a running instance
}  # fmt: skip
"""Classes of what public methods give that no program has to name."""

_IMPORT = re.compile(r"^[ >]*(?:from (tidemill[\w.]*) import (\([^)]*\)|[^#\n`]+)|import (tidemill[\w.]*))", re.MULTILINE)
_DOTTED = re.compile(r"\btidemill\.(?:[a-z_]+\.)*[A-Z]\w+")


def _what_users_read() -> Iterator[tuple[str, str]]:
    examples = [file for ending in ("py", "ipynb") for file in (ROOT / "examples").rglob(f"*.{ending}")]
    for file in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *examples]:
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith(FOR_DEVELOPERS):
            yield name, file.read_text(encoding="utf-8")


def _imports(text: str) -> Iterator[tuple[str, str | None]]:
    """(module, name) of each import from Tidemill; (module, None) of an import of the module."""
    for found in _IMPORT.finditer(text):
        if found[3]:
            yield found[3], None
            continue
        for name in found[2].strip("()").replace("\n", " ").split(","):
            if name.strip():
                yield found[1], name.split(" as ")[0].strip()


def test_imports_are_found_in_every_form() -> None:
    text = "import tidemill.kafka\n    from tidemill import (\n    A,\n    B as C,\n)\nfrom tidemill.testing import D  # why\n"
    assert list(_imports(text)) == [("tidemill.kafka", None), ("tidemill", "A"), ("tidemill", "B"), ("tidemill.testing", "D")]


def test_pages_and_examples_import_public_names_only() -> None:
    seen, private = 0, []
    for file, text in _what_users_read():
        for module, name in _imports(text):
            seen += 1
            if module not in PUBLIC or (name is not None and name not in PUBLIC[module].__all__):
                private.append(f"{file}: {module} {name or ''}")
    assert private == []
    assert seen > 50


def test_pages_send_nobody_to_a_module_that_is_not_public() -> None:
    private = [
        f"{file}: {found}"
        for file, text in _what_users_read()
        if not file.startswith("docs/reference/")
        for found in _DOTTED.findall(text)
        if found.rpartition(".")[0] not in PUBLIC
    ]
    assert private == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_name_that_is_exported_is_there_once(module: str) -> None:
    exported = PUBLIC[module].__all__
    assert sorted(set(exported)) == sorted(exported)
    assert [name for name in exported if getattr(PUBLIC[module], name).__class__ is type(tidemill)] == []
    assert set(exported) <= set(dir(PUBLIC[module]))
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'Consumers'"):
        PUBLIC[module].Consumers  # noqa: B018


def test_no_module_is_loaded_before_its_name_is_used() -> None:
    seen = "import sys, tidemill, tidemill.testing; print(sorted(name for name in sys.modules if name.startswith('tidemill')))"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tidemill', 'tidemill.lazy_names', 'tidemill.testing']"


def test_the_reference_has_every_exported_name_and_no_other() -> None:
    entries = [
        name
        for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
        for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(set(entries)) == sorted(entries)
    exported = {id(getattr(module, name)): f"{module.__name__}.{name}" for module in PUBLIC.values() for name in module.__all__}
    documented = {}
    for entry in entries:
        module, _, name = entry.rpartition(".")
        documented[id(getattr(importlib.import_module(module), name))] = entry
    assert sorted(exported[one] for one in exported.keys() - documented.keys()) == []
    assert sorted(documented[one] for one in documented.keys() - exported.keys()) == []


def _given() -> Iterator[tuple[str, str]]:
    """(method, class) for each class of Tidemill in the return type of a public method."""
    for module in PUBLIC.values():
        for exported in module.__all__:
            owner = getattr(module, exported)
            for name, member in vars(owner).items() if isinstance(owner, type) else [("", owner)]:
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if name.startswith("_") or not inspect.isfunction(function):
                    continue
                for word in re.findall(r"[A-Za-z_]\w*", str(function.__annotations__.get("return", ""))):
                    found = getattr(sys.modules[function.__module__], word, None)
                    if isinstance(found, type) and found.__module__.startswith("tidemill."):
                        yield f"{exported}.{name}", word


def _docstrings() -> Iterator[tuple[str, str]]:
    for module in PUBLIC.values():
        for exported in module.__all__:
            owner = getattr(module, exported)
            yield exported, owner.__doc__ or ""
            for name, member in vars(owner).items() if isinstance(owner, type) else []:
                if not name.startswith("_"):
                    yield f"{exported}.{name}", getattr(member, "__doc__", None) or ""


def test_errors_that_pages_and_public_docstrings_name_are_public() -> None:
    exported = {name for module in PUBLIC.values() for name in module.__all__}
    private = {name for name, found in vars(tidemill.errors).items() if isinstance(found, type)} - exported
    told = [*_what_users_read(), *_docstrings()]
    assert sum("TopologyError" in text for _, text in told) > 20
    assert [(where, name) for where, text in told for name in sorted(private) if re.search(rf"\b{name}\b", text)] == []


def _described() -> Iterator[tuple[str, str, bool]]:
    """(callable, argument, whether it has it) for each argument in a section ``Args:`` of a public class or its methods."""
    for module in PUBLIC.values():
        for exported in module.__all__:
            owner = getattr(module, exported)
            for name, member in [("", owner), *(vars(owner).items() if isinstance(owner, type) else [])]:
                found = getattr(member, "__func__", member)
                text = getattr(found, "__doc__", None) or ""
                section = re.search(r"^ *Args:\n(.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
                if section is not None and not name.startswith("_"):
                    has = inspect.signature(found).parameters
                    indent = re.match(r" *", section[1])[0]  # type: ignore[index]
                    for argument in re.findall(rf"^{indent}(\S[^:\n]*):", section[1], re.MULTILINE):
                        yield f"{exported}.{name}", argument, argument in has


def test_arguments_that_public_docstrings_describe_are_there() -> None:
    described = list(_described())
    assert ("KafkaStreams.", "session", True) in described
    assert [one for one in described if not one[2]] == []  # MkDocs' warnings are errors


def test_what_public_methods_give_is_public() -> None:
    exported = {name for module in PUBLIC.values() for name in module.__all__}
    given = list(_given())
    assert len(given) > 100
    assert [one for one in given if one[1] not in exported | GIVEN_NOT_NAMED] == []
    assert GIVEN_NOT_NAMED - {name for _, name in given} == set()
