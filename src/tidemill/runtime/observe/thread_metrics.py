"""Metrics of a stream thread: running totals, and sensors for rates, averages and extremes.

Decides what is recorded of a micro-batch, a rebalance and a change of tasks; which of it is shown under which of Kafka Streams'
names is ``instance_metrics``'. Read by metrics, progress displays and benchmarks.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tidemill.config.slices import ThreadConfig
from tidemill.ids import TaskId, TopicPartition
from tidemill.log_format import LogEvent
from tidemill.metrics.sensor import Sensor, Window
from tidemill.runtime.observe.rebalance_watch import RebalanceCost
from tidemill.task.batch import BatchReport, FunctionCalls, Outcome, PartitionStats
from tidemill.task.commit import CommitStep
from tidemill.task.tasks import BatchReported, Event, Tasks

log = logging.getLogger("tidemill.thread")

_SLOW_BATCH_S = 2.0
_LIVE = Window(sample_s=2.0, samples=5)
"""For displays: what the last seconds were like."""
_COMMIT_STEPS = (CommitStep.PRODUCE, CommitStep.ROOM, CommitStep.MEMBERSHIP, CommitStep.COMMIT, CommitStep.APPLY)
_REBALANCES_KEPT = 50


@dataclass(frozen=True, slots=True)
class PastRebalance:
    """A rebalance that is over; ``at_ms``: when, since 1970."""

    at_ms: int
    cost: RebalanceCost


class Sensors:
    """Sensors by what they record; made when first recorded to."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._known: dict[tuple[object, ...], Sensor] = {}

    def at(self, *what: object) -> Sensor:
        found = self._known.get(what)
        return found if found is not None else self._known.setdefault(what, Sensor(self._window))

    def of(self, first: object) -> dict[tuple[object, ...], Sensor]:
        """The sensors whose name begins with ``first``, by the rest of the name."""
        return {what[1:]: sensor for what, sensor in tuple(self._known.items()) if what[0] == first}

    def forget(self, first: object, *then: object) -> None:
        for what in [what for what in tuple(self._known) if what[: 1 + len(then)] == (first, *then)]:
            del self._known[what]


@dataclass(slots=True)
class ThreadMetrics:
    """Written by the stream thread only, heartbeats apart. ``live``: records in, out and restored over the last ten seconds."""

    window: Window = field(default_factory=Window)
    now_s: Callable[[], float] = time.monotonic
    wall_ms: Callable[[], int] = lambda: int(time.time() * 1e3)
    started_ms: int = field(default_factory=lambda: int(time.time() * 1e3))
    batches: int = 0
    lost: int = 0
    records_in: int = 0
    records_restored: int = 0
    records_out: int = 0
    dropped: int = 0
    skipped: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    paused_ms: dict[TaskId, int] = field(default_factory=dict)
    """Time that rebalances kept each task from running, in sum."""
    past: deque[PastRebalance] = field(default_factory=lambda: deque(maxlen=_REBALANCES_KEPT))
    assigned_at_s: float | None = None
    """Time of the last assignment."""
    heartbeat_at_s: float | None = None
    memberships_lost: int = 0
    capacity_per_s: float | None = None
    """The most records per second that it has processed over some seconds while more of them were waiting; None: never so."""
    sensors: Sensors = field(init=False)
    live: Sensors = field(init=False)
    task_of: Mapping[TopicPartition, TaskId] = field(default_factory=dict)
    """The active task that reads each input."""

    def __post_init__(self) -> None:
        self.sensors, self.live = Sensors(self.window), Sensors(_LIVE)

    def batch(self, report: BatchReport, seconds: float) -> None:
        now_s = self.now_s()
        self.batches += 1
        self.sensors.at("batch").record(seconds * 1e3, now_s)
        if report.outcome is not Outcome.COMMITTED:
            self.batch_lost()
            return
        self.records_in += report.records_in
        self.records_restored += report.records_restored
        self.records_out += report.records_out
        self.dropped += report.dropped
        self.skipped += report.skipped
        self.ends.update(report.ends)
        self.high_watermarks.update(report.high_watermarks)
        self._record(report, now_s)

    def batch_lost(self) -> None:
        self.lost += 1

    def _record(self, report: BatchReport, now_s: float) -> None:
        at, live, timings = self.sensors.at, self.live.at, report.timings_ms
        read = report.records_in + report.records_restored
        at("poll").record(timings.get("wait", 0.0), now_s)
        at("poll-records").record(read, now_s)
        if report.records_in:
            at("process-latency").record(timings.get(CommitStep.RUN.value, 0.0), now_s)
            at("process-records").record(report.records_in, now_s)
            live("batch").record(sum(timings.values()), now_s)
        if CommitStep.COMMIT.value in timings:
            at("commit").record(sum(timings.get(step.value, 0.0) for step in _COMMIT_STEPS), now_s)
        at("process").record(report.records_in, now_s)
        at("dropped").record(report.dropped, now_s)
        live("in").record(report.records_in, now_s)
        if 0 < report.records_in <= sum(lags(self).values()):
            self.capacity_per_s = max(self.capacity_per_s or 0.0, live("in").rate(now_s))
        live("out").record(report.records_out, now_s)
        live("restored").record(report.records_restored, now_s)
        for node, calls in report.functions.items():
            self._record_function(node, calls, now_s)
        self._record_tasks(report, now_s, self.wall_ms())

    def _record_function(self, node: str, calls: FunctionCalls, now_s: float) -> None:
        def at(what: str) -> Sensor:
            return self.sensors.at("function", node, what)

        at("process").record(calls.records, now_s)
        at("process-latency").record(calls.took_ms, now_s)
        if calls.calls:
            at("call").record_all(calls.calls_ms, 0.0, calls.longest_ms, now_s, times=calls.calls)
        at("failed-records").record(calls.failures, now_s)
        if calls.most_in_flight:
            at("timeout").record(calls.timeouts, now_s)
            at("in-flight").record(calls.most_in_flight, now_s)

    def _record_tasks(self, report: BatchReport, now_s: float, now_ms: int) -> None:
        of_task: dict[TaskId, PartitionStats] = {}
        for partition, stats in report.partition_stats.items():
            task = self.task_of.get(partition)
            if task is None:
                continue
            of_task[task] = of_task[task].plus(stats) if task in of_task else stats
            _record_age(self.sensors.at("age", task, partition.topic), stats, now_s, now_ms)
        for task, stats in of_task.items():
            self.sensors.at("process", task).record(stats.records, now_s)
            self.live.at("process", task).record(stats.records, now_s)
            _record_age(self.live.at("age"), stats, now_s, now_ms)
        for task, stores in report.written.items():
            for store, keys in stores.items():
                self.sensors.at("put", task, store).record(keys, now_s)
                if task in of_task:
                    _record_age(self.sensors.at("store-age", task, store), of_task[task], now_s, now_ms)

    def changed(self, before: Tasks, after: Tasks, event: Event) -> None:
        """Tasks have come or gone, or changelog records were applied to their stores."""
        now_s, was, held = self.now_s(), _roles(before), _roles(after)
        if held != was:
            for name, epochs in (("task-created", held.keys() - was.keys()), ("task-closed", was.keys() - held.keys())):
                if epochs:
                    self.sensors.at(name).record(len(epochs), now_s)
            self._forget(after, {task for epoch, (task, role) in was.items() if held.get(epoch) != (task, role)})
        if isinstance(event, BatchReported):
            for task, stores in event.report.restored.items():
                self.sensors.at("restore" if task in after.active else "update", task).record(sum(stores.values()), now_s)

    def _forget(self, after: Tasks, tasks: Collection[TaskId]) -> None:
        """Forgets tasks that are in no role, or in another one."""
        for task in tasks:
            for what in ("restore", "update", "put", "store-age", "process", "age"):
                self.sensors.forget(what, task)
            self.live.forget("process", task)
        self.task_of = {partition: name for name, task in after.active.items() for partition in task.inputs}
        for known in (self.ends, self.high_watermarks):
            for gone in known.keys() - self.task_of.keys():
                del known[gone]

    def assigned(self) -> None:
        """An assignment has come."""
        self.assigned_at_s = self.now_s()
        self.sensors.at("rebalance").record(1, self.now_s())

    def lost_membership(self) -> None:
        self.memberships_lost += 1
        self.sensors.at("failed-rebalance").record(1, self.now_s())

    def heartbeat(self, took_ms: float) -> None:
        """Called on the member's heartbeat thread."""
        self.heartbeat_at_s = self.now_s()
        self.sensors.at("heartbeat").record(took_ms, self.heartbeat_at_s)

    def rebalance(self, cost: RebalanceCost) -> None:
        self.sensors.at("rebalance-latency").record(cost.joined_ms, self.now_s())
        self.past.append(PastRebalance(self.wall_ms(), cost))
        for task, paused_ms in cost.paused_ms.items():
            self.paused_ms[task] = self.paused_ms.get(task, 0) + paused_ms


def _roles(tasks: Tasks) -> dict[str, tuple[TaskId, bool]]:
    """Task and role (True: active) by epoch."""
    standbys = {task.epoch: (name, False) for name, task in tasks.standby.items()}
    return standbys | {task.epoch: (name, True) for name, task in tasks.active.items()}


def _record_age(sensor: Sensor, stats: PartitionStats, now_s: float, now_ms: int) -> None:
    if stats.timed:
        total = now_ms * stats.timed - stats.sum_ms
        sensor.record_all(total, now_ms - stats.newest_ms, now_ms - stats.oldest_ms, now_s, times=stats.timed)


def metrics_window(config: ThreadConfig) -> Window:
    return Window(sample_s=config.metrics_sample_window_ms / 1e3, samples=config.metrics_num_samples)


def lags(metrics: ThreadMetrics) -> Mapping[TopicPartition, int]:
    """Lag of each input behind its partition's end, as of the last fetch."""
    high = dict(metrics.high_watermarks)
    return {tp: max(0, high[tp] - end) for tp, end in dict(metrics.ends).items() if tp in high}


def tell_if_slow(thread: str, report: BatchReport, seconds: float) -> None:
    """A batch that takes seconds holds a rebalance up as long, so where the time went is worth a line."""
    if seconds > _SLOW_BATCH_S:
        log.info(
            LogEvent(
                "slow-batch",
                thread=thread,
                seconds=round(seconds, 1),
                records=report.records_in,
                restored=report.records_restored,
                timings_ms=dict(report.timings_ms),
            )
        )
