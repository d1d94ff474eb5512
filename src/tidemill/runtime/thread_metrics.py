"""What a stream thread has done, as running totals; read by metrics, progress displays and benchmarks."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field

from tidemill.ids import TaskId, TopicPartition
from tidemill.runtime.rebalance_watch import RebalanceCost
from tidemill.task.batch import BatchReport, Outcome

log = logging.getLogger("tidemill.thread")

_SLOW_BATCH_S = 2.0


@dataclass(slots=True)
class ThreadMetrics:
    """Written by the stream thread only."""

    batches: int = 0
    lost: int = 0
    records_in: int = 0
    records_restored: int = 0
    records_out: int = 0
    dropped: int = 0
    skipped: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    rebalances: int = 0
    paused_ms: dict[TaskId, int] = field(default_factory=dict)
    """How long each task was kept from running by rebalances, in sum."""
    recent: deque[tuple[float, BatchReport]] = field(default_factory=lambda: deque(maxlen=200))

    def batch(self, report: BatchReport, seconds: float) -> None:
        self.batches += 1
        self.recent.append((seconds, report))
        if report.outcome is not Outcome.COMMITTED:
            self.lost += 1
            return
        self.records_in += report.records_in
        self.records_restored += report.records_restored
        self.records_out += report.records_out
        self.dropped += report.dropped
        self.skipped += report.skipped
        self.ends.update(report.ends)
        self.high_watermarks.update(report.high_watermarks)

    def rebalance(self, cost: RebalanceCost) -> None:
        self.rebalances += len(cost.generations)
        for task, paused_ms in cost.paused_ms.items():
            self.paused_ms[task] = self.paused_ms.get(task, 0) + paused_ms


def tell_if_slow(thread: str, report: BatchReport, seconds: float) -> None:
    """A batch that takes seconds holds a rebalance up as long, so where the time went is worth a line."""
    if seconds > _SLOW_BATCH_S:
        log.info(
            "event=slow-batch thread=%s seconds=%.1f records=%d restored=%d timings_ms=%s",
            thread, seconds, report.records_in, report.records_restored, dict(report.timings_ms),
        )  # fmt: skip
