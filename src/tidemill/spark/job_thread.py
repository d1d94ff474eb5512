"""Threads of Spark jobs: a stream thread's on one of its own, one after the other; others in a pool.

A JVM thread belongs to each Python thread that calls the JVM, with local properties of its own, and is left behind when the
Python thread ends: so it is one for as long as the stream thread lives. It is a daemon: a job that never ends keeps no process.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from pyspark.sql import SparkSession

DESCRIPTION = "spark.job.description"
"""The local property that Spark's UI shows of a job."""
_PROPERTY = "spark.scheduler.pool"
_POOL = "tidemill-background"


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
            except BaseException as problem:  # the future's to raise
                future.set_exception(problem)
            else:
                future.set_result(None)


@contextlib.contextmanager
def background_pool(session: SparkSession, application: str, what: str) -> Iterator[None]:
    """Within it, jobs of this thread (refreshing static sides, functions of ``foreach_batch``, snapshots of stores) share the
    slots fairly with micro-batches (``spark.scheduler.mode=FAIR``, Tidemill's default). In one pool with them, a job of many
    tasks would go before each batch that begins later. Spark's UI shows whose they are, and what for."""
    context = session.sparkContext
    properties = {_PROPERTY: _POOL, DESCRIPTION: description(application, what)}
    before = {name: context.getLocalProperty(name) for name in properties}
    for name, value in properties.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            context.setLocalProperty(name, earlier)  # type: ignore[arg-type]  # None takes it away


def description(application: str, what: str) -> str:
    """Description of a job in Spark's UI, with the application: several may share a session."""
    return f"{application}: {what}"
