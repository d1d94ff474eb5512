"""What is kept of a store's bytes beside them: what may become what, and that files of another form are found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.errors import CorruptStateError
from tidemill.state.lmdb import TaskState, wipe_files
from tidemill.steps.commit.store_layout import is_other_changelog

COUNTS = "timestamped_key_value key=string value=long"


@pytest.mark.parametrize(
    ("becomes", "is_other"),
    [
        (COUNTS, False),
        ("key_value key=string value=long", False),
        ("versioned key=string value=long", False),
        ("timestamped_key_value key=string value=json", True),
        ("timestamped_key_value key=long value=long", True),
        ("timestamped_window key=string value=long", True),
        ("session key=string value=long", True),
    ],
)
def test_a_changelog_of_counts_can_be_read_by(becomes: str, is_other: bool) -> None:
    assert is_other_changelog(COUNTS, becomes) is is_other


def test_windows_and_sessions_are_no_family_but_plain_windows_and_timestamped_ones_are() -> None:
    window = "window key=string value=long"
    assert not is_other_changelog(window, "timestamped_window key=string value=long with_headers")
    assert is_other_changelog(window, "session key=string value=long")


def test_a_state_says_what_its_stores_are_and_is_not_opened_as_something_else(tmp_path: Path) -> None:
    path = tmp_path / "0_0"
    TaskState.open(path, ["a", "b"], forms={"a": "x"}).close(clean=True)
    TaskState.open(path, ["a", "b"], forms={"a": "x", "b": "y"}).close(clean=True)
    state = TaskState.open_to_read(path)
    assert state.forms() == {"a": "x", "b": "y"}
    state.close(clean=False)
    with pytest.raises(CorruptStateError, match="found b: y, expected b: z"):
        TaskState.open(path, ["a", "b"], forms={"b": "z"})
    wipe_files(path)
    TaskState.open(path, ["b"], forms={"b": "z"}).close(clean=True)
