"""One micro-batch after the other, and what the outcome of each asks for.

Decides what follows a batch: what was restored and read is told to those who keep it, inputs out of range are set back, a
refused commit makes the member join anew, and after a lost batch nothing is assumed (rule 6): the producer is fenced and what
counts is asked of the broker. What a batch covers, and how large it is, is ``micro_batches``'.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from tidemill.config.streams_config import StreamsConfig
from tidemill.config.values import ProcessingGuarantee
from tidemill.errors import BatchLostError, MisfitError, NoExecutorError, StopError
from tidemill.ids import TaskId
from tidemill.kafka.group.member import GroupMember
from tidemill.log_format import LogEvent
from tidemill.runtime.observe.rebalance_watch import RebalanceWatch
from tidemill.runtime.observe.thread_metrics import ThreadMetrics
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.micro_batches import MicroBatches
from tidemill.runtime.thread.offset_commits import OwnCommits
from tidemill.runtime.thread.offset_fetcher import TaskOffsets
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.start_trace import FIRST_OUTPUT, span, tell_moment
from tidemill.task.batch import BatchReport, BatchRequest, Outcome
from tidemill.task.lost_batches import LostInARow
from tidemill.task.tasks import BatchLost, BatchReported, is_other_phase

log = logging.getLogger("tidemill.thread")

_RETRY_PAUSE_S = 0.2


class BatchRunner:
    """Called by the stream thread only. ``on_change`` is told that a task's phase has changed; ``writes``: the sub-topologies
    that write to topics of the user's."""

    def __init__(
        self,
        thread: str,
        config: StreamsConfig,
        *,
        batches: MicroBatches,
        registry: TaskRegistry,
        writes: Collection[int],
        commits: OwnCommits,
        offsets: TaskOffsets,
        member: GroupMember,
        global_topics: GlobalTopics,
        rebalance: RebalanceWatch,
        metrics: ThreadMetrics,
        on_change: Callable[[], None],
    ) -> None:
        self._thread, self._config, self._batches, self._registry = thread, config, batches, registry
        self._commits, self._offsets, self._member, self._globals = commits, offsets, member, global_topics
        self._rebalance, self._metrics, self._on_change = rebalance, metrics, on_change
        self._writes = frozenset(writes)

    def run(self) -> None:
        """One micro-batch of everything that is held. StopError if the workers say that going on is impossible."""
        request = self._batches.next()
        read = self._batches.read_by(request)
        report = self._execute(request)
        if report is not None:
            self._take_report(report, read)

    def run_empty(self) -> None:
        """One of no tasks, ahead of the first assignment."""
        self._execute(self._batches.none())

    def close_stores(self) -> bool:
        """Whether the worker has answered a batch without the tasks that are closing, which closes their stores."""
        report = self._execute(self._batches.closing())
        return report is not None and report.outcome is Outcome.COMMITTED

    def _execute(self, request: BatchRequest) -> BatchReport | None:
        """None if the batch is lost, or did not begin."""
        try:
            with span("micro-batch", number=request.batch_id) as details:
                report = self._batches.run(request)
                details |= {"read": report.records_in, "written": report.records_out, **report.timings_ms}
            return report
        except NoExecutorError as waiting:
            log.debug(LogEvent("batch-waits", thread=self._thread, reason=waiting))
            self._count(str(waiting), is_misfit=False)
            return None
        except BatchLostError as lost:
            self._batch_lost(lost)
            return None

    def _take_report(self, report: BatchReport, read: Collection[TaskId]) -> None:
        """``read``: the tasks whose inputs the batch has read."""
        self._batches.adapt(report)
        for at in report.stores:
            if at.note:
                log.warning(LogEvent("state-note", task=at.task, note=at.note))
        if report.outcome is Outcome.STOPPED:
            raise StopError(report.message)
        if report.skipped:
            log.warning(LogEvent("records-skipped", thread=self._thread, count=report.skipped, reason=report.message))
        if report.outcome is Outcome.FENCED:
            log.warning(LogEvent("fenced", thread=self._thread, reason=report.message))
            self._count(report.message, is_misfit=False)
            self._forget(report)
            self._member.request_rejoin("a commit was refused")
            return
        is_misfit = report.is_misfit
        if report.out_of_range:
            is_misfit &= self._offsets.reset(self._globals.without(report.out_of_range))
        before = self._registry.now
        self._registry.handle(BatchReported(report=report))
        has_changed = is_other_phase(before, self._registry.now)
        if report.outcome is Outcome.COMMITTED:
            self._metrics.lost_in_a_row = LostInARow()
            if report.records_out and self._has_written(report):
                tell_moment(FIRST_OUTPUT)
            cost = self._rebalance.ran(read)
            if cost is not None:
                self._metrics.rebalance(cost)
        if report.outcome is Outcome.REFUSED:
            log.info(LogEvent("commit-refused", thread=self._thread, reason=report.message))
            self._count(report.message, is_misfit=False)
        if report.outcome is Outcome.LOST:
            log.warning(LogEvent("batch-lost", thread=self._thread, reason=report.message))
            self._count(report.message, is_misfit=is_misfit)
            self._commits.forget()
            time.sleep(_RETRY_PAUSE_S)
        elif self._config.processing_guarantee is ProcessingGuarantee.AT_LEAST_ONCE:
            self._commits.processed(report.ends, self._registry.now.times)
            if self._batches.size.most is not None:
                self._commits.commit()  # a batch that fails goes back to what is committed: the search for its cause would, too
        if has_changed:
            self._on_change()

    def _batch_lost(self, lost: BatchLostError) -> None:
        reason = str(lost)
        log.warning(LogEvent("batch-lost", thread=self._thread, reason=reason, failures=self._batches.failures))
        self._metrics.lost += 1
        self._count(reason, is_misfit=isinstance(lost, MisfitError))
        self._commits.forget()
        self._registry.handle(BatchLost(reason=reason))
        if self._config.num_standby_replicas and self._batches.has_lost_its_place():
            self._member.request_rejoin("the executor with its stores is gone: copies elsewhere may take over")
        self._batches.fence()  # the dead worker may have left a transaction open, which would hold the offsets back
        time.sleep(_RETRY_PAUSE_S)

    def _count(self, reason: str, *, is_misfit: bool) -> None:
        """StopError if it is the same over and over."""
        row = self._metrics.lost_in_a_row = self._metrics.lost_in_a_row.and_another(reason, is_misfit=is_misfit)
        if row.is_given_up:
            raise StopError(
                f"{row.misfits} batches in a row could not be used, the last because {reason}. Nothing outside mends that: "
                "report it with the log; another instance, or this one started again, goes on from what is committed"
            )
        if row.is_to_be_said:
            log.warning(
                LogEvent(
                    "no-batch-counts",
                    thread=self._thread,
                    count=row.count,
                    reason=reason,
                    do="look at the brokers, the group, this instance's memory and disks; no record is lost, none goes on",
                )
            )

    def _forget(self, report: BatchReport) -> None:
        """After a refused commit: nothing of the batch counts, and what is owned is only known after the next assignment."""
        self._commits.forget()
        self._registry.handle(BatchReported(report=report))
        self._registry.handle(BatchLost(reason=report.message))

    def _has_written(self, report: BatchReport) -> bool:
        """Whether the batch has read anything whose results go to topics of the user's."""
        writing = [task for name, task in self._registry.now.active.items() if name.subtopology in self._writes]
        return any(partition in report.arrived for task in writing for partition in task.inputs)
