"""Public names that are loaded on first use: what an import says where a module of theirs can't be loaded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidemill.lazy_names import load_name

MODULES = {"Apple": "crated_fruit", "Pear": "rotten_fruit"}


@pytest.fixture
def fruit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package's modules, one of which needs what a file of the program's has taken the place of."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "crated_fruit.py").write_text("import fruit_crate\n\nApple = fruit_crate.Box\n")
    (tmp_path / "rotten_fruit.py").write_text("Pear = ().worm\n")
    (tmp_path / "fruit_crate.py").write_text("X = 1\n")
    return tmp_path


def test_a_file_of_the_programs_in_a_modules_place_is_named(fruit: Path) -> None:
    lacks = f"fruits.Apple can't be loaded: module 'fruit_crate' has no attribute 'Box' ({fruit / 'fruit_crate.py'}). "
    with pytest.raises(ImportError, match=re.escape(lacks + "If this file is yours, rename it")):
        load_name("fruits", "Apple", MODULES)


def test_any_attribute_error_of_a_module_is_said(fruit: Path) -> None:
    with pytest.raises(ImportError, match=r"^fruits\.Pear can't be loaded: 'tuple' object has no attribute 'worm'$"):
        load_name("fruits", "Pear", MODULES)


def test_other_names_are_none_of_the_package() -> None:
    with pytest.raises(AttributeError, match="module 'fruits' has no attribute 'Plum'"):
        load_name("fruits", "Plum", MODULES)
