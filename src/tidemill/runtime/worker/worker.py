"""A Python worker of the plan: its state from batch to batch, and the two functions that Spark calls.

The composition root on the workers' side: it gives the ``steps`` the consumers and producers of ``kafka`` and the
stores of ``state``. A worker belongs to one step of one stream thread (Spark pins it by its environment); one that is new,
because Spark replaced it or the old one died, starts from nothing and trusts only the driver and the broker.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from tidemill.config.values import DataClientSettings
from tidemill.control.channel import ControlClient
from tidemill.control.sockets import is_elsewhere
from tidemill.errors import BatchLostError, StopError
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka.data.output import AtLeastOnceOutput, ExactlyOnceOutput
from tidemill.kafka.data.reader import ThreadReader
from tidemill.operators.exception_handlers import ExceptionResponse
from tidemill.runtime.worker.executor_state import ExecutorDisk, ExecutorState
from tidemill.runtime.worker.read_stores import ReadTasks
from tidemill.runtime.worker.step_code import StepCode
from tidemill.runtime.worker.task_store import OpenTasks
from tidemill.spark.launch.worker_daemon import drop_own_safe_path
from tidemill.state.durability import needing_the_disk
from tidemill.steps.alignment import AlignedReader
from tidemill.steps.commit.batch_file import write_batch
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.last_step import run_last_step
from tidemill.steps.micro_batch_rows import micro_batches, source_run, step_run
from tidemill.steps.middle_step import run_middle_step
from tidemill.steps.source_step import SourceReader, source_rows
from tidemill.steps.standing import IS_STANDING, RUN
from tidemill.steps.step_context import Output, TaskStore
from tidemill.steps.step_spec import SourceSpec, StepSpec
from tidemill.task.batch import BatchRequest, CommittingMember, Positions, TaskRun
from tidemill.task.batch_id import BatchId
from tidemill.task.commit import CommitStep


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """The configuration of a worker, passed once at its start. ``transactional_id`` None: at least once. ``fault``: see
    ``Fault``."""

    thread: str
    step: str
    address: str
    key: bytes = field(repr=False)
    group_id: str
    consumer: DataClientSettings = field(repr=False)  # both hold credentials
    producer: DataClientSettings = field(repr=False)
    transactional_id: str | None
    source: SourceSpec
    spec: StepSpec | None
    steps: int
    """Number of steps behind the source step."""
    unreadable: Unreadable
    batch_folder: str = ""
    """Folder of batches for functions of ``foreach_batch``."""
    fault: Fault | None = None
    disk: ExecutorDisk | None = None
    """The directory of stores, if the worker runs on an executor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """For tests: a worker of step ``s`` that reaches the point ``at`` looks for the file ``<folder>/s.at``. If there is one, the
    worker removes it and sends the signal whose number is in it to the processes that it names (pids, or ``self``)."""

    folder: str


class Worker:
    """The state of this process; also the steps' ``StepContext``."""

    def __init__(self, spec: WorkerSpec, control: ControlClient) -> None:
        drop_own_safe_path()
        self.spec = spec
        self.batches = 0
        self._collected = time.monotonic()
        self.control = control
        needs_ends = bool(spec.source.together)
        reader = ThreadReader(spec.consumer, self.control.hurried, needs_ends=needs_ends)
        self.reader: SourceReader = AlignedReader(reader, spec.source.together, spec.source.idle_ms)
        self.continuity: dict[TopicPartition, int] = {}
        self.unreadable = spec.unreadable
        self.graphs = KeptGraphs(spec.unreadable.handlers)
        self._own = _output(spec)
        self.output: Output = self._own
        self._preparing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare")
        self._prepared: Future[None] | None = None
        self._fences: int | None = None
        self._is_watched = False
        """The batch is one of a single record: the driver wants to know whether it is functions that take long."""
        self._disk = None if spec.disk is None else ExecutorState(spec.disk)
        self._tasks: OpenTasks | ReadTasks | None = None
        if spec.spec is not None and spec.spec.last:
            self._tasks = OpenTasks(spec.spec.stores, self._disk, application_id=spec.group_id)
            if self._disk is not None:
                self.control.answer_reads(self._disk.answer)
        elif spec.spec is not None:
            self._tasks = ReadTasks(spec.spec.stores)

    def begins(self, request: BatchRequest) -> None:
        """Called before each micro-batch."""
        self.batches += 1
        if self.batches in _FREEZE_AT:
            # PySpark's daemon collects garbage after every task, 30 ms over the modules alone; what is there by now stays anyway.
            gc.collect()
            gc.freeze()
        if self._fences not in (None, request.fences):
            if self._prepared is not None:
                self._prepared.exception()  # under way still: what it makes may be from before the fence
            self._prepared = None
            self._own.renew()  # else the batch would be refused, and the group asked for a rebalance
        self._fences = request.fences
        self._is_watched = request.max_inputs == 1
        if self.spec.spec is not None and self.spec.spec.last and not self.continuity:
            self._prepare()  # before there are tasks, or while their first batch is on its way

    def rests(self) -> None:
        """Called between two micro-batches of a run. Collects garbage now and then: PySpark does it only after a run, which may
        last for minutes."""
        now = time.monotonic()
        if now - self._collected > _COLLECT_INTERVAL_S:
            self._collected = now
            gc.collect()

    def _prepare(self) -> Future[None]:
        has_failed = self._prepared is not None and self._prepared.done() and self._prepared.exception() is not None
        if self._prepared is None or has_failed:
            self._prepared = self._preparing.submit(self.output.prepare)
        return self._prepared

    def open_stores(self, runs: Sequence[TaskRun]) -> Mapping[TaskId, TaskStore]:
        assert self._tasks is not None
        if self._disk is None:
            return self._tasks.open(runs)
        self._disk.clean([run.task for run in runs])
        return self._tasks.open(self._disk.here(runs))

    def membership(self) -> CommittingMember:
        return self.control.membership()

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        prepared, self._prepared = self._prepare(), None
        prepared.result()  # what a predecessor left open would hold the offsets back
        return self.control.committed(partitions)

    def call_foreach_batch(self, batch_id: int, node: str, rows: pa.Table, offsets: BatchId) -> None:
        path = Path(self.spec.batch_folder) / f"{node}-{os.getpid()}-{uuid.uuid4().hex}.parquet"
        with needing_the_disk(path.parent):
            path.parent.mkdir(exist_ok=True)
            write_batch(rows, str(path))
        # The driver removes the file, which it may read for longer.
        failed = self.control.call_foreach_batch(batch_id, node, str(path), offsets)
        if failed:
            raise StopError(failed)

    def reached(self, step: CommitStep, batch_id: int) -> None:
        if step is CommitStep.FOREACH_BATCH and self._is_watched:
            self.control.has_run(batch_id)
        self.strike(step.value)

    def strike(self, at: str) -> None:
        if self.spec.fault is None:
            return
        order = Path(self.spec.fault.folder) / f"{self.spec.step}.{at}"
        with contextlib.suppress(FileNotFoundError):
            number, *targets = order.read_text().split()
            order.unlink()
            for target in targets:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(os.getpid() if target == "self" else int(target), int(number))


def _output(spec: WorkerSpec) -> AtLeastOnceOutput | ExactlyOnceOutput:
    leaves_out = spec.unreadable.handlers.production is not ExceptionResponse.FAIL
    if spec.transactional_id is None:
        return AtLeastOnceOutput(spec.producer, leaves_out=leaves_out)
    return ExactlyOnceOutput(spec.producer, spec.group_id, spec.transactional_id, leaves_out=leaves_out)


_workers: dict[str, Worker] = {}
_FREEZE_AT = (1, 4)
"""Batches at whose start all that lives is exempt from garbage collection: modules and specs, then clients and stores."""
_COLLECT_INTERVAL_S = 5.0


def _code(spec: WorkerSpec) -> StepCode:
    return StepCode.of(spec, address=spec.address, key=spec.key, thread=spec.thread, step=spec.step)


def _worker(code: StepCode, run: int) -> Worker:
    """This process's worker for a step; made at the first batch, kept for the next. The driver hears of it when it has its
    functions: for one that still loads them, a stream thread that is closed need not wait."""
    worker = _workers.get(code.name)
    try:
        _require_first_attempt(code)
        spec = code.loaded() if worker is None else worker.spec
    except StopError:
        with code.client(run).leaving_on_failure(run):
            raise
    if worker is None:
        control = code.client(run)
        with control.leaving_on_failure(run):
            worker = _workers[code.name] = Worker(spec, control)
        gc.disable()  # PySpark collects after every task: within one, all records of a batch would be looked through again
    return worker


def _require_first_attempt(code: StepCode) -> None:
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        if is_elsewhere(code.address):  # its cluster has taken an executor away: to Spark that is no failure
            raise BatchLostError("Spark ran the batch again on another executor, and its source has moved on")
        raise StopError("Spark retried a task of a stream thread, whose source has moved on: set spark.task.maxFailures to 1")


def warm(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step that does no work: its process has then imported this module, and waits for its first batch. It adds a row with its
    pid and the time to those of the steps before it."""
    for rows in batches:
        if rows.schema.names == ["worker"]:
            yield rows
    yield pa.RecordBatch.from_arrays([pa.array([json.dumps({"pid": os.getpid(), "ready_s": time.time()})])], ["worker"])


def source_function(spec: WorkerSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The source step of ``spec`` as Spark's mapInArrow takes it."""
    code = _code(spec)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_source(code, batches)

    return read


def step_function(spec: WorkerSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A later Python step of ``spec`` as Spark's mapInArrow takes it."""
    code = _code(spec)

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_step(code, batches)

    return step


def run_source(code: StepCode, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    number, is_standing = run_of_task()
    worker = _worker(code, number)
    with worker.control.leaving_on_failure(number):
        asked, rows_of = partial(_asked, worker, number), partial(_rows_of, worker)
        yield from source_run(asked, rows_of, is_standing=is_standing, steps=worker.spec.steps)


def _asked(worker: Worker, run: int) -> bytes | None:
    worker.rests()
    return worker.control.next_request(run)


def _rows_of(worker: Worker, request: BatchRequest) -> Iterator[pa.RecordBatch]:
    worker.begins(request)
    worker.strike("start")
    advanced = partial(worker.control.source_advanced, request.batch_id)
    for rows in source_rows(worker.reader, request, worker.spec.source, advanced):
        worker.strike("chunk")
        yield rows
    worker.strike("end")


def run_step(code: StepCode, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    number, is_standing = run_of_task()
    worker = _worker(code, number)
    with worker.control.leaving_on_failure(number):
        yield from _run_step(worker, number, batches, is_standing=is_standing)


def _run_step(
    worker: Worker, number: int, batches: Iterable[pa.RecordBatch], *, is_standing: bool
) -> Iterator[pa.RecordBatch]:
    spec = worker.spec.spec
    assert spec is not None
    if not spec.last:
        middle, served = partial(_middle, worker, spec), partial(worker.control.wait_served, number)
        next_is_last = spec.number + 1 == worker.spec.steps
        yield from step_run(batches, middle, served, is_standing=is_standing, next_is_last=next_is_last)
        return
    for request, rows in micro_batches(batches):
        worker.begins(request)
        report = run_last_step(request, rows, spec, worker)
        worker.control.report(number, report)
        worker.rests()


def _middle(
    worker: Worker, spec: StepSpec, request: BatchRequest, rows: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    worker.rests()
    worker.begins(request)
    return run_middle_step(request, rows, spec, worker)


def run_of_task() -> tuple[int, bool]:
    """The number of the run that this Spark task is the job of, and whether it is a standing one."""
    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty(RUN) or 0), context.getLocalProperty(IS_STANDING) == "True"
