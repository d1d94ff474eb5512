"""Micro-batches of a stream thread: the request for the next one, and the effect of the last outcome on it.

Decides how many records a batch may take (with caps that adapt to the transaction's time-out), when the next batch is due, how
restoring and processing share it, and when workers look for broken files (after some of them have died). What a batch reads
for each task is decided in ``task``, its size after a failure in ``task.batch_size``, and what follows from an outcome in
``batch_runner``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidemill.config.slices import ThreadConfig
from tidemill.config.values import ProcessingGuarantee
from tidemill.deadline import Deadline
from tidemill.errors import BatchLostError, BatchTimeoutError, CorruptReadError, FunctionFailedError, WorkerDiedError
from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.local_tasks import LocalTasks
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.runtime.thread.task_topology import TaskTopology
from tidemill.task import lifecycle, standby
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, SourceProgress
from tidemill.task.batch_size import BatchSize, Cause, Failure, failed, next_size, of_replacement, succeeded, tried
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.pacing import BACKLOG, Due, has_backlog, next_cap, next_due
from tidemill.task.standby import StandbyTask

log = logging.getLogger("tidemill.thread")

_IDLE_WAIT_MS = 1_000
_PUNCTUATING_WAIT_MS = 100
"""Wait where processors may have punctuators: those of the wall clock are looked at with each batch."""
_RESTORING_WAIT_MS = 10
"""Wait where no task runs yet: short, since the batch that finds nothing more lets them run; not 0, which would be hundreds of
batches a second while brokers are away."""
_FEWEST_READ = 1_000
"""Records that are fetched for a batch, however few it takes: operators wait for those of their other inputs."""
_FIRST_LIMIT_S = 1.0
"""Seconds for which tasks with little to restore are restored before all others."""
_DEATHS_BEFORE_INSPECTION = 2
"""Batches whose workers have died, one after the other: a broken file may kill every process that reads it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """``read``: the tasks whose inputs it reads."""

    request: BatchRequest
    read: tuple[TaskId, ...] = ()


class MicroBatches:
    """Called by the stream thread only, but ``fence``, which a thread of its own calls at the start, and properties that others
    read. The argument ``fence`` ends what a producer under the thread's transactional id has left open."""

    def __init__(
        self,
        thread: str,
        config: ThreadConfig,
        topology: TaskTopology,
        *,
        registry: TaskRegistry,
        local: LocalTasks,
        global_topics: GlobalTopics,
        created_again: Callable[[BatchRequest], int],
        fence: Callable[[], None],
        is_paused: Callable[[], bool],
    ) -> None:
        self._thread, self._config, self._topology = thread, config, topology
        self._registry, self._local, self._globals = registry, local, global_topics
        self._created_again, self._fence, self._is_paused = created_again, fence, is_paused
        self._fencing, self._fences = threading.Lock(), 0
        self._failures = self._deaths = self._batch_id = self._counted = 0
        self._wait_ms = _PUNCTUATING_WAIT_MS if topology.punctuates else _IDLE_WAIT_MS
        self._max_records = config.batch_max_records
        self._has_backlog = False
        self._size = BatchSize()
        self._first_until: Deadline | None = None
        self._due = Due()
        self._were_read: frozenset[str] = frozenset()
        """The epochs of the tasks whose inputs the last batch has read."""

    # --- the next one ------------------------------------------------------------------------------------------------

    @property
    def has_backlog(self) -> bool:
        """Batches are full, and more is waiting."""
        return self._has_backlog

    @property
    def patience(self) -> int:
        """Factor by which the next batch may exceed the usual limit."""
        return self._size.patience

    @property
    def are_smaller(self) -> bool:
        """Batches take fewer records than usual, to find the one that they fail over."""
        return self._size.most is not None

    @property
    def failures(self) -> int:
        """Batches lost in a row; while there are any, it is not known which stores a worker has open."""
        return self._failures

    @property
    def are_paused(self) -> bool:
        """The instance is: its tasks are neither processed nor restored, and its standbys follow nothing (KIP-834)."""
        return self._is_paused()

    @property
    def are_needed(self) -> bool:
        """While the instance is paused only global stores are kept up, and stores opened, so that they can be read."""
        if not self._is_paused() or self._globals.are_any:
            return True
        tasks = self._registry.now
        held: list[ActiveTask | StandbyTask] = [*tasks.active.values(), *tasks.standby.values()]
        return any(task.stores is None and task.directory for task in held)

    def next(self) -> Batch:
        """The next batch of everything that is held; while paused, of global stores alone."""
        request = self._with_rest(self._with_size(self._request_of_held()))
        if self._is_paused():
            # A reader that holds nothing can't wait.
            wait_ms = self._wait_ms if request.globals else 0
            return Batch(replace(request, inputs={}, changelogs={}, standbys={}, wait_ms=wait_ms))
        active = self._registry.now.active
        read = tuple(name for name, task in active.items() if not request.inputs.keys().isdisjoint(task.inputs))
        self._were_read = frozenset(active[name].epoch for name in read)
        return Batch(request, read)

    def _with_rest(self, request: BatchRequest) -> BatchRequest:
        """The request, which waits for the rest of the commit interval before it reads. It does not wait while a task restores or
        is read for the first time."""
        active = self._registry.now.active.values()
        if any(task.phase is not Phase.RUNNING or task.epoch not in self._were_read for task in active):
            return request
        now_s = time.monotonic()
        rests = [min(request.wait_ms, max(0, round((at - now_s) * 1e3))) for at in (self._due.sources_s, self._due.internal_s)]
        return replace(request, sources_rest_ms=rests[0], internal_rest_ms=rests[1])

    def _with_size(self, request: BatchRequest) -> BatchRequest:
        """The request, with no more records than the last failures allow."""
        inputs = {tp for task in self._registry.now.active.values() for tp in task.inputs}
        size = self._size = next_size(self._size, request.inputs, inputs)
        if size.is_usual and not size.refused:
            return request
        most = request.max_records if size.most is None else min(request.max_records, max(_FEWEST_READ, size.most))
        return replace(
            request,
            max_records=most,
            max_restore_records=min(request.max_restore_records, size.restored or request.max_restore_records),
            max_standby_records=min(request.max_standby_records, size.restored or request.max_standby_records),
            max_inputs=size.most,
            until=size.until,
            refused=size.refused,
            defers=size.defers,
        )

    def empty(self) -> Batch:
        """A batch of no tasks, to run a plan for the first time: that takes seconds."""
        return Batch(self._request({}, {}))

    def closing(self) -> Batch:
        """A batch that reads nothing. Workers close the stores of the tasks that are not in it, the closing ones. Other tasks'
        stores stay open, and what was fetched for these tasks is kept."""
        request = self._request_of_held()
        runs = tuple(replace(run, changelog=None, wipe=False) for run in request.tasks)
        nothing = replace(request, inputs={}, changelogs={}, standbys={}, globals={}, reset_globals=False)
        return Batch(replace(nothing, tasks=runs, wait_ms=0, reads=not any(self._registry.now.at_work)))

    def _request_of_held(self) -> BatchRequest:
        """The request for all tasks that are not closing and whose stores no other thread has open."""
        may_open = self._local.may_open()
        active, standbys = self._registry.now.at_work
        return self._request(
            {name: task for name, task in active.items() if name in may_open},
            {name: task for name, task in standbys.items() if name in may_open},
        )

    def _request(self, active: Mapping[TaskId, ActiveTask], standbys: Mapping[TaskId, StandbyTask]) -> BatchRequest:
        """The request for these tasks. While a task runs, the others restore only so many records in each batch; while none
        runs, a batch waits for records only briefly."""
        self._batch_id += 1
        runs = any(task.phase is Phase.RUNNING for task in active.values())
        request = lifecycle.request(
            active,
            batch_id=self._batch_id,
            internal=self._topology.internal_topics,
            max_records=self._max_records if self._has_backlog else min(self._max_records, BACKLOG),
            max_restore_records=self._config.restore_max_records if runs else self._config.batch_max_records,
            wait_ms=self._wait_ms if runs or not active else _RESTORING_WAIT_MS,
            now_ms=int(time.time() * 1000),
            incarnation=self._registry.now.member.incarnation,
            max_bytes=self._config.batch_max_bytes,
            restore_only=self._restored_first(active),
        )
        request = standby.with_standbys(request, standbys.values(), max_records=self._config.standby_max_records)
        request = self._globals.extend(replace(request, last_committed_batch=self._counted, fences=self._fences))
        created_again = self._created_again(request) + self._globals.created_again
        if created_again:
            request = replace(request, created_again=created_again)
        if self._deaths < _DEATHS_BEFORE_INSPECTION:
            return request
        return replace(request, tasks=tuple(replace(run, inspect=True) for run in request.tasks))

    def _restored_first(self, active: Mapping[TaskId, ActiveTask]) -> frozenset[TaskId]:
        """Tasks that lack few records: they are restored before all others. Only for a limited time, since these records may
        belong to a transaction that stays open."""
        near = lifecycle.nearly_restored(active, self._config.restore_max_records)
        if not near:
            self._first_until = None
            return near
        self._first_until = self._first_until or Deadline.after(_FIRST_LIMIT_S)
        return frozenset() if self._first_until.is_over else near

    # --- its outcome ------------------------------------------------------------------------------------------------

    def reported(self, report: BatchReport) -> bool:
        """A batch of any kind has a report. True if it has changed whether the global stores are read."""
        were_read = self._globals.are_read
        self._globals.reported(report)
        return self._globals.are_read != were_read

    def committed(self, report: BatchReport, took_s: float) -> None:
        """A batch of any kind was committed."""
        self._counted = report.batch_id
        self._has_backlog = has_backlog(report, before=self._has_backlog)
        self._size = succeeded(
            self._size,
            report.records_in,
            restored=report.records_restored,
            took_s=took_s,
            limit_s=self._config.batch_limit_s,
            usual=self._max_records,
        )

    def lost(self, lost: BatchLostError, progress: SourceProgress) -> None:
        """A batch was lost after ``progress``: the next one is smaller. StopError if that can't help."""
        self._globals.lost()
        self._failures += 1
        if isinstance(lost, CorruptReadError):
            self._deaths = _DEATHS_BEFORE_INSPECTION  # what is broken is known, and only the owner may wipe it
        failure = _failure(lost)
        if failure is None:
            return
        self._deaths += failure.cause is Cause.WORKER
        before = self._size
        after = self._size = failed(before, failure, progress, may_defer=self._topology.may_defer)
        limit_s = self._config.batch_limit_s
        log.log(
            logging.WARNING if failure.cause is not Cause.FUNCTION or len(after.refused) > len(before.refused) else logging.INFO,
            LogEvent(
                "batch-resized",
                thread=self._thread,
                cause=failure.cause.value,
                records=progress.records,
                restored=progress.restored,
                first="-" if progress.first is None else f"{progress.first[0]}@{progress.first[1]}",
                next_records="-" if after.most is None else after.most,
                next_limit_s=limit_s * after.patience,
            ),
        )

    def tried(self) -> None:
        """A trial has succeeded."""
        self._size = tried(self._size)

    def stopped(self, progress: SourceProgress) -> None:
        """A batch has ended the thread after ``progress``."""
        self._size = of_replacement(self._size, progress)

    def continue_from(self, failed: MicroBatches) -> None:
        """Begins with the size that comes after the batch which has ended another thread."""
        self._size = failed._size

    def adapt(self, report: BatchReport, asked_s: float) -> None:
        """Sets the size and the time of the next batch, from the report of one that was requested at ``asked_s``. Not called for
        batches that only close stores."""
        if report.outcome is Outcome.COMMITTED:
            self._failures = 0  # not by a batch that only closes stores: it may succeed where reading still fails
            if self._were_read or self._deaths >= _DEATHS_BEFORE_INSPECTION:
                self._deaths = 0  # not by a batch that only opens stores, unless it has inspected them
        self._due = next_due(
            self._due,
            report,
            asked_s,
            time.monotonic(),
            rest_ms=self._config.rest_ms,
            cap=min(self._max_records, BACKLOG),
            standby_cap=self._config.standby_max_records,
        )
        if self._config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2:
            self._max_records = next_cap(
                self._max_records,
                report,
                transaction_timeout_ms=self._config.transaction_timeout_ms,
                most=self._config.batch_max_records,
            )

    def fence(self) -> None:
        """Ends what this thread's producer has left open; the worker makes another one then."""
        self._fence()
        with self._fencing:  # at the start, two threads may fence at once
            self._fences += 1  # by which a worker sees that its producer is fenced now, and makes another one


def _failure(lost: BatchLostError) -> Failure | None:
    """None if it has nothing to do with what the batch held."""
    if isinstance(lost, FunctionFailedError):
        return Failure(cause=Cause.FUNCTION, error=lost.error, message=lost.message, node=lost.node)
    if isinstance(lost, (BatchTimeoutError, WorkerDiedError)):
        cause = Cause.TIME if isinstance(lost, BatchTimeoutError) else Cause.WORKER
        return Failure(cause=cause, error=type(lost).__name__, message=str(lost))
    return None
