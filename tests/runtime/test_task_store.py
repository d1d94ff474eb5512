"""A task's stores as its worker has them: what is written is what was committed, where the files are is what counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidemill import Serdes
from tidemill.errors import BatchLostError
from tidemill.ids import TaskId
from tidemill.runtime.task_store import OpenTasks, OwnedStores
from tidemill.spark.step_spec import StoreSpec
from tidemill.state.registry import DATA_FILE
from tidemill.task.batch import TaskRun

TASK = TaskId(1, 0)
SPECS = {
    "counts": StoreSpec(
        name="counts",
        tag=-100,
        subtopology=1,
        changelog="app-counts-changelog",
        timestamped=True,
        persistent=True,
        logged=True,
        key_serde=Serdes.string(),
        value_serde=Serdes.long(),
    )
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "1_0")


def run(folder: str, position: int | None = None, epoch: str = "owner") -> TaskRun:
    return TaskRun(task=TASK, directory=folder, epoch=epoch, changelog=None if position is None else {"counts": position})


def opened(folder: str, position: int | None = None, epoch: str = "owner") -> OwnedStores:
    return OpenTasks(SPECS).open([run(folder, position, epoch)])[TASK]


def test_what_an_aborted_batch_had_checked_is_never_written(folder: str) -> None:
    stores = opened(folder)
    stores.check({"counts": {b"aborted": b"1"}})
    stores.apply({"counts": {b"restored": b"2"}}, {"counts": 5})
    assert stores.get_many("counts", [b"aborted", b"restored"]) == [None, b"2"]
    stores.check({"counts": {b"aborted": b"1"}})
    stores.apply({}, {"counts": 6})
    assert stores.get_many("counts", [b"aborted"]) == [None]
    assert stores.at.changelog == {"counts": 6}


def test_what_was_checked_and_committed_is_written(folder: str) -> None:
    stores = opened(folder)
    writes: dict[str, dict[bytes, bytes | None]] = {"counts": {b"k": b"1"}}
    stores.check(writes)
    stores.apply(writes, {"counts": 3})
    assert stores.get_many("counts", [b"k"]) == [b"1"]
    assert stores.at.changelog == {"counts": 3}


def test_stores_that_another_worker_has_moved_are_where_their_files_are(folder: str) -> None:
    """Two workers with the task's epoch, one after the other: the older must not believe its memory."""
    older, newer = opened(folder), opened(folder)
    newer.apply({"counts": {b"k": b"1"}}, {"counts": 7})
    older.expect(run(folder, 7))
    assert not older.at.is_behind
    assert older.at.changelog == {"counts": 7}


def test_stores_elsewhere_than_the_driver_thinks_are_behind(folder: str) -> None:
    stores = opened(folder)
    stores.apply({}, {"counts": 7})
    stores.expect(run(folder, 9))
    assert stores.at.is_behind
    assert stores.at.changelog == {"counts": 7}


def test_stores_that_another_owner_has_claimed_are_written_no_more_and_stay_behind(folder: str) -> None:
    former = opened(folder, epoch="former")
    OpenTasks(SPECS).open([run(folder, epoch="next")])
    former.apply({"counts": {b"k": b"1"}}, {"counts": 7})
    assert former.at.is_behind
    assert former.get_many("counts", [b"k"]) == [None]
    former.expect(run(folder, 0, epoch="former"))
    assert former.at.is_behind
    former.apply({"counts": {b"k": b"1"}}, {"counts": 8})
    assert former.get_many("counts", [b"k"]) == [None]


def broken_deep_inside(folder: str) -> OwnedStores:
    """Stores at 9, opened over a file whose last leaf is empty, which no look at the first pages tells."""
    stores = opened(folder)
    stores.apply({"counts": {f"key{number:06}".encode(): b"v" * 100 for number in range(40_000)}}, {"counts": 9})
    stores.close(clean=True)
    file = Path(folder) / DATA_FILE
    content = file.read_bytes()
    at = content.index(b"key039999") // 4096 * 4096
    file.write_bytes(content[:at] + bytes(4096) + content[at + 4096 :])
    again = opened(folder, 9)
    assert not again.at.is_behind
    assert again.get_many("counts", [b"key000001"]) == [b"v" * 100]
    return again


def test_a_page_that_turns_out_to_be_broken_costs_the_batch_and_the_state_but_nothing_else(folder: str) -> None:
    stores = broken_deep_inside(folder)
    with pytest.raises(BatchLostError, match=r"data.mdb is corrupt: .*wiped"):
        stores.get_many("counts", [b"key039999"])
    assert stores.at.is_behind
    assert stores.at.changelog == {}
    assert "wiped" in stores.at.note
    stores.expect(run(folder))
    assert not stores.at.is_behind, "it can be restored now"
    stores.apply({"counts": {b"k": b"1"}}, {"counts": 3})
    assert stores.get_many("counts", [b"k", b"key000001"]) == [b"1", None]


def test_a_file_is_looked_through_when_that_is_asked_for(folder: str) -> None:
    stores = broken_deep_inside(folder)
    stores.close(clean=True)
    tasks = OpenTasks(SPECS)
    assert not tasks.open([run(folder, 9)])[TASK].at.is_behind
    held = tasks.open([replace(run(folder, 9), inspect=True)])[TASK]
    assert held.at.is_behind
    assert "wiped" in held.at.note
    assert not tasks.open([replace(run(folder), inspect=True)])[TASK].at.is_behind
