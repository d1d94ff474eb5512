"""What is said of a JVM that ended while it started: what it lacked, which its own words don't tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.spark.launch.jvm_needs import (
    few_files,
    lacking_folder,
    lacking_letters,
    little_space,
    nameless_user,
    what_it_lacked,
)


@pytest.mark.parametrize(("limit", "says"), [(64, "only 64 files"), (1023, "only 1023 files"), (1024, ""), (-1, "")])
def test_a_jvm_that_may_open_too_few_files_has_that_said(limit: int, says: str) -> None:
    assert says in few_files(limit)
    assert bool(says) is bool(few_files(limit))


def test_a_jvm_whose_locale_lacks_letters_of_the_temporary_folder_has_that_said() -> None:
    said = "java.nio.file.InvalidPathException: Malformed input or input contains unmappable characters: /tmp/b??r/spark"
    assert "set one with UTF-8, or a TMPDIR of ASCII letters" in lacking_letters(said)
    assert not lacking_letters("java.lang.OutOfMemoryError: Java heap space")


@pytest.mark.parametrize(("limit", "says"), [(1 << 30, "only 1024 MiB of address space"), (3 << 30, ""), (-1, "")])
def test_a_jvm_that_may_reserve_too_little_has_that_said(limit: int, says: str) -> None:
    assert says in little_space(limit)
    assert bool(says) is bool(little_space(limit))


def test_a_jvm_whose_folder_was_removed_while_it_started_has_that_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lacking_folder() == ""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    said = "java.lang.Error: Properties init: Could not determine current working directory."
    assert "the folder in which this process was started is gone: start it in one that stays" in what_it_lacked(said)


def test_a_user_id_without_a_name_has_that_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nameless_user() == ""
    monkeypatch.setattr("os.getuid", lambda: 54_321)
    assert "the user id 54321 has no line in /etc/passwd" in what_it_lacked("Invalid UID, could not determine effective user")
