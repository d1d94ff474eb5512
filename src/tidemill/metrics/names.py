"""Names of metrics: Kafka Streams' own, in its groups, and Tidemill's in groups that begin with ``tidemill``.

Decides each one's recording level and description. A name is here only if it is really measured; docs/metrics.md says of each
of Kafka Streams' metrics whether it is, and where ours means something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

Tags = tuple[tuple[str, str], ...]


class RecordingLevel(IntEnum):
    """``metrics.recording.level``: a metric is there if its level is at most the one that is set."""

    INFO = 0
    DEBUG = 1
    TRACE = 2


@dataclass(frozen=True, slots=True)
class MetricName:
    """Kafka's MetricName: name, group and tags together identify a metric."""

    name: str
    group: str
    tags: Tags = ()
    description: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.group}:{self.name}{{{', '.join(f'{key}={value}' for key, value in self.tags)}}}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric at the moment of asking. A number, or a text such as the state's name."""

    metric_name: MetricName
    metric_value: float | str
    level: RecordingLevel


CLIENT = "stream-metrics"
THREAD = "stream-thread-metrics"
TASK = "stream-task-metrics"
UPDATER = "stream-state-updater-metrics"
NODE = "stream-processor-node-metrics"
STORE = "stream-state-metrics"
COORDINATOR = "consumer-coordinator-metrics"
FETCHER = "consumer-fetch-manager-metrics"
BATCH = "tidemill-batch-metrics"
FUNCTION = "tidemill-function-metrics"
COPY = "tidemill-copy-metrics"
REBALANCE = "tidemill-rebalance-metrics"

_I, _D, _T = RecordingLevel.INFO, RecordingLevel.DEBUG, RecordingLevel.TRACE

CATALOGUE: Mapping[str, Mapping[str, tuple[RecordingLevel, str]]] = {
    CLIENT: {
        "version": (_I, "Tidemill's version"),
        "application-id": (_I, "The application's id"),
        "topology-description": (_I, "What describe() prints"),
        "state": (_I, "The instance's state"),
        "client-state": (_I, "The instance's state as the number that Kafka Streams gives it"),
        "recording-level": (_I, "0 INFO, 1 DEBUG, 2 TRACE"),
        "alive-stream-threads": (_I, "Stream threads that work or take part in a rebalance"),
        "failed-stream-threads": (_I, "Stream threads that have ended with an error"),
    },
    THREAD: {
        "thread-start-time": (_I, "When the thread was started, in ms since 1970"),
        "process-rate": (_I, "Records processed per second"),
        "process-total": (_I, "Records processed"),
        "process-latency-avg": (_I, "Average time in ms that a micro-batch spent in the operators' last Python step"),
        "process-latency-max": (_I, "Longest time in ms that a micro-batch spent in the operators' last Python step"),
        "process-records-avg": (_I, "Average records of a micro-batch that processed any"),
        "process-records-max": (_I, "Most records of a micro-batch"),
        "process-ratio": (_I, "Share of the time spent in the operators' last Python step"),
        "poll-rate": (_I, "Micro-batches per second: each polls once"),
        "poll-total": (_I, "Micro-batches"),
        "poll-latency-avg": (_I, "Average time in ms until a micro-batch's rows had arrived at the last step"),
        "poll-latency-max": (_I, "Longest time in ms until a micro-batch's rows had arrived at the last step"),
        "poll-records-avg": (_I, "Average records that a micro-batch has read, changelogs' included"),
        "poll-records-max": (_I, "Most records that a micro-batch has read, changelogs' included"),
        "poll-ratio": (_I, "Share of the time spent until rows had arrived at the last step"),
        "commit-rate": (_I, "Commits per second"),
        "commit-total": (_I, "Commits"),
        "commit-latency-avg": (_I, "Average time in ms of a commit: from the first record produced to the stores' writing"),
        "commit-latency-max": (_I, "Longest time in ms of a commit: from the first record produced to the stores' writing"),
        "commit-ratio": (_I, "Share of the time spent in commits"),
        "task-created-rate": (_I, "Tasks taken up per second, standbys included"),
        "task-created-total": (_I, "Tasks taken up, standbys included"),
        "task-closed-rate": (_I, "Tasks given up per second, standbys included"),
        "task-closed-total": (_I, "Tasks given up, standbys included"),
    },
    TASK: {
        "process-rate": (_D, "Records of the task processed per second"),
        "process-total": (_D, "Records of the task processed"),
        "active-process-ratio": (_I, "The task's share of the records that its thread has processed"),
        "dropped-records-rate": (_I, "Records dropped per second by all tasks of the thread"),
        "dropped-records-total": (_I, "Records dropped by all tasks of the thread"),
        "restore-rate": (_D, "Records restored per second"),
        "restore-total": (_D, "Records restored"),
        "restore-remaining-records-total": (_I, "Offsets left to restore until the task runs"),
        "update-rate": (_D, "Records per second that the standby or warm-up has applied"),
        "update-total": (_D, "Records that the standby or warm-up has applied"),
    },
    UPDATER: {
        "active-restoring-tasks": (_I, "Active tasks that are being restored"),
        "standby-updating-tasks": (_I, "Standby and warm-up tasks that follow their changelogs"),
        "active-paused-tasks": (_I, "Active tasks whose restoring waits because the instance is paused"),
        "standby-paused-tasks": (_I, "Standby and warm-up tasks that follow nothing because the instance is paused"),
        "restore-records-rate": (_I, "Changelog records applied per second, by active and standby tasks"),
    },
    NODE: {
        "record-e2e-latency-avg": (_I, "Average ms from a record's timestamp to the commit of its results"),
        "record-e2e-latency-min": (_I, "Least ms from a record's timestamp to the commit of its results"),
        "record-e2e-latency-max": (_I, "Most ms from a record's timestamp to the commit of its results"),
    },
    STORE: {
        "put-rate": (_D, "Keys written per second; a key counts once in a micro-batch"),
        "record-e2e-latency-avg": (_T, "Average ms from a record's timestamp to the write of the store that it led to"),
        "record-e2e-latency-min": (_T, "Least ms from a record's timestamp to the write of the store that it led to"),
        "record-e2e-latency-max": (_T, "Most ms from a record's timestamp to the write of the store that it led to"),
    },
    COORDINATOR: {
        "assigned-partitions": (_I, "Input partitions of the active tasks"),
        "rebalance-total": (_I, "Rebalances that have ended with an assignment"),
        "rebalance-rate-per-hour": (_I, "The same per hour"),
        "rebalance-latency-avg": (_I, "Average ms from the join to the assignment, follow-ups at once included"),
        "rebalance-latency-max": (_I, "Longest ms from the join to the assignment, follow-ups at once included"),
        "rebalance-latency-total": (_I, "Sum of the ms from joins to assignments"),
        "failed-rebalance-total": (_I, "How often the membership was lost"),
        "failed-rebalance-rate-per-hour": (_I, "The same per hour"),
        "heartbeat-rate": (_I, "Heartbeats that were answered, per second"),
        "heartbeat-total": (_I, "Heartbeats that were answered"),
        "heartbeat-response-time-max": (_I, "Longest ms until a heartbeat's answer"),
        "last-heartbeat-seconds-ago": (_I, "Since the last heartbeat that was answered; -1 if there was none"),
        "last-rebalance-seconds-ago": (_I, "Since the last assignment; -1 if there was none"),
    },
    FETCHER: {
        "records-lag": (_I, "Offsets between the committed position and the partition's end as of the last fetch"),
        "records-lag-max": (_I, "The largest records-lag of the thread"),
        "records-consumed-rate": (_I, "Input records read per second"),
        "records-consumed-total": (_I, "Input records read"),
    },
    BATCH: {
        "batch-latency-avg": (_I, "Average ms of a micro-batch"),
        "batch-latency-max": (_I, "Longest ms of a micro-batch"),
        "lost-batch-total": (_I, "Micro-batches that did not count and were run again"),
        "skipped-records-total": (_I, "Records that a serde could not read"),
        "produced-records-total": (_I, "Records written to outputs and repartition topics"),
    },
    FUNCTION: {
        "process-rate": (_I, "Records per second that the function has got"),
        "process-total": (_I, "Records that the function has got"),
        "process-latency-avg": (_I, "Average time in ms that a micro-batch has waited for the function's calls"),
        "process-latency-max": (_I, "Longest time in ms that a micro-batch has waited for the function's calls"),
        "process-ratio": (_I, "Share of the thread's time spent in the function's calls"),
        "call-rate": (_I, "Calls per second"),
        "call-total": (_I, "Calls"),
        "call-latency-avg": (_I, "Average time in ms of a call"),
        "call-latency-max": (_I, "Longest time in ms of a call"),
        "failed-records-rate": (_I, "Records per second on which the function has raised, timeouts included"),
        "failed-records-total": (_I, "Records on which the function has raised, timeouts included"),
        "timeout-rate": (_I, "Calls of an async function per second that took longer than their timeout"),
        "timeout-total": (_I, "Calls of an async function that took longer than their timeout"),
        "in-flight-max": (_I, "Most calls of an async function that have waited at the same time"),
    },
    COPY: {
        "copy-lag": (_I, "Offsets that a standby, warm-up or restoring task is behind its changelogs' ends"),
        "copy-seconds-left": (_I, "Seconds until it is there at the speed of the last seconds; NaN if that is not known"),
    },
    REBALANCE: {
        "task-pause-ms-total": (_I, "How long rebalances have kept the task from running"),
        "led-rebalances-total": (_I, "Rebalances that this instance has led"),
    },
}


def known(name: str, group: str, tags: Tags) -> tuple[MetricName, RecordingLevel]:
    """The catalogue's entry. KeyError if there is none: no metric is exported that is not described."""
    level, description = CATALOGUE[group][name]
    return MetricName(name, group, tags, description), level


def all_names() -> Iterator[tuple[str, str, RecordingLevel]]:
    """Group, name and level of every metric."""
    for group, metrics in CATALOGUE.items():
        for name, (level, _) in metrics.items():
            yield group, name, level
