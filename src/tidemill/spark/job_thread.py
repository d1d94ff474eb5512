"""The thread on which a stream thread's Spark jobs run, one after the other.

A JVM thread belongs to each Python thread that calls the JVM, with local properties of its own, and is left behind when the
Python thread ends: so it is one for as long as the stream thread lives. It is a daemon: a job that never ends keeps no process.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future


class JobThread:
    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """After the jobs that were submitted; returns at once."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (found := self._jobs.get()) is not None:
            job, future = found
            try:
                job()
            except BaseException as problem:  # told to who asks the future
                future.set_exception(problem)
            else:
                future.set_result(None)
