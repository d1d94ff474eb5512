"""Executing a stream thread's static plan: one micro-batch at a time, with a limit.

Decides how a plan is run (it is made an RDD once, and a batch is one job that collects it: no SQL execution is registered, no
closure cleaned again, nothing kept of a batch), how workers are pinned and what becomes of a batch that hangs: its workers are
killed by pid, since cancelling a Spark job does not stop Python (correctness.md, rule 21).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psutil
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from tidemill.errors import BatchLostError, ConfigError, MissingRightError, RecordError, StopError
from tidemill.spark.compile import ArrowStep
from tidemill.spark.plan import CompiledTopology
from tidemill.task.batch import BatchReport, report_from_json

log = logging.getLogger("tidemill.engine")

_WORKER_KEY = "TIDEMILL_WORKER"
_DEATH_LIMIT_S = 5.0
_FINAL = tuple(f"{kind.__module__}.{kind.__qualname__}: " for kind in (StopError, MissingRightError, RecordError, ConfigError))
"""How Spark's text of a failed task begins where running the batch again would fail again."""
_BUILD = threading.Lock()
"""Pinning goes through the context's environment, which all threads share."""


@contextlib.contextmanager
def pinning(session: SparkSession, thread: str) -> Iterator[Callable[[str], None]]:
    """Within it, the function it gives names the worker of every Python step that is added to a plan next (rule 20).

    Spark keeps a pool of Python workers for each distinct environment: a key of its own pins the worker.
    """
    environment = session.sparkContext.environment
    with _BUILD:
        before = dict(environment)
        # What the application imports, files beside it included, the workers can import too.
        environment["PYTHONPATH"] = os.pathsep.join(folder for folder in sys.path if folder)
        try:
            yield lambda step: environment.__setitem__(_WORKER_KEY, f"{thread}/{step}")
        finally:
            environment.clear()
            environment.update(before)


def start_workers(session: SparkSession, thread: str, steps: Sequence[str], warm: ArrowStep) -> threading.Thread:
    """Has Spark start a thread's Python workers while its plan is still being compiled: they take a second to import."""
    plans = []
    with pinning(session, thread) as pin:
        for step in steps:
            pin(step)
            plans.append(session.range(0, 1, 1, 1).mapInArrow(warm, "id bigint")._jdf.queryExecution().executedPlan())

    def run() -> None:
        for plan in plans:
            with contextlib.suppress(Exception):  # the first batch would say what is wrong
                plan.executeCollect()

    starter = threading.Thread(target=run, name=f"{thread}-workers", daemon=True)
    starter.start()
    return starter


class BatchEngine:
    """One stream thread's plan. ``run`` is called by that thread only."""

    def __init__(
        self,
        session: SparkSession,
        compiled: CompiledTopology,
        thread: str,
        source: ArrowStep,
        steps: list[ArrowStep],
        *,
        limit_s: float,
    ) -> None:
        self._thread, self._limit_s = thread, limit_s
        self._workers: dict[str, psutil.Process] = {}
        self._session, self._compiled, self._steps = session, compiled, (source, steps)
        self._next: deque[tuple[Any, str]] = deque(maxlen=1)
        compiled.lookups.plans.add(self)  # before the plan is built, so that no refresh passes it by
        self._rows, self._explained = self._built()

    @property
    def explained(self) -> str:
        return str(self._explained)

    def rebuild(self) -> None:
        """Makes the plan anew, with static sides as they are now; the next batch runs it. May be called on any thread."""
        self._next.append(self._built())

    def _built(self) -> tuple[Any, str]:
        source, steps = self._steps
        with pinning(self._session, self._thread) as pin:
            execution = self._compiled.frame(self._session, source, steps, pin)._jdf.queryExecution()
            return execution.executedPlan().execute(), str(execution.toString())

    def worker_joined(self, step: str, pid: int) -> None:
        """A worker begins. The one before it is ended if it still lives: two of them in Spark's pool would take turns, each
        fencing the other's producer, or the older one be at work still on a batch that Spark has given up."""
        with contextlib.suppress(psutil.NoSuchProcess):  # it has died since it said so
            before = self._workers.get(step)
            self._workers[step] = psutil.Process(pid)
            if before is not None and before.pid != pid:
                log.info("event=worker-replaced thread=%s step=%s old=%d pid=%d", self._thread, step, before.pid, pid)
                _end([before])

    @property
    def worker_pids(self) -> dict[str, int]:
        return {step: worker.pid for step, worker in self._workers.items()}

    def run(self) -> BatchReport:
        """One execution of the plan.

        Raises:
            BatchLostError: it failed or took too long; whether it was committed must be asked of the broker.
            StopError: the JVM is gone, or a step says that going on is impossible.
        """
        with contextlib.suppress(IndexError):
            self._rows, self._explained = self._next.pop()
        with self._watched():
            try:
                collected: list[Any] = self._rows.collect()
                if len(collected) != 1:
                    raise BatchLostError(f"the last step gave {len(collected)} reports, expected one")
                return report_from_json(str(collected[0].getUTF8String(0).toString()))
            except Py4JJavaError as problem:
                reason = _first_line(problem)
                if reason.startswith(_FINAL):
                    raise StopError(reason.partition(": ")[2]) from problem
                raise BatchLostError(f"the Spark task failed: {reason}") from problem
            except (Py4JNetworkError, Py4JError, OSError) as problem:
                raise StopError("the Spark JVM is gone: the instance can't go on; start it again") from problem

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        timer = threading.Timer(self._limit_s, self._kill_workers)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _kill_workers(self) -> None:
        log.error("event=batch-hangs thread=%s limit_s=%s workers=%s", self._thread, self._limit_s, self.worker_pids)
        self.kill_workers()

    def kill_workers(self) -> None:
        """Ends this thread's Python workers and returns when they are dead; Spark starts new ones at the next batch."""
        _end(list(self._workers.values()))


def _end(workers: Sequence[psutil.Process]) -> None:
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):  # psutil never signals another process under a reused pid
            worker.kill()
    psutil.wait_procs(workers, timeout=_DEATH_LIMIT_S)


def _first_line(problem: Py4JJavaError) -> str:
    """What the Python worker raised, out of Spark's long text."""
    text = str(problem.java_exception.getMessage() or problem)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("tidemill.errors.")]
    return (errors or [line for line in lines if "Error" in line or "Exception" in line] or lines or [text])[-1][:500]
