"""Execution of a stream thread's static plans: one micro-batch at a time, with a time limit.

Decides how a plan is run, how workers are pinned and what becomes of a batch that hangs. A plan is made an RDD once, and a
*run* is one job that collects it: no SQL execution is registered, no closure cleaned again. A run is standing: it serves one
request after the other, for some minutes, so that a micro-batch costs no job. While a backlog lasts each batch is a run of its
own. Of a batch that hangs the workers are killed by pid, since cancelling a Spark job does not stop Python (correctness.md,
rule 21).
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from tidemill.control.messages import StepFailed
from tidemill.control.worker_process import WorkerProcess, end
from tidemill.deadline import Deadline
from tidemill.errors import BatchLostError, BatchTimeoutError, NoExecutorError, NoSlotError, TidemillError
from tidemill.log_format import LogEvent
from tidemill.spark.batch_failures import errors_unlogged, failure_of, jvm_gone, needing_the_session, reports_itself
from tidemill.spark.java import JavaObject, settings_of
from tidemill.spark.job_thread import DESCRIPTION, JobThread, description
from tidemill.spark.placement import OnDriverHost, Placement
from tidemill.spark.plan.compiled_topology import CompiledTopology
from tidemill.spark.plan.pinned_workers import pinning
from tidemill.spark.plan.plan_size import planning
from tidemill.spark.plan.python_steps import ArrowStep, copied, map_in_arrow
from tidemill.spark.run import Run
from tidemill.start_trace import is_traced, span, tell_process
from tidemill.steps.standing import IS_STANDING, RUN, UNIX_SOCKETS, can_stand_on, task_settings
from tidemill.task.batch import BatchReport, BatchRequest, Outcome

log = logging.getLogger("tidemill.engine")

_DEATH_LIMIT_S = 5.0
_LONGEST_RUN_S = 300.0
"""The longest run: when it ends, Spark and its workers drop what they keep of a job."""
_LONGEST_REST_S = 30.0
_SLOT_LOOK_S = 2.0
"""Time after which the engine looks whether a batch that has not begun waits for a task slot."""
_JOB_GROUP = "spark.jobGroup.id"
_LOST_SIDE = re.compile(r"\[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND\]|Block rdd_\w+ was not found")
"""Spark's errors where the rows of a static side, which it keeps as an RDD of the session's, are gone: as a whole, or from the
disk (machines delete what is old in a temporary folder)."""


def start_workers(
    session: SparkSession,
    application_id: str,
    thread: str,
    steps: Sequence[str],
    warm: ArrowStep,
    placement: Placement | None = None,
) -> threading.Thread:
    """Starts a thread's Python workers with a job of their own while the plan is compiled: their imports take a second."""
    placement = placement or OnDriverHost(session)

    def run() -> None:
        with contextlib.suppress(Exception):  # the first batch would say what is wrong
            placement.settle(thread)
            with pinning(session, thread) as pin, span("plan of the workers' first job"):
                frame = placement.root(thread)
                for step in steps:  # one after the other in one plan, so that one job starts all of them
                    pin(step)
                    frame = map_in_arrow(frame, warm, pa.schema([("worker", pa.string())]))
                plan = frame._jdf.queryExecution().executedPlan()
            for name, value in task_settings(settings_of(session), is_standing=True).items():  # else these are other workers
                session.sparkContext.setLocalProperty(name, value)  # type: ignore[arg-type]
            session.sparkContext.setLocalProperty(DESCRIPTION, description(application_id, f"starts the workers of {thread}"))
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


@dataclass(frozen=True, slots=True)
class _Plan:
    executed: JavaObject
    rows: JavaObject
    """The executed plan as Spark's RDD: a run is one job that collects it."""


class BatchEngine:
    """Runs one stream thread's plan. ``run`` and ``close`` are called by that thread only. ``is_given_up`` is asked while a batch
    runs, and at once after ``look``: if True, the thread was stopped before it had tasks, or workers to process them, and doesn't
    wait for the batch any more."""

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
        is_given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._thread, self._limit_s, self._is_given_up = thread, limit_s, is_given_up
        self._placement = placement or OnDriverHost(session)
        self._is_in_place = False
        self._workers: dict[str, WorkerProcess] = {}
        self._joining = threading.Lock()
        """Held while a worker takes its place: else a late one, found in time a moment before, could take that of a new one."""
        self._at_work: set[str] = set()  # the steps whose worker has loaded its functions, and has not left
        self._session, self._compiled, self._steps = session, compiled, (source, steps)
        self._run: Run | None = None
        self._job: Future[None] | None = None
        self._failed_steps: dict[int, StepFailed] = {}
        """The first failure of a step, by run; those of earlier runs are not asked about any more."""
        self._plans: dict[bool, _Plan] = {}
        """Plans by a flag: rows are summed in the JVM. The second one is built when first needed."""
        self._next: deque[dict[bool, _Plan]] = deque(maxlen=1)
        self._ahead: threading.Thread | None = None
        compiled.lookups.follow(self)  # before the plan is built, so that no refresh passes it by
        jobs = f"{thread}-run"
        reports_itself(jobs)
        with needing_the_session(self._session):
            self._settings = settings_of(session)
            sockets = session.sparkContext._conf.get(UNIX_SOCKETS) or ""  # getConf() copies all settings, a call for each
            self._can_stand = compiled.can_stand and can_stand_on(sockets, len(steps))
            if compiled.can_stand and not self._can_stand:
                remedy = f"a Spark session with {UNIX_SOCKETS}=true"
                log.warning(LogEvent("a-job-for-each-batch", thread=self._thread, steps=len(steps), remedy=remedy))
            sums = compiled.sums and not self._can_stand
            with span("plan built"):
                self._plans[sums] = self._plan_of(sums)
        self._jobs = JobThread(jobs)  # the last one: no one would close it where the plan can't be built

    @property
    def explained(self) -> str:
        """The physical plan as Spark writes it."""
        return str(next(iter(self._plans.values())).executed.toString())

    def expect_backlog(self) -> None:
        """Builds the plan that sums rows in the JVM while a batch still runs. Any thread; returns at once."""
        is_static = not self._compiled.lookups.joins  # else a refresh could pass it by
        if self._compiled.sums and is_static and True not in self._plans and self._ahead is None:
            self._ahead = threading.Thread(target=self._build_ahead, name=f"{self._thread}-plan", daemon=True)
            self._ahead.start()

    def _build_ahead(self) -> None:
        # Whoever needs it builds it again, and says what is wrong.
        with contextlib.suppress(Exception), errors_unlogged(), span("plan for a backlog built"):
            self._plans.setdefault(True, self._plan_of(True))

    def rebuild(self) -> None:
        """Builds the plans again, with the current static sides; the next batch runs them. May be called on any thread."""
        with needing_the_session(self._session):
            self._next.append({sums: self._plan_of(sums) for sums in list(self._plans)})

    def _plan_of(self, sums: bool) -> _Plan:
        """A plan in which rows are summed in the JVM or not. If Spark has lost static sides, these are read again first."""
        try:
            return self._shared_or_own_plan(sums)
        except (Py4JJavaError, CapturedException) as problem:
            if _LOST_SIDE.search(str(problem)) is None:
                raise
            cause = "their RDDs were unpersisted, or their files deleted: they are read again"
            log.warning(LogEvent("static-sides-lost", thread=self._thread, cause=cause))
            self._compiled.lookups.read()
            return self._shared_or_own_plan(sums)

    def _shared_or_own_plan(self, sums: bool) -> _Plan:
        plan = None
        with planning(self._compiled.topology):
            if isinstance(self._placement, OnDriverHost):  # elsewhere a plan's leaf says where it runs
                plan = self._compiled.shared_plan(self._placement.root(self._thread), self._with_own_functions, sums=sums)
            plan = plan or self._own_plan(sums)
            return _Plan(plan, plan.execute())

    def _own_plan(self, sums: bool) -> JavaObject:
        """A plan that is built for this thread alone."""
        source, steps = self._steps
        with pinning(self._session, self._thread) as pin:
            frame = self._compiled.frame(self._placement.root(self._thread), source, steps, pin, sums=sums)
        self._compiled.check(frame, sums=sums)
        return frame._jdf.queryExecution().executedPlan()

    def _with_own_functions(self, plan: JavaObject) -> JavaObject:
        """A copy of the plan that all threads share, with this thread's Python steps in it."""
        source, steps = self._steps
        functions = {"source": source, **{f"step-{number}": step for number, step in enumerate(steps, start=1)}}
        with pinning(self._session, self._thread) as pin:
            return copied(self._session, plan, functions, pin)

    def worker_joined(self, run: int, step: str, worker: WorkerProcess) -> bool:
        """A worker begins. Its predecessor is ended if it is still alive: two workers in Spark's pool would take turns, and each
        would fence the other's producer; or the older one may still work on a batch that Spark has given up.

        False: it is late. The run that it was made for was over before it was ready (one that takes too long is cancelled), and
        another run has workers of its own. Then it is the one that is ended.
        """
        with self._joining:
            now = self._run
            is_late = now is not None and run < now.number
            before = self._workers.get(step)
            if not is_late:
                self._workers[step] = worker
                self._at_work.add(step)
        if is_late:
            log.info(LogEvent("worker-late", thread=self._thread, step=step, pid=worker.pid, host=worker.host, run=run))
            worker.kill()
            return False
        if before is not None:
            self._is_in_place = False  # it may be elsewhere, because the place it had is gone
        if before is not None and (before.host, before.pid) != (worker.host, worker.pid):
            log.info(
                LogEvent("worker-replaced", thread=self._thread, step=step, old=before.pid, pid=worker.pid, host=worker.host)
            )
            end([before], _DEATH_LIMIT_S)
        return True

    def worker_left(self, step: str, worker: WorkerProcess) -> None:
        """A worker has died. The JVM may not notice, because its thread waits for the next rows of the source step. So the
        source step is ended."""
        with self._joining:
            run, now = self._run, self._workers.get(step)
            if now is None or (now.host, now.pid) != (worker.host, worker.pid):
                return
            self._at_work.discard(step)
        if run is not None:
            run.end()

    @property
    def worker_pids(self) -> dict[str, int]:
        return {step: worker.pid for step, worker in dict(self._workers).items()}  # a copy: one may join meanwhile

    @property
    def has_workers(self) -> bool:
        """True while each step has one, with its functions loaded. No batch has reached the last step before."""
        return len(self._at_work) > len(self._steps[1])

    @property
    def writer(self) -> WorkerProcess | None:
        """The worker that has the stores open."""
        workers = dict(self._workers)  # a copy, as above
        steps = [step for step in workers if step != "source"]
        return workers[max(steps, key=lambda step: int(step.rpartition("-")[2]))] if steps else None

    def run(self, request: BatchRequest, patience: int = 1, *, has_backlog: bool = False) -> BatchReport:
        """Runs one micro-batch; ``patience`` is the factor of its time limit. ``has_backlog``: much more input is waiting, so
        that a job of its own, which takes rows in large portions and sums them in the JVM, is faster.

        Raises:
            NoExecutorError: it did not begin (NoSlotError: no task slot was free, and the run keeps its place in the queue), or
                was given up.
            BatchLostError: it failed or took too long; whether it was committed must be asked of the broker.
            StopError: the JVM is gone, or a step has reported a fatal error.
        """
        with needing_the_session(self._session):
            run = self._run_for(is_standing=self._can_stand and not has_backlog)
            try:
                return self._serve(run, request, self._limit_s * patience)
            except BatchLostError:
                self._is_in_place = False
                raise

    def _run_for(self, *, is_standing: bool) -> Run:
        """The current run, if it is of this kind, has the current plan and is not too old; else a new one."""
        run, is_settled = self._run, self._placement.is_settled(self._thread)
        if run is not None:
            is_fit = run.is_standing is is_standing and is_settled and not self._next and not run.is_ending
            if is_fit and (not run.has_begun or (is_standing and run.age_s < _LONGEST_RUN_S)):
                return run
            self._end_run(run)
        if not (self._is_in_place and is_settled) and not self._placement.settle(self._thread):
            raise NoExecutorError(f"{self._thread}: no executor has a slot for its batches yet")
        self._is_in_place = True
        is_standing = is_standing and self._placement.is_settled(self._thread)  # threads that share a slot take turns
        with contextlib.suppress(IndexError):
            self._plans = self._next.pop()
        # A sum is whole when its input has ended, which in a standing run it never does.
        sums = self._compiled.sums and not is_standing
        if sums not in self._plans:
            self._plans[sums] = self._plan_of(sums)
        plan = self._plans[sums]
        run = self._run = Run(is_standing=is_standing)
        self._failed_steps.clear()
        properties = task_settings(self._settings, is_standing=is_standing)
        properties |= {RUN: str(run.number), IS_STANDING: str(is_standing), _JOB_GROUP: _group(run)}
        properties[DESCRIPTION] = description(self._compiled.application_id, f"micro-batches of {self._thread}")
        self._job = self._jobs.submit(partial(_collect, self._session, plan.rows, properties, run))
        return run

    def _serve(self, run: Run, request: BatchRequest, limit_s: float) -> BatchReport:
        run.ask(request)
        try:
            report = self._await_report(run, limit_s)
        except TimeoutError:
            log.error(LogEvent("batch-hangs", thread=self._thread, limit_s=limit_s, workers=self.worker_pids))
            self._end_by_force(run)
            failure = self._failure(run)
            if failure is not None and not isinstance(failure, BatchLostError):
                raise failure from None
            raise BatchTimeoutError(
                f"it took longer than {limit_s:g} s (tidemill.batch.timeout.ms, or half of max.poll.interval.ms), and its "
                "workers were ended"
            ) from None
        if report is not None and report.outcome is not Outcome.LOST:
            # A standing run continues, also after REFUSED, FENCED and STOPPED: its workers have ended the batch in order.
            if not run.is_standing:
                self._end_run(run)
            return report
        # The last step may have seen only that its input was cut short. The reason is then in the error of the job.
        self._end_run(run)
        failure = self._failure(run)
        if failure is not None:
            raise failure
        if report is None:
            raise BatchLostError("the Spark job ended without a report of the batch")
        return report

    def _await_report(self, run: Run, limit_s: float) -> BatchReport | None:
        """The report, or None if the run ended without one.

        Raises NoSlotError if the job waits for a task slot (no worker has the request, so nothing is lost), NoExecutorError if
        the batch is given up. The job counts as waiting if two looks in a row find it so: one that Spark queued a moment ago runs
        no task yet either.
        """
        deadline, waits = Deadline.after(limit_s), False
        while True:
            if self._is_given_up():
                self._end_by_force(run, cancel_at_once=True)
                raise NoExecutorError("its thread was stopped before its workers had begun")
            try:
                return run.wait(min(_SLOT_LOOK_S, deadline.left_s))
            except TimeoutError:
                before, waits = waits, self._waits_for_a_slot(run)
                if before and waits and run.withdraw():
                    raise NoSlotError(
                        f"no task slot is free for {self._thread}: other jobs have all {self._placement.slots} of the Spark "
                        "session, and each stream thread needs one. It goes on when one is free; give the session more "
                        "(spark.master=local[N]), or your jobs fewer partitions"
                    ) from None
                if deadline.is_over:
                    raise

    def _waits_for_a_slot(self, run: Run) -> bool:
        """True if Spark has queued the run's job, and runs no task of it, though the thread's executor lives."""
        if run.has_begun:
            return False
        # Of the scheduler itself: what the status store knows of a stage may be seconds old.
        queued = self._session.sparkContext._jsc.sc().taskScheduler().rootPool().getSortedTaskSetQueue()
        sets = [queued.apply(at) for at in range(queued.size())]
        waits = any(not each.runningTasks() and _group_of(each) == _group(run) for each in sets)
        return waits and not self._placement.is_gone(self._thread)

    def _end_run(self, run: Run) -> None:
        """Ends the run, in order if possible, else by force: two jobs of one thread must never be alive at once (rule 27)."""
        self._run = None
        run.end()
        if not run.has_begun:  # its job may wait for a slot, and has nothing to end in order
            self._session.sparkContext.cancelJobGroup(_group(run))
        if not run.wait_over(self._limit_s):
            log.error(LogEvent("run-hangs", thread=self._thread, limit_s=self._limit_s, workers=self.worker_pids))
            self._end_by_force(run)

    def _end_by_force(self, run: Run, *, cancel_at_once: bool = False) -> None:
        """Kills the workers, also those that start meanwhile, until the job is over (rule 21). ``cancel_at_once``: without time
        for it to end by itself, as where the worker that would commit has not begun."""
        self._run = None
        run.end()
        # Workers first, then the job: a cancelled job leaves its Python processes alive, and they could still commit.
        self.kill_workers()
        if cancel_at_once:
            self._session.sparkContext.cancelJobGroup(_group(run))
        while not run.wait_over(_DEATH_LIMIT_S):
            log.warning(LogEvent("run-goes-on", thread=self._thread, job_group=_group(run), workers=self.worker_pids))
            self._session.sparkContext.cancelJobGroup(_group(run))  # it may not have begun: no slot is free
            self.kill_workers()

    def _failure(self, run: Run) -> TidemillError | None:
        """The error of the last job, that of this run; None if it has not failed. Waits for its end."""
        assert self._job is not None
        problem = self._job.exception()
        if problem is None:
            return None
        if isinstance(problem, (Py4JJavaError, CapturedException)):
            failure = failure_of(problem, self._failed_steps.get(run.number))
        elif isinstance(problem, (Py4JError, OSError)):
            failure = jvm_gone()
        else:
            raise problem
        failure.__cause__ = problem
        return failure

    def look(self) -> None:
        """Any thread: ``is_given_up`` may have changed."""
        if (run := self._run) is not None:
            run.look()

    def next_request(self, run: int) -> BatchRequest | None:
        """The next request for a run's source step; waits for it. None: the run ends or is over. Thread-safe."""
        now = self._run
        return now.next() if now is not None and now.number == run else None

    def reported(self, run: int, report: BatchReport) -> None:
        """Takes the report of a run's last step. Thread-safe."""
        now = self._run
        if now is None or now.number != run or not now.reported(report):
            log.warning(LogEvent("report-unexpected", thread=self._thread, run=run, batch=report.batch_id))

    def step_failed(self, failed: StepFailed) -> None:
        """Takes what a step of a run says before it raises. Thread-safe."""
        self._failed_steps.setdefault(failed.run, failed)

    def wait_served(self, run: int, batch_id: int) -> None:
        """Waits until the batch was reported, or the run is over. Thread-safe."""
        now = self._run
        if now is not None and now.number == run:
            now.wait_served(batch_id)

    def rest(self) -> None:
        """Called without work: ends a run that was idle for a while, which frees its task slot."""
        run = self._run
        if run is not None and run.idle_s > _LONGEST_REST_S:
            self._end_run(run)

    def end_run(self) -> None:
        """Ends the run, in order if possible; the next batch starts another one."""
        if self._run is not None:
            self._end_run(self._run)

    def close(self) -> None:
        """Ends the run and the job thread; static sides are read again without it."""
        self._compiled.lookups.leave(self)
        try:
            self.end_run()
        finally:
            self._jobs.close()

    def has_lost_its_place(self) -> bool:
        """True if the thread's executor, and with it the stores there, is lost. Called after a lost batch."""
        with needing_the_session(self._session):
            return self._placement.is_gone(self._thread)

    def removed(self) -> None:
        """Its thread was removed: ends the workers, else they would wait a minute for batches, and frees their place."""
        self.kill_workers()
        self._placement.leave(self._thread)

    def kill_workers(self) -> None:
        """Ends this thread's Python workers and returns when they are dead; Spark starts new ones at the next batch."""
        end(list(self._workers.values()), _DEATH_LIMIT_S)


def _group(run: Run) -> str:
    return f"tidemill-run-{run.number}"


def _group_of(task_set: JavaObject) -> str | None:
    properties = task_set.taskSet().properties()
    return None if properties is None else properties.getProperty(_JOB_GROUP)


def _collect(session: SparkSession, rows: JavaObject, properties: Mapping[str, str | None], run: Run) -> None:
    """The job of a run, on the thread that jobs run on: local properties are that thread's."""
    try:
        for name, value in properties.items():
            session.sparkContext.setLocalProperty(name, value)  # type: ignore[arg-type]
        rows.collect()
    finally:
        run.over()
