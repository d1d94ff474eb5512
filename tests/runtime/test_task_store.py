"""A task's stores as its worker has them: what is written is what was committed, where the files are is what counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill import Serdes
from tidemill.ids import TaskId
from tidemill.runtime.task_store import OpenTasks, OwnedStores
from tidemill.spark.step_spec import StoreSpec
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
