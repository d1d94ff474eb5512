"""State on this machine: what a join answers for, and what the cleaner must never remove."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import lmdb
import pytest

from tidemill.config.slices import ReadsConfig, StateConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import EnvironmentProblem, ForeignStateError, StateDirectoryInUseError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.member_state import Assigned, MemberConfig
from tidemill.membership.wire import AssignmentInfo, encode_assignment
from tidemill.query.http_tls import HttpAccess
from tidemill.runtime.instance.starting import OpenParts, claimed_state
from tidemill.runtime.observe.task_log import TaskLog
from tidemill.runtime.reads.queries import InstanceReads
from tidemill.runtime.thread.local_state import LocalState, kept_offset_sum, remove_outdated
from tidemill.runtime.thread.local_tasks import LocalTasks
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.state.directory import StateDirectory
from tidemill.state.lmdb import TaskState
from tidemill.state.lock import LOCK_FILE, StateDirectoryLock
from tidemill.state.meta import StateIdentity
from tidemill.state.store import Positions
from tidemill.task.batch import BatchReport, Outcome, StorePositions
from tidemill.task.lifecycle import Bounds, Phase
from tidemill.task.tasks import (
    BatchReported,
    BoundsFetched,
    CloseTasks,
    PositionsRead,
    RunTasks,
    TaskLayout,
    Tasks,
    TasksClosed,
    no_tasks,
)

ONE, TWO, OTHER = TaskId(1, 0), TaskId(1, 1), TaskId(0, 0)
HOUR_MS = 3_600_000


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(tmp_path, "app")
    made.create()
    return made


@pytest.fixture
def local(directory: StateDirectory) -> Iterator[LocalState]:
    with StateDirectoryLock.acquire(directory.path, timeout_s=1) as lock:
        yield LocalState(directory, lock, logged=[1], reporter="thread-1")


def kept(directory: StateDirectory, task: TaskId, position: int, *, clean: bool = True) -> Path:
    """A task's closed state whose next changelog offset is ``position``."""
    path = directory.task_path(task)
    state = TaskState.open(path, ["counts"], changelogs={"counts": TopicPartition("log", task.partition)})
    before = state.claim("owner")
    after = Positions(changelog={"counts": position}, epoch="owner")
    state.apply(expected=before, new=after, writes={"counts": [(b"k", b"v")]})
    state.close(clean=clean)
    return path


def holds(local: LocalState, thread: str, tasks: Collection[TaskId]) -> None:
    """From now on, as its registry would say."""
    local.begins(thread, lambda: tasks)


def age(path: Path, hours: int) -> None:
    then = time.time() - hours * 3_600
    for entry in (*path.rglob("*"), path):
        os.utime(entry, (then, then))


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "crashed"])
def test_what_no_thread_has_is_reported_by_one_thread_with_the_offset_last_applied(
    directory: StateDirectory, local: LocalState, clean: bool
) -> None:
    kept(directory, ONE, 8, clean=clean)
    assert local.joins("thread-1", {TWO: 5}) == {TWO: 5, ONE: 7}
    assert local.joins("thread-2", {}) == {}


def test_what_another_thread_has_is_left_to_it(directory: StateDirectory, local: LocalState) -> None:
    kept(directory, ONE, 8)
    holds(local, "thread-2", [ONE])
    assert local.joins("thread-1", {}) == {}
    holds(local, "thread-2", [])
    assert local.joins("thread-1", {}) == {ONE: 7}


def test_of_a_task_whose_worker_has_not_answered_yet_the_disk_is_asked(directory: StateDirectory, local: LocalState) -> None:
    kept(directory, ONE, 8)
    assert local.joins("thread-2", {ONE: None, TWO: None}) == {ONE: 7, TWO: 0}


def test_directories_without_a_state_or_of_unlogged_subtopologies_are_not_told(
    directory: StateDirectory, local: LocalState
) -> None:
    kept(directory, OTHER, 8)
    directory.task_path(ONE).mkdir()
    kept(directory, TWO, 8)
    (directory.task_path(TWO) / "data.mdb").write_bytes(b"no store at all")
    assert local.joins("thread-1", {}) == {}
    assert kept_offset_sum(directory, TWO) is None


def test_another_tasks_state_counts_for_nothing(directory: StateDirectory, local: LocalState) -> None:
    path = directory.task_path(ONE)
    its_own = StateIdentity(application_id="app", task=TWO)
    TaskState.open(path, ["counts"], whose=its_own, changelogs={"counts": TopicPartition("log", 1)}).close(clean=True)
    assert local.joins("thread-1", {}) == {}
    assert local.positions("thread-1", ONE) is None, "its worker opens it, and sees"


def test_queries_do_not_read_another_tasks_state(directory: StateDirectory) -> None:
    config = StreamsConfig.read_slice(ReadsConfig, {"application.id": "app"})
    reads = InstanceReads(config, HttpAccess(), directory, lambda: None)
    for task in (ONE, TWO):
        whose = StateIdentity(application_id="app", task=ONE)
        TaskState.open(directory.task_path(task), ["counts"], whose=whose).close(clean=True)
    reads._open_state(directory.task_path(ONE)).close(clean=False)
    with pytest.raises(ForeignStateError, match="expected that of task 1_1"):
        reads._open_state(directory.task_path(TWO))


def test_only_old_directories_that_nobody_has_are_removed(directory: StateDirectory, local: LocalState) -> None:
    paths = {task: kept(directory, task, 8) for task in (ONE, TWO, OTHER)}
    age(paths[ONE], hours=2)
    age(paths[OTHER], hours=2)
    holds(local, "thread-1", [OTHER])
    assert local.clean(HOUR_MS) == [ONE]
    assert directory.tasks() == [OTHER, TWO]


def test_nothing_is_removed_between_a_report_and_its_assignment(directory: StateDirectory, local: LocalState) -> None:
    age(kept(directory, ONE, 8), hours=2)
    assert local.joins("thread-1", {}) == {ONE: 7}
    assert local.clean(HOUR_MS) == []
    holds(local, "thread-1", [ONE])
    local.settled("thread-1")
    assert local.clean(HOUR_MS) == []
    holds(local, "thread-1", [])
    assert local.clean(HOUR_MS) == [ONE]


def test_a_task_that_another_thread_has_open_is_not_opened_before_that_has_closed_it(local: LocalState) -> None:
    holds(local, "thread-1", {ONE})
    assert local.opens("thread-1", {ONE}) == {ONE}
    holds(local, "thread-2", {ONE, TWO})  # a standby that goes from one to the other: neither waits to be told so
    assert local.opens("thread-2", {ONE, TWO}) == {TWO}
    holds(local, "thread-1", {ONE, OTHER})
    assert local.opens("thread-2", {ONE, TWO}) == {TWO}
    holds(local, "thread-1", {OTHER})  # as it says when the stores are closed
    assert local.opens("thread-2", {ONE, TWO}) == {ONE, TWO}
    assert local.opens("thread-1", {ONE}) == frozenset()


def test_a_thread_that_has_ended_has_nothing_open(local: LocalState) -> None:
    holds(local, "thread-1", {ONE})
    assert local.opens("thread-1", {ONE}) == {ONE}
    local.ended("thread-1")
    holds(local, "thread-2", {ONE})
    assert local.opens("thread-2", {ONE}) == {ONE}


def test_a_task_that_came_and_went_before_it_was_opened_is_free(local: LocalState) -> None:
    holds(local, "thread-1", {ONE})
    holds(local, "thread-2", {ONE})
    assert local.opens("thread-2", {ONE}) == {ONE}
    assert local.opens("thread-1", {ONE}) == frozenset()  # a batch of what it was given before


def test_where_stores_were_left_is_known_to_the_thread_that_may_open_them(directory: StateDirectory, local: LocalState) -> None:
    kept(directory, ONE, 8)
    holds(local, "thread-1", {ONE, TWO})
    assert local.positions("thread-1", ONE) == {"counts": 8}
    assert local.positions("thread-1", TWO) is None  # nothing is there
    holds(local, "thread-2", {ONE})
    assert local.positions("thread-2", ONE) is None  # thread-1 writes it still
    holds(local, "thread-1", {TWO})
    assert local.positions("thread-2", ONE) == {"counts": 8}
    (directory.task_path(ONE) / "data.mdb").write_bytes(b"garbage")
    assert local.positions("thread-2", ONE) is None


class Holder:
    """The tasks of a thread, and its part of this machine's state."""

    def __init__(self, local: LocalState, thread: str) -> None:
        identity = MemberConfig(process_id=ProcessId(1, 2))
        layout = TaskLayout(
            changelogs={1: {"counts": "log"}}, has_stores=frozenset({1}), directory=str(local.directory.path)
        )
        self.registry = TaskRegistry(no_tasks(identity, layout, session=thread))
        self.registry.observe(TaskLog(thread))
        self.local = LocalTasks(thread, self.registry, local)
        self._generation = 0

    @property
    def now(self) -> Tasks:
        return self.registry.now

    def assign(self, *active: TaskId, standby: Collection[TaskId] = ()) -> None:
        """What follows is done as a stream thread would; what is to be closed is closed at once."""
        self._generation += 1
        inputs = tuple(TopicPartition("in", task.partition) for task in sorted(active))
        info = AssignmentInfo(active_tasks=tuple(sorted(active)), standby_tasks=dict.fromkeys(standby, ()))
        event = Assigned(
            generation=self._generation, member_id="m", incarnation=0, partitions=inputs, user_data=encode_assignment(info)
        )
        for instruction in self.registry.handle(event):
            if isinstance(instruction, RunTasks):
                self.registry.handle(PositionsRead(stores=self.local.positions(instruction.new)))
            elif isinstance(instruction, CloseTasks):
                self.registry.handle(TasksClosed(tasks=instruction.tasks))


def test_a_task_starts_from_where_its_stores_were_left_here(directory: StateDirectory, local: LocalState) -> None:
    kept(directory, ONE, 8)
    held = Holder(local, "thread-1")
    held.assign(ONE, standby=[TWO])
    assert held.now.active[ONE].stores == {"counts": 8}
    assert held.now.standby[TWO].stores is None  # nothing of it is here: the worker tells when it has opened them


def test_a_standby_that_goes_to_another_thread_waits_there_until_it_is_dropped_here(local: LocalState) -> None:
    before, after = Holder(local, "thread-1"), Holder(local, "thread-2")
    before.assign(standby=[ONE])
    assert before.local.may_open() == {ONE}
    after.assign(standby=[ONE, TWO])
    assert after.local.may_open() == {TWO}
    before.assign()
    assert after.local.may_open() == {ONE, TWO}


def test_what_is_restored_is_told_from_the_beginning_where_stores_are_emptied_in_the_middle_of_it(
    directory: StateDirectory, local: LocalState, caplog: pytest.LogCaptureFixture
) -> None:
    kept(directory, ONE, 8)
    held = Holder(local, "thread-1")
    log = TopicPartition("log", ONE.partition)
    held.assign(ONE)
    bounds = Bounds(inputs={TopicPartition("in", 0): 0}, changelog_begins={log: 0}, changelog_ends={log: 10})
    held.registry.handle(BoundsFetched(bounds={ONE: bounds}))
    assert held.now.active[ONE].phase is Phase.RESTORING
    emptied = StorePositions(task=ONE, changelog={}, is_behind=True, note="a page is broken")
    held.registry.handle(BatchReported(report=BatchReport(batch_id=1, outcome=Outcome.LOST, stores=(emptied,))))
    with caplog.at_level(logging.INFO, "tidemill.thread"):
        full = StorePositions(task=ONE, changelog={"counts": 10})
        report = BatchReport(batch_id=2, outcome=Outcome.COMMITTED, stores=(full,), changelog_ends={log: 10})
        held.registry.handle(BatchReported(report=report))
    assert held.now.active[ONE].phase is Phase.RUNNING
    [told] = [line for line in caplog.messages if "event=restored" in line]
    assert "from=0 to=10" in told
    assert "offsets=10" in told


def test_a_start_removes_state_that_was_not_written_for_too_long_and_nothing_else(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    age(kept(directory, ONE, 5), 3)
    age(kept(directory, TWO, 5), 1)
    process_id = directory.process_id()
    with StateDirectoryLock.acquire(directory.path, timeout_s=1) as lock, caplog.at_level(logging.INFO, "tidemill.state"):
        assert remove_outdated(directory, lock, 4 * HOUR_MS) == []
        assert remove_outdated(directory, lock, 2 * HOUR_MS) == [ONE]
    assert directory.tasks() == [TWO]
    assert directory.process_id().process_id == process_id.process_id
    assert f"not written for {2 * HOUR_MS} ms" in caplog.text


def test_state_that_is_read_only_does_not_count_as_written(directory: StateDirectory) -> None:
    path = kept(directory, ONE, 5)
    age(path, 3)
    reader = TaskState.open_to_read(path, whose=StateIdentity(application_id="app", task=ONE))
    reader.close(clean=False)
    with StateDirectoryLock.acquire(directory.path, timeout_s=1) as lock:
        assert remove_outdated(directory, lock, HOUR_MS) == [ONE]


def test_old_state_that_cannot_be_removed_ends_the_start(directory: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    age(kept(directory, ONE, 5), 3)

    def refuse(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refuse)
    with (
        StateDirectoryLock.acquire(directory.path, timeout_s=1) as lock,
        pytest.raises(EnvironmentProblem, match=r"task 1_0 .*max\.age\.ms=3600000: can't remove .*: Permission denied"),
    ):
        remove_outdated(directory, lock, HOUR_MS)


def test_the_setting_is_applied_before_anything_else_looks_at_the_state(tmp_path: Path, directory: StateDirectory) -> None:
    age(kept(directory, ONE, 5), 3)

    def claimed(**settings: object) -> list[TaskId]:
        config = StreamsConfig.of(
            {"application.id": "app", "bootstrap.servers": "none:1", "state.dir": str(tmp_path)}, **settings
        )
        parts = OpenParts()
        state = claimed_state(config.slice(StateConfig), parts)
        parts.close()
        return state.directory.tasks()

    assert claimed() == [ONE]
    assert claimed(state_cleanup_dir_max_age_ms=4 * HOUR_MS) == [ONE]
    assert claimed(state_cleanup_dir_max_age_ms=2 * HOUR_MS) == []


def test_nothing_is_opened_or_removed_where_another_instance_has_taken_the_directory(
    directory: StateDirectory, local: LocalState
) -> None:
    kept(directory, ONE, 5)
    (directory.path / LOCK_FILE).unlink()
    with StateDirectoryLock.acquire(directory.path, timeout_s=1):
        with pytest.raises(StateDirectoryInUseError):
            local.opens("thread-1", [ONE])
        with pytest.raises(StateDirectoryInUseError):
            local.clean(-HOUR_MS)
    assert directory.tasks() == [ONE]


def test_a_thread_that_ended_while_it_joined_keeps_no_state_from_being_removed(
    directory: StateDirectory, local: LocalState
) -> None:
    kept(directory, ONE, 5)
    holds(local, "thread-2", [])
    local.joins("thread-2", {})
    assert local.clean(-HOUR_MS) == []
    local.ended("thread-2")
    assert local.clean(-HOUR_MS) == [ONE]


def test_a_state_that_was_looked_into_is_not_kept_open(directory: StateDirectory, local: LocalState) -> None:
    path = kept(directory, ONE, 5)
    assert kept_offset_sum(directory, ONE) == 4
    with lmdb.open(str(path), max_dbs=4):  # would be refused while this process has it open
        pass
