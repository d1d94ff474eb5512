"""Stores on an executor's disk: their folders, one writer at a time, and reads of them for a driver elsewhere."""

from __future__ import annotations

import itertools
import time
from functools import partial
from pathlib import Path

import pytest

from tidemill.deadline import Deadline
from tidemill.dsl.serdes import Serdes
from tidemill.errors import BatchLostError, InvalidStateStoreError, QueryError, StateError
from tidemill.ids import TaskId
from tidemill.membership.member_state import Role
from tidemill.query.local_copies import CopyReader, LocalCopy, StoreSnapshot
from tidemill.query.store_info import StoreInfo
from tidemill.runtime.reads.executor_reads import RemoteState
from tidemill.runtime.worker import executor_state
from tidemill.runtime.worker.executor_state import ExecutorDisk, ExecutorState
from tidemill.state.lmdb import TaskState
from tidemill.state.lock import StateDirectoryLock
from tidemill.state.meta import StateIdentity
from tidemill.state.store import Positions
from tidemill.task.batch import TaskRun
from tidemill.task.message_pack import pack

TASK = TaskId(1, 0)


def disk_at(folder: Path, process: str = "p", delay_ms: int = 60_000) -> ExecutorState:
    return ExecutorState(
        ExecutorDisk(state_dir=str(folder), application_id="app", process_id=process, cleanup_delay_ms=delay_ms)
    )


def run_of(task: TaskId, directory: str = "/driver/app/1_0") -> TaskRun:
    return TaskRun(task=task, directory=directory, epoch="e")


def test_a_task_lies_below_the_instances_process_id_and_one_without_stores_nowhere(tmp_path: Path) -> None:
    here = disk_at(tmp_path).here([run_of(TASK), run_of(TaskId(0, 0), directory="")])
    assert [run.directory for run in here] == [str(tmp_path / "app" / "p" / "1_0"), ""]


def test_a_relative_folder_begins_where_the_worker_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert disk_at(Path("state")).directory.path == tmp_path / "state" / "app" / "p"


def test_a_second_worker_gets_a_task_when_the_first_one_has_let_go_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_state, "_PREDECESSOR_LIMIT_S", 0.2)
    first, second = disk_at(tmp_path), disk_at(tmp_path)
    first.open(TASK)
    first.open(TASK)
    with pytest.raises(BatchLostError, match="task 1_0"):
        second.open(TASK)
    disk_at(tmp_path, process="another instance").open(TASK)
    first.close(TASK)
    second.open(TASK)


def test_a_task_that_was_locked_to_be_removed_is_opened_in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = disk_at(tmp_path)
    path = disk.directory.task_path(TASK)
    path.mkdir(parents=True)
    cleaning = StateDirectoryLock.acquire(path, timeout_s=1)

    def removed(_pause_s: float) -> None:
        path.rename(tmp_path / "removed")
        cleaning.release()

    monkeypatch.setattr("time.sleep", removed)
    disk.open(TASK)
    assert path.is_dir()


def test_what_can_not_be_removed_costs_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = disk_at(tmp_path, delay_ms=0)
    disk.directory.task_path(TASK).mkdir(parents=True)
    monkeypatch.setattr(disk, "_cleans_at", Deadline.after(0.0))

    def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refuse)
    time.sleep(0.02)
    disk.clean([])
    assert "event=state-not-cleaned" in caplog.text


def test_a_state_that_another_worker_removes_meanwhile_costs_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = disk_at(tmp_path, delay_ms=0)
    path = disk.directory.task_path(TASK)
    path.mkdir(parents=True)
    monkeypatch.setattr(disk, "_cleans_at", Deadline.after(0.0))

    def tasks() -> list[TaskId]:
        path.rmdir()
        return [TASK]

    monkeypatch.setattr(disk.directory, "tasks", tasks)
    disk.clean([])
    assert not path.exists()


def test_what_nobody_has_had_for_the_delay_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = disk_at(tmp_path, delay_ms=0)
    tasks = [TaskId(1, number) for number in range(4)]
    for task in tasks:
        disk.directory.task_path(task).mkdir(parents=True)
    disk.open(tasks[0])
    time.sleep(0.02)
    disk.clean([tasks[1]])
    assert disk.directory.tasks() == tasks  # not looked at yet
    monkeypatch.setattr(disk, "_cleans_at", Deadline.after(0.0))
    with StateDirectoryLock.acquire(disk.directory.task_path(tasks[2]), timeout_s=1):
        time.sleep(0.02)
        disk.clean([tasks[1]])
    assert disk.directory.tasks() == tasks[:3]


def test_a_driver_reads_what_a_worker_has(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    state = TaskState.open(disk.directory.task_path(TASK), ["counts"])
    before = state.claim("e")
    rows = [(b"%02d" % number, b"v%d" % number) for number in range(30)]
    state.apply(expected=before, new=Positions(changelog={"counts": 7}, epoch="e"), writes={"counts": rows})
    far = RemoteState(tmp_path / "nowhere" / "1_0", partial(disk.answer, TASK, ""))
    assert far.get_many("counts", [b"03", b"no", b""]) == [b"v3", None, None]
    assert list(far.scan("counts", chunk=7)) == rows
    assert list(far.scan("counts", b"05", b"08")) == rows[5:8]
    assert list(far.scan("counts", b"05", reverse=True, chunk=3)) == rows[:4:-1]
    assert far.positions().changelog == {"counts": 7}
    assert far.entries("counts") == 30
    state.close(clean=True)


@pytest.mark.parametrize("batches", [0, 1, 1000])
def test_reads_of_one_commit_are_made_again_if_a_batch_comes_between_them(tmp_path: Path, batches: int) -> None:
    disk = disk_at(tmp_path)
    state = TaskState.open(disk.directory.task_path(TASK), ["counts"])
    position = [state.claim("e")]
    far = RemoteState(tmp_path / "nowhere" / "1_0", partial(disk.answer, TASK, ""))
    info = StoreInfo(
        name="counts", subtopology=1, key_serde=Serdes.bytes(), value_serde=Serdes.bytes(), timestamped=False, changelog="counts",
        source_topics=("in",), is_placed=True,
    )  # fmt: skip
    reader = CopyReader(far, info, LocalCopy(task=TASK, directory=tmp_path, role=Role.ACTIVE), 0)
    calls = itertools.count(1)

    def twice(view: StoreSnapshot) -> list[bytes | None]:
        first, call = view.get("counts", b"k"), next(calls)
        if call <= batches:
            new = Positions(changelog={"counts": call}, epoch="e")
            state.apply(expected=position.pop(), new=new, writes={"counts": [(b"k", b"%d" % call)]})
            position.append(new)
        return [first, view.get("counts", b"k")]

    if batches == 1000:
        with pytest.raises(InvalidStateStoreError, match="a batch was applied while it was read, 20 times over"):
            reader.at_one_commit(twice)
    else:
        assert reader.at_one_commit(twice) == [[None, None], [b"1", b"1"]][batches]
    state.close(clean=True)


def test_another_tasks_state_on_the_executor_is_not_read(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    its_own = StateIdentity(application_id="app", task=TaskId(9, 9))
    TaskState.open(disk.directory.task_path(TASK), ["counts"], whose=its_own).close(clean=True)
    far = RemoteState(tmp_path / "nowhere" / "1_0", partial(disk.answer, TASK, ""))
    with pytest.raises(StateError, match="holds the state of task 9_9 of application app, expected that of task 1_0 of"):
        far.entries("counts")


def test_what_does_not_lie_on_the_executor_is_said_and_files_of_it_are_nobody_elses(tmp_path: Path) -> None:
    disk = disk_at(tmp_path)
    far = RemoteState(tmp_path / "nowhere" / "1_0", partial(disk.answer, TASK, ""))
    with pytest.raises(StateError):
        far.entries("counts")
    with pytest.raises(QueryError, match="lies on an executor's disk"):
        _ = far.directory


def test_an_answer_that_can_not_be_read_is_a_state_error(tmp_path: Path) -> None:
    remote = RemoteState(tmp_path / "1_0", lambda _read: pack("many"))
    with pytest.raises(StateError, match=r"the answer for task 1_0 can't be read: .* are no int: Expected `int`, got `str`"):
        remote.entries("counts")
