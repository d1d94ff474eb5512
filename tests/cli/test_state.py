"""`tidemill state`: tasks and positions of a state directory, while an instance runs or without one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidemill import StreamsBuilder
from tidemill.cli.state import app
from tidemill.errors import CorruptStateError, EnvironmentProblem, ForeignStateError, StateDirectoryInUseError, StopError
from tidemill.ids import TaskId, TopicPartition
from tidemill.runtime.instance.application import KafkaStreams, State
from tidemill.state.directory import DATA_FILE, StateDirectory
from tidemill.state.lmdb import TaskState
from tidemill.state.lock import StateDirectoryLock
from tidemill.state.meta import StateIdentity
from tidemill.state.store import Positions

APPLICATION = "streams-wordcount"
CHANGELOG = f"{APPLICATION}-counts-store-changelog"


def tidemill_state(*arguments: object) -> tuple[int, str]:
    """Exit code and output of the command; its errors are raised, because `main` turns them into sentences."""
    answer = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer.exit_code, answer.output


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    """Tasks 1_0 with two counts, closed cleanly, and 1_1, which an instance has open, as far as one can see."""
    directory = StateDirectory(tmp_path, APPLICATION)
    directory.create()
    directory.process_id()
    for partition, position in ((0, 42), (1, 0)):
        task = TaskId(1, partition)
        changelogs = {"counts-store": TopicPartition(CHANGELOG, partition)}
        state = TaskState.open(directory.task_path(task), ["counts-store"], changelogs=changelogs)
        state.claim("thread-1")
        new = Positions(changelog={"counts-store": position}, inputs={TopicPartition("in", 0): 7}, epoch="thread-1")
        writes = {"counts-store": [(b"a", b"1"), (b"b", b"2")][: position // 20]}
        state.apply(expected=state.positions(), new=new, writes=writes)
        state.close(clean=partition == 0)
    return directory


def test_show_prints_kafkas_checkpoint_of_a_task(directory: StateDirectory) -> None:
    assert tidemill_state("show", directory.path / "1_0") == (0, f"0\n1\n{CHANGELOG} 0 41\n")


def test_show_prints_several_tasks_under_their_paths(directory: StateDirectory) -> None:
    expected = f"{directory.path}/1_0:\n0\n1\n{CHANGELOG} 0 41\n{directory.path}/1_1:\n0\n1\n{CHANGELOG} 1 -4\n"
    assert tidemill_state("show", directory.path) == (0, expected)
    assert tidemill_state("show", directory.path.parent) == (0, expected)


def test_ls_lists_tasks_in_order_with_what_they_hold(directory: StateDirectory) -> None:
    code, output = tidemill_state("ls", directory.path.parent)
    header, first, second = [line.split() for line in output.splitlines()]
    assert code == 0
    assert header[:4] == ["application", "task", "store", "entries"]
    assert first[:5] == [APPLICATION, "1_0", "counts-store", "2", "42"]
    assert first[-1] == "clean"
    assert second[:5] == [APPLICATION, "1_1", "counts-store", "0", "0"]
    assert second[-4:] == ["in", "use,", "or", "crashed"]


def test_json_has_owner_and_positions(directory: StateDirectory) -> None:
    for command in ("ls", "show"):
        code, output = tidemill_state(command, "--json", directory.path / "1_0")
        (task,) = json.loads(output)
        assert code == 0
        assert task.pop("bytes_in_use") > 0
        assert task == {
            "application": APPLICATION,
            "task": "1_0",
            "path": str(directory.path / "1_0"),
            "stores": {"counts-store": {"entries": 2, "next_offset": 42, "topic_id": None}},
            "inputs": {"in-0": 7},
            "owner": "thread-1",
            "left": "clean",
        }


def test_a_corrupt_task_is_listed_with_the_others_and_not_shown(directory: StateDirectory) -> None:
    (directory.path / "1_0" / DATA_FILE).write_bytes(b"garbage" * 4000)
    code, output = tidemill_state("ls", directory.path)
    assert code == 1
    assert "is corrupt" in output
    assert "1_1" in output
    with pytest.raises(CorruptStateError):
        tidemill_state("show", directory.path)


def test_another_tasks_state_is_listed_as_that_and_not_shown(directory: StateDirectory) -> None:
    its_own = StateIdentity(application_id=APPLICATION, task=TaskId(1, 0))
    TaskState.open(directory.path / "1_0", ["counts-store"], whose=its_own).close(clean=True)
    assert tidemill_state("ls", directory.path)[0] == 0
    shutil.copytree(directory.path / "1_0", directory.path / "1_2")
    code, output = tidemill_state("ls", directory.path)
    assert code == 1
    sentence = f"1_2 holds the state of task 1_0 of application {APPLICATION}, expected that of task 1_2 of"
    assert sentence in output
    with pytest.raises(ForeignStateError, match=sentence):
        tidemill_state("show", directory.path / "1_2")


def test_looking_changes_nothing(directory: StateDirectory) -> None:
    before = {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file() and path.name != "lock.mdb"}
    tidemill_state("ls", directory.path)
    tidemill_state("show", directory.path)
    assert before == {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file() and path.name != "lock.mdb"}


def test_a_directory_without_state_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "1_0"):
        with pytest.raises(EnvironmentProblem, match=r"no task's state in .* expected a state\.dir"):
            tidemill_state("ls", path)


def test_clean_removes_all_tasks_and_keeps_the_process_id(directory: StateDirectory) -> None:
    kept = directory.process_id().process_id
    assert tidemill_state("clean", directory.path) == (0, "removed the state of 1_0, 1_1\n")
    assert directory.tasks() == []
    assert directory.process_id().process_id == kept
    with pytest.raises(EnvironmentProblem, match="no task's state"):
        tidemill_state("clean", directory.path)


def test_clean_says_what_it_may_not_remove(directory: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(EnvironmentProblem, match=r"can't remove the state of task 1_0 in .*: Permission denied"):
        tidemill_state("clean", directory.path)


def test_clean_is_refused_while_an_instance_has_the_directory(directory: StateDirectory) -> None:
    with StateDirectoryLock.acquire(directory.path, timeout_s=1), pytest.raises(StateDirectoryInUseError):
        tidemill_state("clean", directory.path)
    assert len(directory.tasks()) == 2


def test_clean_up_of_an_instance_that_does_not_run_removes_its_state(directory: StateDirectory) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    streams = KafkaStreams(
        builder,
        {"application.id": APPLICATION, "bootstrap.servers": "none:1", "state.dir": str(directory.path.parent)},
    )
    with StateDirectoryLock.acquire(directory.path, timeout_s=1), pytest.raises(StateDirectoryInUseError):
        streams.clean_up()
    streams.clean_up()
    assert directory.tasks() == []
    streams._state.now = State.RUNNING
    with pytest.raises(StopError, match="close it"):
        streams.clean_up()
