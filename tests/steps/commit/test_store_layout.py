"""What a state says of the layout of its stores: what may become what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.state.lmdb import TaskState
from tidemill.steps.commit.store_layout import form_of, is_other_changelog
from tidemill.steps.step_spec import StoreSpec
from tidemill.topology.nodes import Store, StoreKind

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


def kept_as(kind: StoreKind, retention_ms: int) -> str:
    store = Store(name="rows", kind=kind, retention_ms=retention_ms)
    return form_of(
        StoreSpec(
            name="rows", tag=-100, subtopology=1, changelog=None, timestamped=True, persistent=True, logged=True,
            key_serde=None, value_serde=None, kept=store,
        )
    )  # fmt: skip


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION])
def test_the_retention_of_windows_and_sessions_decides_how_their_rows_are_laid_out(kind: StoreKind) -> None:
    assert kept_as(kind, 3_600_000) != kept_as(kind, 3_600_002)
    assert kept_as(kind, 3_600_000) == kept_as(kind, 3_600_001), "segments of the same length"
    assert kept_as(kind, 1) == kept_as(kind, 120_000), "of a minute at least"
    assert not is_other_changelog(kept_as(kind, 1), kept_as(kind, 86_400_000)), "the changelog has no segments"


def test_windows_of_other_kinds_or_lengths_can_not_go_on_from_each_others_rows() -> None:
    tumbling = "timestamped_window key=string value=long segment_ms=60000 windows_ms=60000/60000"
    for others in ("60000/30000", "120000/120000", "sliding/60000", "from/0"):
        assert is_other_changelog(tumbling, tumbling.replace("60000/60000", others)), others
    assert not is_other_changelog(tumbling, tumbling.replace("segment_ms=60000", "segment_ms=120000"))
    assert not is_other_changelog(tumbling, tumbling.replace(" windows_ms=60000/60000", "")), "not said of its own windows"


def test_a_versioned_store_has_no_segments() -> None:
    assert kept_as(StoreKind.VERSIONED, 1) == kept_as(StoreKind.VERSIONED, 86_400_000)


def test_a_state_says_what_its_stores_are(tmp_path: Path) -> None:
    path = tmp_path / "0_0"
    TaskState.open(path, ["a", "b"], forms={"a": "x"}).close(clean=True)
    TaskState.open(path, ["a", "b"], forms={"a": "x", "b": "y"}).close(clean=True)
    state = TaskState.open_to_read(path)
    assert state.forms() == {"a": "x", "b": "y"}
    state.close(clean=False)
