"""Reads of stores on executors: requests to the worker that has them open, over the control channel.

Decides which worker that is: the last step's of the thread that has the task. Looks to a reader like a state on this machine's
disk; whatever goes wrong on the way is a StateError, and the reader asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tidemill.control.messages import CountEntries, ReadPositions, ReadRows, ScanRows, StoreRead
from tidemill.control.worker_process import RemoteWorker
from tidemill.errors import MisfitError, QueryError, StateError
from tidemill.ids import TaskId
from tidemill.query.local_copies import BatchBetweenError
from tidemill.runtime.thread.stream_thread import StreamThread
from tidemill.state.directory import StateDirectory
from tidemill.state.store import Positions
from tidemill.task.message_pack import unpack

T = TypeVar("T")
Ask = Callable[[StoreRead], bytes]
"""A read of a task's stores, and the packed answer; StateError if there is none."""


class ExecutorReads:
    """``threads`` may grow. Names directories as on the driver's machine, which has none."""

    def __init__(self, directory: StateDirectory, threads: Callable[[], Sequence[StreamThread]]) -> None:
        self._directory, self._threads = directory, threads

    def open(self, folder: Path) -> RemoteState:
        """The stores that would lie in ``folder`` if this were the executor."""
        task, _, below = str(folder.relative_to(self._directory.path)).partition("/")
        owner = TaskId.parse(task)
        return RemoteState(folder, lambda read: self._ask(owner, below, read))

    def _ask(self, task: TaskId, folder: str, read: StoreRead) -> bytes:
        for thread in self._threads():
            if task in thread.tasks or task in thread.standbys:
                worker = None if thread.engine is None else thread.engine.writer
                if not isinstance(worker, RemoteWorker):
                    break
                try:
                    return worker.ask(task, folder, read)
                except (EOFError, OSError, MisfitError) as problem:
                    raise StateError(f"the worker on {worker.host} that has task {task} does not answer: {problem}") from problem
        raise StateError(f"no worker has task {task} yet")


class RemoteState:
    """One task's stores, read-only."""

    def __init__(self, folder: Path, ask: Ask) -> None:
        self._folder, self._ask = folder, ask

    @property
    def directory(self) -> Path:
        """QueryError: other processes of this machine can't open it."""
        raise QueryError(
            f"task {self._folder.name} lies on an executor's disk: a store as a DataFrame needs spark.master=local[...]; "
            "read keys and ranges through store() here"
        )

    def positions(self) -> Positions:
        return Positions(changelog=self._read(ReadPositions(), dict[str, int]))

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._read(ReadRows(store=store, keys=tuple(keys)), list[bytes | None])

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False, chunk: int = 1000
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``low <= key < high``, in the order of the keys or against it; each chunk is a snapshot of its own."""
        while True:
            asked = ScanRows(store=store, low=low, high=high, limit=chunk, reverse=reverse)
            rows = self._read(asked, list[tuple[bytes, bytes]])
            yield from rows
            if len(rows) < chunk:
                return
            low, high = (low, rows[-1][0]) if reverse else (rows[-1][0] + b"\0", high)

    def entries(self, store: str) -> int:
        return self._read(CountEntries(store=store), int)

    @contextmanager
    def snapshot(self) -> Iterator[RemoteState]:
        """BatchBetweenError at its end if a batch was applied meanwhile: there is no transaction over several requests."""
        before = self.positions()
        yield self
        if self.positions() != before:
            raise BatchBetweenError("a batch was applied while it was read")

    def get(self, store: str, key: bytes) -> bytes | None:
        return self.get_many(store, [key])[0]

    def _read(self, read: StoreRead, kind: type[T]) -> T:
        try:
            return unpack(self._ask(read), kind)
        except MisfitError as problem:
            raise StateError(f"the answer for task {self._folder.name} can't be read: {problem}") from problem

    def close(self, *, clean: bool) -> None:
        """Nothing is open here."""
