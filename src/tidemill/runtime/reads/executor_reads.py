"""Reads of stores that lie on executors: asked of the worker that has them open, over the control channel.

Decides which worker that is: the last step's of the thread that has the task. Looks to a reader like a state on this machine's
disk; whatever goes wrong on the way is a StateError, and the reader asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemill.control.worker_process import FarWorker
from tidemill.errors import QueryError, StateError
from tidemill.ids import TaskId
from tidemill.runtime.thread.stream_thread import StreamThread
from tidemill.runtime.worker.executor_state import raw, text
from tidemill.state.directory import StateDirectory
from tidemill.state.store import Positions

Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ExecutorReads:
    """``threads`` may grow. Names folders as beside the driver, where nothing lies."""

    def __init__(self, directory: StateDirectory, threads: Callable[[], Sequence[StreamThread]]) -> None:
        self._directory, self._threads = directory, threads

    def open(self, folder: Path) -> FarState:
        """The stores that would lie in ``folder`` if this were the executor."""
        task, _, below = str(folder.relative_to(self._directory.path)).partition("/")
        owner = TaskId.parse(task)
        return FarState(folder, lambda question: self._ask(owner, {**question, "task": task, "folder": below}))

    def _ask(self, task: TaskId, question: Mapping[str, Any]) -> Mapping[str, Any]:
        for thread in self._threads():
            if task in thread.tasks or task in thread.standbys:
                worker = None if thread.engine is None else thread.engine.writer
                if not isinstance(worker, FarWorker):
                    break
                try:
                    answer = worker.ask(question)
                except (EOFError, OSError) as problem:
                    raise StateError(f"the worker on {worker.host} that has task {task} does not answer: {problem}") from problem
                if "error" in answer:
                    raise StateError(f"{worker.host}: {answer['error']}")
                return answer
        raise StateError(f"no worker has task {task} yet")


class FarState:
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
        return Positions(changelog=self._ask({"op": "positions"})["changelog"])

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [raw(value) for value in self._ask({"op": "get", "store": store, "keys": [text(key) for key in keys]})["values"]]

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, chunk: int = 1000
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``low <= key < high``; each chunk is a snapshot of its own."""
        while True:
            asked = {"op": "scan", "store": store, "low": text(low), "high": text(high), "most": chunk}
            rows = [(raw(key) or b"", raw(value) or b"") for key, value in self._ask(asked)["rows"]]
            yield from rows
            if len(rows) < chunk:
                return
            low = rows[-1][0] + b"\0"

    def entries(self, store: str) -> int:
        return int(self._ask({"op": "entries", "store": store})["entries"])

    def close(self, *, clean: bool) -> None:
        """Nothing is open here."""
