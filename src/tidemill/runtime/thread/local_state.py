"""Task directories on this machine: the stream thread that owns each, the offsets reported, and clean-up.

Decides which offset sums an instance reports in addition to those of its running tasks, and when a directory is removed. A state
on disk that no thread has is reported to the leader, since its client would restore less than others (KIP-441): by one thread, so
that it is reported once. Between that report and the assignment nothing is removed, else the task would be assigned to a client
that no longer has its state.

A task that moves between threads of the instance is opened by one only when the other has closed it, as by Kafka Streams' locks
of task directories: standbys are assigned without being revoked first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tidemill.errors import EnvironmentProblem, StateError
from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.state.checkpoint import OFFSET_UNKNOWN
from tidemill.state.directory import DATA_FILE, StateDirectory, written_s
from tidemill.state.lmdb import TaskState
from tidemill.state.lock import StateDirectoryLock
from tidemill.state.meta import StateIdentity

log = logging.getLogger("tidemill.state")

T = TypeVar("T")


class LocalState:
    """Shared by an instance's threads. ``logged``: the sub-topologies whose stores have changelogs; ``reporter``: the thread
    that answers for what no thread has."""

    def __init__(
        self, directory: StateDirectory, lock: StateDirectoryLock, *, logged: Collection[int], reporter: str
    ) -> None:
        self.directory = directory
        self._directory_lock = lock
        self._logged, self._reporter = frozenset(logged), reporter
        self._lock = threading.Lock()
        self._held_by: dict[str, Callable[[], Collection[TaskId]]] = {}
        self._open_in: dict[TaskId, str] = {}
        """The thread that has a task open: the first that asked, as long as it holds the task."""
        self._joining: set[str] = set()

    def begins(self, thread: str, held: Callable[[], Collection[TaskId]]) -> None:
        """Registers a thread; ``held`` returns, on any thread, the tasks that it has or is about to open."""
        with self._lock:
            self._held_by[thread] = held

    def opens(self, thread: str, tasks: Collection[TaskId]) -> frozenset[TaskId]:
        """Locks the thread's tasks that no other thread has open, and returns them; released when the thread no longer holds
        them. StateDirectoryInUseError if another instance has the directory by now."""
        self._directory_lock.hold_on()
        with self._lock:
            held = {name: frozenset(ask()) for name, ask in self._held_by.items()}
            self._open_in = {task: owner for task, owner in self._open_in.items() if task in held.get(owner, ())}
            return frozenset(task for task in tasks if self._open_in.setdefault(task, thread) == thread)

    def joins(self, thread: str, known: Mapping[TaskId, int | None]) -> dict[TaskId, int]:
        """The offset sums of a join that begins now: of the tasks that the thread has (None: its worker has not reported them
        yet, so the disk is asked), and of those that no thread has if this thread reports them."""
        with self._lock:
            self._joining.add(thread)
            sums = {task: total if total is not None else self._kept(task) or 0 for task, total in known.items()}
            if thread == self._reporter:
                held = self._held()
                for task in self.directory.tasks():
                    if task not in held and task not in sums and task.subtopology in self._logged:
                        kept = self._kept(task)
                        if kept is not None:
                            sums[task] = kept
        return sums

    def settled(self, thread: str) -> None:
        """The assignment that answers the thread's join is carried out: it holds what it was given."""
        with self._lock:
            self._joining.discard(thread)

    def ended(self, thread: str) -> None:
        """The thread has nothing any more, and waits for nothing."""
        with self._lock:
            self._held_by.pop(thread, None)
            self._joining.discard(thread)

    def clean(self, delay_ms: int) -> list[TaskId]:
        """Removes the directories that no thread has and that were not written for ``delay_ms``, and gives those that it
        removed. Nothing is removed while a thread waits for its assignment."""
        self._directory_lock.hold_on()
        with self._lock:
            if self._joining:
                return []
            held = self._held()
            old = [task for task in _not_written_for(delay_ms, self.directory) if task not in held]
            for task in old:
                self.directory.remove(task, self._directory_lock)
                log.info(LogEvent("state-removed", task=task, cause=f"not assigned here for {delay_ms} ms"))
        return old

    def positions(self, thread: str, task: TaskId) -> Mapping[str, int] | None:
        """Positions at which a task's stores were left, by store: its first batch can restore or run it. None if only the worker
        can find out by opening them: they are open elsewhere, there are none, or not here."""
        if not self.opens(thread, {task}):
            return None
        return read_state(self.directory, task, lambda state: state.positions().changelog)

    def _held(self) -> frozenset[TaskId]:
        """Tasks of all threads. A thread that gets a task asks for its positions next, which waits for the lock held here."""
        return frozenset(task for ask in self._held_by.values() for task in ask())

    def _kept(self, task: TaskId) -> int | None:
        return kept_offset_sum(self.directory, task)


def remove_outdated(directory: StateDirectory, lock: StateDirectoryLock, max_age_ms: int) -> list[TaskId]:
    """Removes the state of tasks that was not written for ``max_age_ms``, before any thread begins (KIP-1259); those removed.

    Raises:
        EnvironmentProblem: one can't be removed; it must not be used either.
    """
    old = _not_written_for(max_age_ms, directory)
    for task in old:
        try:
            directory.remove(task, lock)
        except EnvironmentProblem as problem:
            raise EnvironmentProblem(
                f"the state of task {task} was not written for state.cleanup.dir.max.age.ms={max_age_ms}: {problem}"
            ) from problem
        log.info(LogEvent("state-removed", task=task, cause=f"not written for {max_age_ms} ms"))
    return old


def _not_written_for(age_ms: int, directory: StateDirectory) -> list[TaskId]:
    before_s = time.time() - age_ms / 1e3
    return [task for task in directory.tasks() if written_s(directory.task_path(task)) < before_s]


def kept_offset_sum(directory: StateDirectory, task: TaskId) -> int | None:
    """The sum over a closed state's changelogs of the offsets last applied; None if there is none that can be believed, or
    another task's."""
    offsets = read_state(directory, task, TaskState.checkpoint)
    return sum(offset for offset in offsets.values() if offset != OFFSET_UNKNOWN) if offsets else None


def read_state(directory: StateDirectory, task: TaskId, ask: Callable[[TaskState], T]) -> T | None:
    """What ``ask`` finds in a closed state; None if there is none that can be believed, or another task's: its next owner deals
    with that."""
    path = directory.task_path(task)
    if not (path / DATA_FILE).exists():
        return None
    try:
        state = TaskState.open_to_read(path, whose=StateIdentity(application_id=directory.path.name, task=task))
    except StateError:
        return None
    try:
        return ask(state)
    except StateError:
        return None
    finally:
        state.close(clean=False)
