"""Executing a stream thread's static plan: one micro-batch at a time, with a limit.

Decides how a plan is run (it is made an RDD once, and a batch is one job that collects it: no SQL execution is registered, no
closure cleaned again, nothing kept of a batch), how workers are pinned and what becomes of a batch that hangs: its workers are
killed by pid, since cancelling a Spark job does not stop Python (correctness.md, rule 21).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from tidemill.errors import BatchLostError, BatchTimeoutError, NoExecutorError, StopError
from tidemill.log_format import LogEvent
from tidemill.spark.batch_failures import failure_of, told_by
from tidemill.spark.compile import ArrowStep
from tidemill.spark.jvm_gone import JVM_GONE, needing_the_jvm
from tidemill.spark.map_in_arrow import map_in_arrow
from tidemill.spark.placement import BesideTheDriver, Placement
from tidemill.spark.plan import CompiledTopology
from tidemill.spark.shared_plan import copied
from tidemill.spark.worker_process import WorkerProcess, end
from tidemill.start_trace import is_traced, span, tell_process
from tidemill.task.batch import BatchReport, report_from_json

log = logging.getLogger("tidemill.engine")

_WORKER_KEY = "TIDEMILL_WORKER"
_DEATH_LIMIT_S = 5.0
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


def start_workers(
    session: SparkSession, thread: str, steps: Sequence[str], warm: ArrowStep, placement: Placement | None = None
) -> threading.Thread:
    """Has Spark start a thread's Python workers while its plan is still being compiled: they take a second to import."""
    placement = placement or BesideTheDriver(session)

    def run() -> None:
        with contextlib.suppress(Exception):  # the first batch would say what is wrong
            placement.settle(thread)
            with pinning(session, thread) as pin, span("plan of the workers' first job"):
                frame = placement.root(thread)
                for step in steps:  # one after the other in one plan, so that one job starts all of them
                    pin(step)
                    frame = map_in_arrow(frame, warm, "worker string")
                plan = frame._jdf.queryExecution().executedPlan()
            with span("workers' first job"):
                rows = plan.executeCollect()
            if is_traced():
                for step, row in zip(steps, rows, strict=True):
                    said = json.loads(str(row.getUTF8String(0).toString()))
                    name = f"worker {thread.rpartition('-')[2]}/{step}"
                    tell_process("forked, imports done", said["pid"], name, said["ready_s"])

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
        placement: Placement | None = None,
    ) -> None:
        self._thread, self._limit_s = thread, limit_s
        self._placement = placement or BesideTheDriver(session)
        self._is_in_place = False
        self._workers: dict[str, WorkerProcess] = {}
        self._session, self._compiled, self._steps = session, compiled, (source, steps)
        self._next: deque[tuple[Any, str]] = deque(maxlen=1)
        compiled.lookups.plans.add(self)  # before the plan is built, so that no refresh passes it by
        told_by(thread)
        with span("plan built"):
            self._rows, self._explained = self._built()

    @property
    def explained(self) -> str:
        return str(self._explained)

    def rebuild(self) -> None:
        """Makes the plan anew, with static sides as they are now; the next batch runs it. May be called on any thread."""
        self._next.append(self._built())

    def _built(self) -> tuple[Any, str]:
        with needing_the_jvm():
            # Elsewhere a plan's leaf says where it runs, and a static side that is refreshed is another one for each.
            is_alike = isinstance(self._placement, BesideTheDriver) and not self._compiled.lookups.joins
            plan, text = self._compiled.shared.of_thread(self._made, self._copied) if is_alike else self._made()
            return plan.execute(), text

    def _made(self) -> tuple[Any, str]:
        source, steps = self._steps
        with pinning(self._session, self._thread) as pin:
            frame = self._compiled.frame(self._placement.root(self._thread), source, steps, pin)
        self._compiled.check(frame)
        execution = frame._jdf.queryExecution()
        return execution.executedPlan(), str(execution.toString())

    def _copied(self, plan: Any) -> Any:
        source, steps = self._steps
        functions = {"source": source, **{f"step-{number}": step for number, step in enumerate(steps, start=1)}}
        with pinning(self._session, self._thread) as pin:
            return copied(self._session, plan, functions, pin)

    def worker_joined(self, step: str, worker: WorkerProcess) -> None:
        """A worker begins. The one before it is ended if it still lives: two of them in Spark's pool would take turns, each
        fencing the other's producer, or the older one be at work still on a batch that Spark has given up."""
        before = self._workers.get(step)
        self._workers[step] = worker
        if before is not None:
            self._is_in_place = False  # it may be elsewhere, because the place it had is gone
        if before is not None and (before.host, before.pid) != (worker.host, worker.pid):
            log.info(
                LogEvent("worker-replaced", thread=self._thread, step=step, old=before.pid, pid=worker.pid, host=worker.host)
            )
            end([before], _DEATH_LIMIT_S)

    @property
    def worker_pids(self) -> dict[str, int]:
        return {step: worker.pid for step, worker in self._workers.items()}

    @property
    def writer(self) -> WorkerProcess | None:
        """The worker that has the stores open."""
        steps = [step for step in self._workers if step != "source"]
        return self._workers[max(steps, key=lambda step: int(step.rpartition("-")[2]))] if steps else None

    def run(self, patience: int = 1) -> BatchReport:
        """One execution of the plan; it may take so many times as long as usual.

        Raises:
            NoExecutorError: it did not begin.
            BatchLostError: it failed or took too long; whether it was committed must be asked of the broker.
            StopError: the JVM is gone, or a step says that going on is impossible.
        """
        with needing_the_jvm():
            return self._run(patience)

    def _run(self, patience: int) -> BatchReport:
        if not (self._is_in_place and self._placement.is_settled(self._thread)) and not self._placement.settle(self._thread):
            raise NoExecutorError(f"{self._thread}: no executor has a slot for its batches yet")
        self._is_in_place = True
        try:
            return self._collected(self._limit_s * patience)
        except BatchLostError:
            self._is_in_place = False
            raise

    def _collected(self, limit_s: float) -> BatchReport:
        with contextlib.suppress(IndexError):
            self._rows, self._explained = self._next.pop()
        with self._watched(limit_s) as hangs:
            try:
                collected: list[Any] = self._rows.collect()
                if len(collected) != 1:
                    raise BatchLostError(f"the last step gave {len(collected)} reports, expected one")
                return report_from_json(str(collected[0].getUTF8String(0).toString()))
            except (Py4JJavaError, CapturedException) as problem:
                failure = failure_of(problem)
                if hangs.is_set() and isinstance(failure, BatchLostError):
                    raise BatchTimeoutError(f"it took longer than {limit_s:g} s, and its workers were ended") from problem
                raise failure from problem
            except (Py4JError, OSError) as problem:
                raise StopError(JVM_GONE) from problem

    @contextlib.contextmanager
    def _watched(self, limit_s: float) -> Iterator[threading.Event]:
        """The event is set if what runs in it takes longer; its workers are dead soon after, those too that begin only then."""
        hangs, is_over = threading.Event(), threading.Event()

        def end_it() -> None:
            hangs.set()
            log.error(LogEvent("batch-hangs", thread=self._thread, limit_s=limit_s, workers=self.worker_pids))
            self.kill_workers()
            while not is_over.wait(_DEATH_LIMIT_S):
                self.kill_workers()

        timer = threading.Timer(limit_s, end_it)
        timer.daemon = True
        timer.start()
        try:
            yield hangs
        finally:
            is_over.set()
            timer.cancel()

    def has_lost_its_place(self) -> bool:
        """After a lost batch: whether the executor, and with it the stores there, is gone."""
        with needing_the_jvm():
            return self._placement.is_gone(self._thread)

    def kill_workers(self) -> None:
        """Ends this thread's Python workers and returns when they are dead; Spark starts new ones at the next batch."""
        end(list(self._workers.values()), _DEATH_LIMIT_S)
