"""The application's directory: process id, task directories, checkpoint files."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from tidemill.errors import EnvironmentProblem, StateError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.state.directory import PROCESS_FILE, StateDirectory, write_checkpoint
from tidemill.state.lmdb import TaskState
from tidemill.state.lock import StateDirectoryLock


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(tmp_path / "state", "streams-wordcount")
    made.create()
    return made


def test_a_new_process_id_is_kept_in_kafkas_file(directory: StateDirectory) -> None:
    first = directory.process_id()
    assert first.problem is not None
    assert json.loads((directory.path / PROCESS_FILE).read_text()) == {"processId": str(first.process_id)}
    again = directory.process_id()
    assert again.problem is None
    assert again.process_id == first.process_id


def test_a_process_id_that_a_java_instance_kept_is_used(directory: StateDirectory) -> None:
    known = UUID("f0e1d2c3-0000-4000-8000-000000000001")
    (directory.path / PROCESS_FILE).write_text(f'{{"processId":"{known}","later":"field"}}')
    assert directory.process_id().process_id == ProcessId.of(known)
    assert "later" in (directory.path / PROCESS_FILE).read_text()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", "17", '{"processId": 4}', '{"processId": "not-one"}', "\0" * 60, "\udcff", "[" * 100_000],
)
def test_an_unreadable_process_id_is_replaced_by_a_new_one_that_is_kept(directory: StateDirectory, content: str) -> None:
    (directory.path / PROCESS_FILE).write_bytes(content.encode(errors="surrogateescape"))
    replaced = directory.process_id()
    assert replaced.problem is not None
    assert PROCESS_FILE in replaced.problem
    assert directory.process_id().process_id == replaced.process_id


def test_two_directories_have_two_process_ids(tmp_path: Path, directory: StateDirectory) -> None:
    other = StateDirectory(tmp_path / "other", "streams-wordcount")
    other.create()
    assert other.process_id().process_id != directory.process_id().process_id


def test_others_than_user_and_group_can_not_look_into_it(tmp_path: Path) -> None:
    of_a_version_before = tmp_path / "app"
    of_a_version_before.mkdir()
    of_a_version_before.chmod(0o775)
    StateDirectory(tmp_path, "app").create()
    assert of_a_version_before.stat().st_mode & 0o777 == 0o770
    StateDirectory(tmp_path, "new").create()
    assert (tmp_path / "new").stat().st_mode & 0o007 == 0


def test_tasks_are_the_directories_that_are_named_like_one(directory: StateDirectory) -> None:
    assert directory.tasks() == []
    for name in ("1_10", "1_2", "0_0", "01_1", "1_x", ".removed-1_3-x", "lost+found"):
        (directory.path / name).mkdir()
    (directory.path / "2_0").write_text("a file")
    assert directory.tasks() == [TaskId(0, 0), TaskId(1, 2), TaskId(1, 10)]


def test_an_application_without_a_directory_has_no_tasks(tmp_path: Path) -> None:
    assert StateDirectory(tmp_path, "never-ran").tasks() == []


def test_a_removed_task_begins_again(directory: StateDirectory) -> None:
    task = TaskId(1, 0)
    TaskState.open(directory.task_path(task), ["a"]).close(clean=True)
    (directory.path / ".removed-1_7-half").mkdir()
    with StateDirectoryLock.acquire(directory.path, timeout_s=0) as lock:
        directory.remove(task, lock)
        directory.remove(task, lock)
    assert directory.tasks() == []
    assert not list(directory.path.glob(".removed*"))


def test_a_task_is_removed_only_under_the_directorys_own_lock(directory: StateDirectory, tmp_path: Path) -> None:
    task = TaskId(1, 0)
    directory.task_path(task).mkdir()
    other = StateDirectoryLock.acquire(tmp_path, timeout_s=0)
    released = StateDirectoryLock.acquire(directory.path, timeout_s=0)
    released.release()
    for lock in (other, released):
        with pytest.raises(StateError, match="task 1_0 stays"):
            directory.remove(task, lock)
    assert directory.tasks() == [task]
    other.release()


def test_a_directory_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match=r"can't make the state directory .*/file/app"):
        StateDirectory(tmp_path / "file", "app").create()


def test_a_directory_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"state-.udce9/app' has a name that is not text in UTF-8"):
        StateDirectory(tmp_path / "state-\udce9", "app").create()


def test_a_process_id_that_can_not_be_kept_is_the_environments_problem(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidemill.state.directory.replace_file", full)
    with pytest.raises(EnvironmentProblem, match=rf"can't keep .*{PROCESS_FILE}: No space left on device\. state\.dir must"):
        directory.process_id()
    (directory.path / PROCESS_FILE).mkdir()
    with pytest.raises(EnvironmentProblem, match=rf"{PROCESS_FILE}: Is a directory"):
        directory.process_id()


def test_a_checkpoint_is_replaced_whole_and_without_entries_removed(tmp_path: Path) -> None:
    path = tmp_path / ".checkpoint"
    write_checkpoint(path, {TopicPartition("t", 0): 5})
    write_checkpoint(path, {TopicPartition("t", 0): 6})
    assert path.read_text() == "0\n1\nt 0 6\n"
    assert [entry.name for entry in tmp_path.iterdir()] == [".checkpoint"]
    write_checkpoint(path, {})
    assert not path.exists()
