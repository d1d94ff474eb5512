"""The batch loop of a stream thread: runs one micro-batch after the other, and handles the outcome of each.

Decides the consequences of a batch: positions and metrics are updated, inputs out of range are reset, a refused commit makes the
member rejoin, and after a lost batch nothing is assumed (rule 6): the producer is fenced, and the committed offsets are fetched.
Also decides when stores are closed: when a batch without them was reported, or the workers are dead (rule 12). Contents and size
of a batch are ``micro_batches``'.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from tidemill.config.slices import ThreadConfig
from tidemill.config.values import ProcessingGuarantee
from tidemill.errors import BatchLostError, MisfitError, NoExecutorError, NoSlotError, StopError, stop_error
from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.runtime.observe.thread_metrics import tell_if_slow
from tidemill.runtime.observe.thread_observers import ThreadObservers
from tidemill.runtime.thread.micro_batches import Batch, MicroBatches
from tidemill.runtime.thread.offset_commits import OffsetCommitter
from tidemill.runtime.thread.offset_fetcher import OffsetFetcher
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.runtime.thread.thread_membership import ThreadMembership
from tidemill.spark.engine import BatchEngine
from tidemill.start_trace import FIRST_OUTPUT, span, tell_moment
from tidemill.task.batch import BatchReport, Outcome, SourceProgress
from tidemill.task.lost_batches import LostInARow
from tidemill.task.pacing import BACKLOG
from tidemill.task.tasks import BatchLost, BatchReported, is_other_phase

log = logging.getLogger("tidemill.thread")

_RETRY_PAUSE_S = 0.2
_WHERE_TO_LOOK = (
    "look at the brokers, the group, Spark's task slots, this instance's memory and disks; no record is lost, none is processed"
)


@dataclass(slots=True)
class _UnderWay:
    """The current batch, and what its workers have reported of it; control channel threads write that. A report that comes after
    the batch has ended changes nothing: the next batch has a value of its own."""

    batch: Batch
    began_s: float
    progress: SourceProgress = field(default_factory=SourceProgress)
    has_run: bool = False

    def seen(self) -> SourceProgress:
        return replace(self.progress, has_run=self.has_run)

    def too_long(self, limit_ms: int) -> str:
        """A clause that says so, and over which record, if it has run for longer than the group waits; else empty."""
        took_s = time.monotonic() - self.began_s
        if took_s * 1e3 <= limit_ms:
            return ""
        first = self.progress.first
        held = "no record" if first is None else f"{self.progress.records} records, the first {first[0]}@{first[1]}"
        return (
            f"the batch, of {held}, has taken {took_s:.1f} s, longer than max.poll.interval.ms={limit_ms}: the group has "
            "given the tasks away, and their next owner runs it again. Raise max.poll.interval.ms above what the functions take "
            "for one record (init and punctuators included), or have them take less"
        )


class BatchRunner:
    """Owner of the engine and of the current batch. Called by the stream thread only, unless a method says otherwise.
    ``writes``: the sub-topologies that write to the user's topics."""

    def __init__(
        self,
        thread: str,
        config: ThreadConfig,
        *,
        batches: MicroBatches,
        registry: TaskRegistry,
        group: ThreadMembership,
        commits: OffsetCommitter,
        offsets: OffsetFetcher,
        observers: ThreadObservers,
        writes: Collection[int],
    ) -> None:
        self._thread, self._config, self._batches, self._registry = thread, config, batches, registry
        self._group, self._writes = group, frozenset(writes)
        self._commits, self._offsets, self._observers = commits, offsets, observers
        self._engine: BatchEngine | None = None
        self._under_way: _UnderWay | None = None
        self._asked_s = 0.0
        self._lost_in_a_row = LostInARow()
        self._has_failed = False
        self.applied = _set_event()
        """Not set from a commit's beginning until its batch is reported: meanwhile stores may lack what is committed. That of a
        batch which is lost is never set; the next one has another."""

    # --- what others see: any thread ---------------------------------------------------------------------------------

    @property
    def engine(self) -> BatchEngine | None:
        """None until the thread has begun."""
        return self._engine

    @property
    def under_way(self) -> Batch | None:
        now = self._under_way
        return None if now is None else now.batch

    @property
    def lost_in_a_row(self) -> LostInARow:
        """The batches that were lost since the last committed one."""
        return self._lost_in_a_row

    @property
    def has_workers(self) -> bool:
        """True once those of the current plan have begun."""
        return self._engine is not None and self._engine.has_workers

    def source_advanced(self, batch_id: int, progress: SourceProgress) -> None:
        """Keeps which records the source step of the batch under way hands over."""
        now = self._under_way
        if now is not None and now.batch.request.batch_id == batch_id:
            now.progress = progress
            if progress.records >= BACKLOG and (engine := self._engine):
                engine.expect_backlog()

    def has_run(self, batch_id: int) -> None:
        """Its functions are done with the batch under way."""
        now = self._under_way
        if now is not None and now.batch.request.batch_id == batch_id:
            now.has_run = True

    def begin_commit(self) -> None:
        """Before the generation is read for the commit of the batch under way: no join begins until that is over."""
        if self._under_way is not None:
            self.applied = threading.Event()
        self._group.begin_commit()
        if self._under_way is None:  # a worker of a batch that was given up asks: nothing is committed, and nothing would end it
            self._group.end_commit()

    # --- the engine --------------------------------------------------------------------------------------------------

    def begin(self, engine: BatchEngine) -> None:
        """Sets the engine, after which batches can run."""
        self._engine = engine

    def change(self, make_engine: Callable[[], BatchEngine]) -> bool:
        """Runs another plan from now on, in workers of its own: as after a lost batch, they trust only what is committed. False
        if that can't be done yet: the group is in a rebalance, in which a commit may be refused."""
        if self._group.is_joining:
            return False
        self._commits.commit()
        if self._commits.waiting or not self._offsets.settle():
            return False
        engine = make_engine()
        self.close()
        self.end_workers()
        self._commits.forget()
        self._registry.handle(BatchLost(reason="the thread reads more topics"))
        self._batches.fence()
        self._engine = engine
        return True

    def look(self) -> None:
        """Any thread: the batch under way may be given up."""
        if engine := self._engine:
            engine.look()

    def rest(self) -> None:
        """There is nothing to run."""
        if self._engine is not None:
            self._engine.rest()

    def fail(self) -> None:
        """The thread has failed: no batch runs any more, so stores are closed by the death of the workers."""
        self._has_failed = True

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def end_workers(self) -> None:
        """Any thread: no worker of this thread works on anything any more."""
        if engine := self._engine:
            engine.kill_workers()

    def removed(self) -> None:
        """Any thread: the stream thread has ended, and is not replaced. The control channel still knows it, but not its plans."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.removed()

    # --- batches -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs one micro-batch of all tasks. StopError if the workers report that the thread can't continue."""
        batch = self._batches.next()
        report = self._execute(batch)
        if report is not None:
            self._take_report(report, batch.read)

    def run_empty(self) -> None:
        """Runs a batch of no tasks, before the first assignment."""
        self._execute(self._batches.empty())

    def close_stores(self, *, are_open: bool) -> None:
        """Closes the stores of the tasks that are closing, with a proof (rule 12): a batch without these tasks makes the worker
        close them, and the report of that batch is the proof. If there is no report, the workers are ended. Nothing is done if
        nothing is open: no store of these tasks (``are_open``), and none that a lost batch may have left open."""
        has_workers = self._engine is not None and bool(self._engine.worker_pids)
        if has_workers and (are_open or self._batches.failures) and not self._have_closed():
            self.end_workers()

    def _have_closed(self) -> bool:
        """True if the workers have reported a batch without the closing tasks."""
        report = None if self._has_failed else self._execute(self._batches.closing())
        return report is not None and report.outcome is Outcome.COMMITTED

    def _execute(self, batch: Batch) -> BatchReport | None:
        """The report; None if the batch is lost, or did not begin."""
        try:
            with span("micro-batch", number=batch.request.batch_id) as details:
                report = self._run(batch)
                self.applied.set()
                details |= {"read": report.records_in, "written": report.records_out, **report.timings_ms}
            return report
        except NoExecutorError as waiting:
            is_news = isinstance(waiting, NoSlotError) and self._lost_in_a_row.reason != str(waiting)
            log.log(logging.WARNING if is_news else logging.DEBUG, LogEvent("batch-waits", thread=self._thread, reason=waiting))
            self._count(str(waiting), is_misfit=False)
            return None
        except BatchLostError as lost:
            self._batch_lost(lost)
            return None

    def _run(self, batch: Batch) -> BatchReport:
        """The report. NoExecutorError if the batch did not begin; BatchLostError if it failed or took too long: whether it was
        committed must be asked of the broker."""
        assert self._engine is not None
        self._asked_s = time.monotonic()
        self.applied = _set_event()
        now = self._under_way = _UnderWay(batch, began_s=self._asked_s)
        try:
            report = self._engine.run(batch.request, self._batches.patience, has_backlog=self._batches.has_backlog)
        except BatchLostError as lost:
            self._batches.lost(lost, now.seen())
            raise
        finally:
            self._under_way = None
            self._group.end_commit()  # a join that waited for the commit may begin now, however the batch has ended
        if report.outcome is Outcome.COMMITTED:
            self._batches.committed(report, time.monotonic() - self._asked_s)
        elif report.outcome is Outcome.FENCED and (reason := now.too_long(self._config.max_poll_interval_ms)):
            report = replace(report, message=reason)
        elif report.outcome is Outcome.STOPPED:
            self._batches.stopped(now.seen())
        elif report.outcome is Outcome.TRIED:
            self._batches.tried()
        if self._batches.reported(report):
            self._observers.on_change()
        took_s = time.monotonic() - self._asked_s
        self._observers.metrics.batch(report, took_s)
        tell_if_slow(self._thread, report, took_s)
        return report

    def _take_report(self, report: BatchReport, read: Collection[TaskId]) -> None:
        """``read``: the tasks whose inputs the batch has read."""
        self._batches.adapt(report, self._asked_s)
        for at in report.stores:
            if at.note:
                log.warning(LogEvent("state-note", task=at.task, note=at.note))
        if report.outcome is Outcome.STOPPED:
            raise stop_error(report.message, report.record)
        if report.skipped:
            log.warning(LogEvent("records-skipped", thread=self._thread, count=report.skipped, reason=report.message))
        if report.outcome is Outcome.FENCED:
            self._fenced(report)
            return
        are_reset = not report.out_of_range or self._offsets.reset(report.out_of_range, report.truncated)
        before = self._registry.now
        self._registry.handle(BatchReported(report=report))
        has_changed = is_other_phase(before, self._registry.now)
        if report.outcome is Outcome.LOST:
            self._reported_lost(report.message, is_misfit=report.is_misfit and are_reset)
        elif report.outcome in (Outcome.REFUSED, Outcome.TRIED):
            event = "commit-refused" if report.outcome is Outcome.REFUSED else "no-record-to-blame"
            log.info(LogEvent(event, thread=self._thread, reason=report.message))
            self._count(report.message, is_misfit=False)
        else:
            self._committed(report, read)
        if has_changed:
            self._observers.on_change()

    def _committed(self, report: BatchReport, read: Collection[TaskId]) -> None:
        if read or report.records_restored or not self._registry.now.active:
            # Not one that only opens stores: it succeeds after each batch that is lost over the same record.
            self._lost_in_a_row = LostInARow()
        if report.records_out and self._has_written(report):
            tell_moment(FIRST_OUTPUT)
        cost = self._observers.rebalance.ran(read)
        if cost is not None:
            self._observers.metrics.rebalance(cost)
        if self._config.processing_guarantee is ProcessingGuarantee.AT_LEAST_ONCE:
            self._commits.processed(report.ends, self._registry.now.times)
            if self._batches.are_smaller:
                self._commits.commit()  # a batch that fails goes back to what is committed: the search for its cause would, too

    def _fenced(self, report: BatchReport) -> None:
        """Nothing of the batch was committed. Which tasks the member still owns is known after the next assignment."""
        log.warning(LogEvent("fenced", thread=self._thread, reason=report.message))
        self._count(report.message, is_misfit=False)
        self._commits.forget()
        self._registry.handle(BatchReported(report=report))
        self._registry.handle(BatchLost(reason=report.message))
        # The broker no longer knows this member as the owner: only a new assignment shows which tasks it has.
        self._group.member.request_rejoin("a commit was refused")

    def _reported_lost(self, reason: str, *, is_misfit: bool) -> None:
        """The worker says itself that nothing of the batch counts: it lives, with its stores."""
        self._log_lost(reason)
        self._count(reason, is_misfit=is_misfit)
        self._commits.forget()
        self._batches.fence()  # a producer that was given up in its transaction holds the offsets back until that ends
        time.sleep(_RETRY_PAUSE_S)

    def _batch_lost(self, lost: BatchLostError) -> None:
        """There is no report: the worker may be dead, and the batch committed."""
        reason = str(lost)
        self._log_lost(reason)
        self._observers.metrics.batch_lost()
        self._count(reason, is_misfit=isinstance(lost, MisfitError))
        self._commits.forget()
        self._registry.handle(BatchLost(reason=reason))
        if self._config.num_standby_replicas and self._engine is not None and self._engine.has_lost_its_place():
            self._group.member.request_rejoin("the executor with its stores is gone: copies elsewhere may take over")
        self._batches.fence()  # the dead worker may have left a transaction open, which would hold the offsets back
        time.sleep(_RETRY_PAUSE_S)

    def _log_lost(self, reason: str) -> None:
        """``failures``: the batches in a row that did not count, with this one."""
        log.warning(LogEvent("batch-lost", thread=self._thread, reason=reason, failures=self._lost_in_a_row.count + 1))

    def _count(self, reason: str, *, is_misfit: bool) -> None:
        """Counts a batch that was not committed. StopError if too many in a row did not fit together."""
        row = self._lost_in_a_row = self._lost_in_a_row.and_another(reason, is_misfit=is_misfit)
        if row.is_given_up:
            raise StopError(
                f"{row.misfits} batches in a row could not be used, the last because {reason}. Nothing outside mends that: "
                "report it with the log; another instance, or this one started again, continues from what is committed"
            )
        if row.is_to_be_said:
            log.warning(
                LogEvent(
                    "no-batch-counts",
                    thread=self._thread,
                    count=row.count,
                    reason=reason,
                    do=_WHERE_TO_LOOK,
                )
            )

    def _has_written(self, report: BatchReport) -> bool:
        """True if the batch has read anything whose results go to the user's topics."""
        writing = [task for name, task in self._registry.now.active.items() if name.subtopology in self._writes]
        return any(partition in report.partition_stats for task in writing for partition in task.inputs)


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
