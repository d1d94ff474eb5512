"""Stores on an executor's own disk: where they lie, who has one open, and what the driver reads of them.

    <state.dir there>/<application.id>/<process id>/1_0/...    as on the driver's machine, but below the instance's process id,
                                                               since executors of several instances may share a machine

Decides folders and locks of tasks. There is no lock of the whole directory as there is on the driver's machine: each task's own
is taken by the worker that opens its stores, so a successor, on the same executor or another one of the machine, waits for its
end. A worker elsewhere finds no files, or old ones; then the changelog brings what is missing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from tidemill.control.messages import CountEntries, ReadPositions, ReadRows, ScanRows, StoreRead
from tidemill.deadline import Deadline
from tidemill.errors import BatchLostError, EnvironmentProblem, StateDirectoryInUseError, assert_never
from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.state.directory import StateDirectory, written_s
from tidemill.state.lmdb import TaskState
from tidemill.state.lock import StateDirectoryLock
from tidemill.state.meta import StateIdentity
from tidemill.task.batch import TaskRun
from tidemill.task.message_pack import pack

log = logging.getLogger("tidemill.state")

_PREDECESSOR_LIMIT_S = 10.0
_CLEAN_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorDisk:
    """Location of stores on executors, for their workers. A relative ``state_dir`` begins at the executor's working folder,
    so that executors of one machine have each their own."""

    state_dir: str
    application_id: str
    process_id: str
    cleanup_delay_ms: int


class ExecutorState:
    """One worker's. ``open`` and ``close`` bracket the time in which a task's stores may be written."""

    def __init__(self, disk: ExecutorDisk) -> None:
        self.directory = StateDirectory(Path(disk.state_dir).absolute() / disk.application_id, disk.process_id)
        self._application_id = disk.application_id
        self._delay_s = disk.cleanup_delay_ms / 1e3
        self._locks: dict[TaskId, StateDirectoryLock] = {}
        self._cleans_at = Deadline.after(_CLEAN_INTERVAL_S)

    def here(self, runs: Sequence[TaskRun]) -> tuple[TaskRun, ...]:
        """The tasks with their folders on this machine."""
        return tuple(replace(run, directory=str(self.directory.task_path(run.task))) if run.directory else run for run in runs)

    def open(self, task: TaskId) -> None:
        """BatchLostError if another worker has the task open and does not end."""
        if task in self._locks:
            return
        path = self.directory.task_path(task)
        deadline = Deadline.after(_PREDECESSOR_LIMIT_S)
        while True:
            try:
                path.mkdir(parents=True, exist_ok=True)  # each time: who had it locked may be the clean-up of another worker
                self.directory.keep_from_others()
                self._locks[task] = StateDirectoryLock.acquire(path, timeout_s=1.0)
                return
            except StateDirectoryInUseError as in_use:
                if deadline.is_over:
                    raise BatchLostError(f"task {task}: {in_use}") from in_use
                time.sleep(0.05)

    def close(self, task: TaskId) -> None:
        lock = self._locks.pop(task, None)
        if lock is not None:
            lock.release()

    def clean(self, wanted: Collection[TaskId]) -> None:
        """Removes, once a minute at most, the tasks that are not open, wanted, or written within the clean-up delay."""
        if not self._cleans_at.is_over:
            return
        self._cleans_at = Deadline.after(_CLEAN_INTERVAL_S)
        before_s = time.time() - self._delay_s
        for task in self.directory.tasks():
            path = self.directory.task_path(task)
            if task in wanted or task in self._locks or written_s(path) > before_s:
                continue
            try:
                with (
                    StateDirectoryLock.acquire(self.directory.path, timeout_s=0) as whole,
                    StateDirectoryLock.acquire(path, timeout_s=0),
                ):
                    self.directory.remove(task, whole)
            except StateDirectoryInUseError:
                continue
            except EnvironmentProblem as problem:  # which must not cost the batch
                log.warning(LogEvent("state-not-cleaned", task=task, problem=problem))
                continue
            log.info(LogEvent("state-removed", task=task, cause=f"not assigned on this executor for {self._delay_s} s"))

    # --- reads, on the control channel's thread ------------------------------------------------------------------------

    def answer(self, task: TaskId, folder: str, read: StoreRead) -> bytes:
        """The packed answer to a read of a task's stores; StateError if it has none here."""
        whose = StateIdentity(application_id=self._application_id, task=task)
        state = TaskState.open_to_read(self.directory.task_path(task) / folder, whose=whose)
        try:
            return pack(_found(state, read))
        finally:
            state.close(clean=False)


def _found(state: TaskState, read: StoreRead) -> object:
    match read:
        case ReadPositions():
            return state.positions().changelog
        case ReadRows(store=store, keys=keys):
            return state.get_many(store, keys)
        case ScanRows(store=store, low=low, high=high, limit=limit, reverse=reverse):
            return list(islice(state.scan(store, low, high, reverse=reverse), limit))
        case CountEntries(store=store):
            return state.entries(store)
        case _:
            return assert_never(read)
