"""An instance whose threads have done everything that is measured, without Kafka and Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.member_state import MemberConfig, TimePassed
from tidemill.metrics.names import Metric, MetricName, RecordingLevel
from tidemill.metrics.sensor import Window
from tidemill.runtime.instance.instance_metrics import ClientInfo, instance_metrics
from tidemill.runtime.instance.instance_state import State
from tidemill.runtime.observe.rebalance_watch import RebalanceCost
from tidemill.runtime.observe.thread_metrics import ThreadMetrics
from tidemill.task.batch import BatchReport, FunctionCalls, Outcome, PartitionStats
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.lost_batches import LostInARow
from tidemill.task.progress import CopyProgress
from tidemill.task.standby import StandbyTask
from tidemill.task.tasks import BatchReported, TaskLayout, Tasks, no_tasks

RUNS, RESTORES, FOLLOWS = TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)
INPUT = TopicPartition("app-counts-repartition", 0)
CLIENT = ClientInfo(
    client_id="app-1", process_id="p-1", application_id="app", version="1.2.3", topology="Topologies:",
    source_node={"app-counts-repartition": "counts-source"},
)  # fmt: skip


FUNCTIONS = {
    "score": FunctionCalls(calls=3, records=100, failures=1, calls_ms=6.0, longest_ms=4.0, took_ms=6.0),
    "ask": FunctionCalls(
        calls=100, records=100, failures=2, calls_ms=500.0, longest_ms=50.0, took_ms=40.0, most_in_flight=16, timeouts=1
    ),
}  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


def active(task: TaskId, phase: Phase = Phase.RUNNING) -> ActiveTask:
    inputs = (TopicPartition("app-counts-repartition", task.partition),)
    return ActiveTask(task=task, directory="", epoch=f"e-{task}", inputs=inputs, changelogs={}, phase=phase)


def tasks(*actives: ActiveTask, standbys: Iterable[TaskId] = ()) -> Tasks:
    """What a thread holds."""
    copies = {task: StandbyTask(task=task, directory="", epoch=f"e-{task}", changelogs={}) for task in standbys}
    identity = MemberConfig(process_id=ProcessId(1, 2))
    return replace(no_tasks(identity, TaskLayout()), active={task.task: task for task in actives}, standby=copies)


def report(now_ms: int, *, records: int = 100, outcome: Outcome = Outcome.COMMITTED) -> BatchReport:
    """100 records that are from 10 to 30 ms old; half of them led to other keys."""
    return BatchReport(
        batch_id=1,
        outcome=outcome,
        ends={INPUT: 500},
        high_watermarks={INPUT: 520},
        records_in=records,
        records_restored=40,
        restored={RESTORES: {"counts": 30}, FOLLOWS: {"counts": 10}},
        records_out=records,
        dropped=3,
        skipped=2,
        partition_stats={INPUT: PartitionStats(records, records, now_ms - 30, now_ms - 10, (now_ms - 20) * records)},
        written={RUNS: {"counts": records // 2}},
        functions=FUNCTIONS,
        timings_ms={"wait": 10.0, "run": 4.0, "produce": 5.0, "commit": 6.0, "apply": 1.0},
    )


def measured_thread(clock: Clock, now_ms: int) -> Any:
    """A stream thread as metrics see it, after two batches, a lost one and a rebalance."""
    metrics = ThreadMetrics(Window(), now_s=clock, wall_ms=lambda: now_ms)
    stay, goes = (active(RUNS), active(RESTORES, Phase.RESTORING)), active(TaskId(9, 9))
    metrics.changed(tasks(), tasks(*stay, goes, standbys=[FOLLOWS]), TimePassed())
    held = tasks(*stay, standbys=[FOLLOWS])
    metrics.changed(tasks(*stay, goes, standbys=[FOLLOWS]), held, TimePassed())
    metrics.assigned()
    metrics.lost_membership()
    metrics.heartbeat(3.0)
    for _ in range(2):
        clock.s += 1
        told = report(now_ms)
        metrics.batch(told, 0.05)
        metrics.changed(held, held, BatchReported(report=told))
    metrics.batch(report(now_ms, outcome=Outcome.LOST), 0.2)
    metrics.rebalance(RebalanceCost(generations=(1, 2), joined_ms=250, paused_ms={RUNS: 40}))
    return SimpleNamespace(
        name="app-1-StreamThread-1",
        metrics=metrics,
        tasks=held.active,
        copies=(
            CopyProgress(task=RESTORES, is_active=True, lag=70, offsets_per_s=7.0),
            CopyProgress(task=FOLLOWS, is_active=False, lag=5, offsets_per_s=None),
        ),
        error=None,
        lost_in_a_row=LostInARow(),
        is_alive=lambda: True,
    )


def measured(
    level: RecordingLevel, now_ms: int = 1_700_000_000_000, *, is_paused: bool = False
) -> dict[MetricName, Metric]:
    clock = Clock()
    thread = measured_thread(clock, now_ms)
    thread.is_paused = is_paused
    return instance_metrics(CLIENT, State.RUNNING, [thread], level=level, led=3, now_s=clock)
