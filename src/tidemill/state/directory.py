"""State directory of an application on a machine, and the small text files in it.

    <state.dir>/<application.id>/kafka-streams-process-metadata    {"processId": "<uuid>"}, kept over restarts
                                .lock                              who has the directory (``lock``)
                                <task id>/                         one directory per task (``lmdb``), with a `.checkpoint`

Names and formats are Kafka Streams', so its tools and people find their way. Decides what a task directory is, when it was
written and how one is removed; ``lock`` decides who may use the directory, ``lmdb`` what is in a task directory.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import EnvironmentProblem, StateError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.state import checkpoint
from tidemill.state.durability import replace_file, sync_directory
from tidemill.state.lock import StateDirectoryLock, state_dir_problem

DATA_FILE, LMDB_LOCK_FILE = "data.mdb", "lock.mdb"  # LMDB's names
CHECKPOINT_FILE = ".checkpoint"
PROCESS_FILE = "kafka-streams-process-metadata"
_REMOVED = ".removed-"


@dataclass(frozen=True, slots=True)
class KeptProcessId:
    """The process id of a state directory; ``problem`` says why a kept one could not be used, None if it could."""

    process_id: ProcessId
    problem: str | None


class StateDirectory:
    """The directory of one application under one ``state.dir``."""

    def __init__(self, state_dir: Path, application_id: str) -> None:
        self.path = state_dir / application_id

    def create(self) -> None:
        """Make the directory. Raises EnvironmentProblem if that is not allowed, a file is in the way, or its name is none."""
        try:
            str(self.path).encode()  # what the workers are sent; Python has other bytes of a name as half characters
            self.path.mkdir(parents=True, exist_ok=True)
            self.keep_from_others()
        except UnicodeEncodeError as error:
            raise EnvironmentProblem(
                f"the state directory {str(self.path)!a} has a name that is not text in UTF-8, or that the locale (LC_ALL, LANG) "
                "does not read as such: give another state.dir, or set a locale with UTF-8"
            ) from error
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise EnvironmentProblem(
                f"can't make the state directory {self.path}: {why}. Give a folder that may be written as state.dir"
            ) from error

    def keep_from_others(self) -> None:
        """Only its user and group may look into it, as with Kafka Streams: stores hold what the topics hold."""
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if mode & stat.S_IRWXO:
            with contextlib.suppress(PermissionError):  # another user's
                self.path.chmod(mode & ~stat.S_IRWXO)

    def process_id(self) -> KeptProcessId:
        """The id kept here; if there is none, or it is none, a new one that is kept from now on.

        Raises EnvironmentProblem if the file can't be read or written: a disk without room, another user's file.
        """
        path = self.path / PROCESS_FILE
        try:
            return self._process_id(path)
        except OSError as error:
            raise state_dir_problem(f"can't keep this instance's id in {path}", error) from error

    def _process_id(self, path: Path) -> KeptProcessId:
        try:
            return KeptProcessId(ProcessId.parse(json.loads(path.read_text(encoding="utf-8"))["processId"]), None)
        except FileNotFoundError:
            problem = f"there is no {path}"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"{path} holds no process id ({error!r})"
        fresh = uuid.uuid4()
        replace_file(path, json.dumps({"processId": str(fresh)}))
        return KeptProcessId(ProcessId.of(fresh), problem)

    def task_path(self, task: TaskId) -> Path:
        """Folder of the state of `task`, whether it is there or not."""
        return self.path / str(task)

    def tasks(self) -> list[TaskId]:
        """The tasks that have a directory here, sorted. EnvironmentProblem if it can't be looked into."""
        try:
            entries = [entry for entry in self.path.iterdir() if entry.is_dir()] if self.path.is_dir() else []
        except OSError as error:
            raise EnvironmentProblem(
                f"can't look into {self.path}: {error.strerror}. Give a folder that may be read as state.dir"
            ) from error
        found = []
        for entry in entries:
            try:
                task = TaskId.parse(entry.name)
            except ValueError:
                continue
            if str(task) == entry.name:
                found.append(task)
        return sorted(found)

    def clean(self, lock: StateDirectoryLock) -> list[TaskId]:
        """Remove the state of all tasks, none of which anybody has open; the process id stays. The tasks that had any."""
        tasks = self.tasks()
        for task in tasks:
            self.remove(task, lock)
        return tasks

    def remove(self, task: TaskId, lock: StateDirectoryLock) -> None:
        """Removes the directory of a task that is not open, if there is one; `lock` must hold this directory.

        It is renamed first, so that no half of it is ever taken for a state. EnvironmentProblem if that is not allowed.
        """
        if lock.directory != self.path.resolve() or not lock.is_held:
            raise StateError(f"{self.path} is not held by the lock that was given: task {task} stays")
        path = self.task_path(task)
        try:
            if path.exists():
                path.rename(path.with_name(f"{_REMOVED}{task}-{uuid.uuid4()}"))
                sync_directory(self.path)
            # Also what a removal that died half way has left.
            for removed in self.path.glob(f"{_REMOVED}*"):
                shutil.rmtree(removed)
        except OSError as error:
            raise state_dir_problem(f"can't remove the state of task {task} in {self.path}", error) from error


def write_checkpoint(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file, whole or not at all; without offsets there is none."""
    if offsets:
        replace_file(path, checkpoint.render(offsets))
    else:
        path.unlink(missing_ok=True)


def written_s(path: Path) -> float:
    """Time of the last write to a task's state; now, if its owner is just closing or removing it.

    LMDB's lock file does not count: readers write it too, and each report reads.
    """
    try:
        files = (entry for entry in path.rglob("*") if entry.is_file() and entry.name != LMDB_LOCK_FILE)
        times = [file.stat().st_mtime for file in files]
        return max(times) if times else path.stat().st_mtime
    except FileNotFoundError:
        return time.time()
