"""All metrics of an instance at one moment: what its threads have recorded, under Kafka Streams' names.

Decides which sensor is behind which name and with which tags. Nothing is computed that was not measured; what has not
happened yet has no metric, or NaN where Kafka Streams has NaN.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemill.ids import TaskId
from tidemill.metrics import names
from tidemill.metrics.names import Metric, MetricName, RecordingLevel, Tags
from tidemill.metrics.sensor import Sensor
from tidemill.runtime.instance.instance_state import State
from tidemill.runtime.observe.thread_metrics import lags
from tidemill.runtime.thread.stream_thread import StreamThread

Value = float | str
Found = Iterator[tuple[str, str, Tags, Value]]

_STATE_NUMBERS = {
    State.CREATED: 0, State.REBALANCING: 1, State.RUNNING: 2, State.PENDING_SHUTDOWN: 3, State.NOT_RUNNING: 4,
    State.PENDING_ERROR: 5, State.ERROR: 6,
}  # fmt: skip
"""The ordinals of KafkaStreams.State."""
_ALL_TASKS = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo:
    """Facts about the instance for its metrics. ``source_node``: the source node of each input topic."""

    client_id: str
    process_id: str
    application_id: str
    version: str
    topology: str
    source_node: Mapping[str, str]


def instance_metrics(
    info: ClientInfo,
    state: State,
    threads: Sequence[StreamThread],
    *,
    level: RecordingLevel,
    led: int,
    now_s: Callable[[], float] = time.monotonic,
) -> dict[MetricName, Metric]:
    """The metrics up to ``level``, by name."""
    found: dict[MetricName, Metric] = {}
    for group, name, tags, value in _all(info, state, threads, level, led, now_s()):
        metric_name, of = names.known(name, group, tags)
        if of <= level:
            found[metric_name] = Metric(metric_name, value, of)
    return found


def _all(
    info: ClientInfo, state: State, threads: Sequence[StreamThread], level: RecordingLevel, led: int, now_s: float
) -> Found:
    client: Tags = (("client-id", info.client_id),)
    numbered: Tags = (*client, ("process-id", info.process_id))
    yield names.CLIENT, "version", client, info.version
    yield names.CLIENT, "application-id", client, info.application_id
    yield names.CLIENT, "topology-description", client, info.topology
    yield names.CLIENT, "state", client, state.value
    yield names.CLIENT, "client-state", (*numbered, ("application-id", info.application_id)), _STATE_NUMBERS[state]
    yield names.CLIENT, "recording-level", numbered, int(level)
    yield names.CLIENT, "alive-stream-threads", client, sum(thread.is_alive() for thread in threads)
    yield names.CLIENT, "failed-stream-threads", client, sum(thread.error is not None for thread in threads)
    yield names.REBALANCE, "led-rebalances-total", client, led
    for thread in threads:
        yield from _thread(thread, now_s)
        yield from _functions(thread, now_s)
        yield from _tasks(thread, info, now_s)
        yield from _consumer(thread, now_s)


def _thread(thread: StreamThread, now_s: float) -> Found:
    metrics, tags = thread.metrics, (("thread-id", thread.name),)
    at, group = metrics.sensors.at, names.THREAD
    yield group, "thread-start-time", tags, metrics.started_ms
    yield from _sum(group, "process", tags, at("process"), now_s)
    yield from _average(group, "process-latency", tags, at("process-latency"), now_s)
    yield from _average(group, "process-records", tags, at("process-records"), now_s)
    yield from _count(group, "poll", tags, at("poll"), now_s)
    yield from _average(group, "poll-latency", tags, at("poll"), now_s)
    yield from _average(group, "poll-records", tags, at("poll-records"), now_s)
    yield from _count(group, "commit", tags, at("commit"), now_s)
    yield from _average(group, "commit-latency", tags, at("commit"), now_s)
    for name in ("process-latency", "poll", "commit"):
        ratio = min(1.0, at(name).rate(now_s) / 1e3)
        yield group, f"{name.removesuffix('-latency')}-ratio", tags, ratio
    for name in ("task-created", "task-closed"):
        yield from _sum(group, name, tags, at(name), now_s)
    active = sum(copy.is_active for copy in thread.copies)
    standby, paused = len(thread.copies) - active, thread.is_paused
    yield names.UPDATER, "active-restoring-tasks", tags, 0 if paused else active
    yield names.UPDATER, "standby-updating-tasks", tags, 0 if paused else standby
    yield names.UPDATER, "active-paused-tasks", tags, active if paused else 0
    yield names.UPDATER, "standby-paused-tasks", tags, standby if paused else 0
    restored = [sensor for what in ("restore", "update") for sensor in metrics.sensors.of(what).values()]
    yield names.UPDATER, "restore-records-rate", tags, sum(sensor.rate(now_s) for sensor in restored)
    yield from _average(names.BATCH, "batch-latency", tags, at("batch"), now_s)
    yield names.BATCH, "lost-batch-total", tags, metrics.lost
    yield names.BATCH, "skipped-records-total", tags, metrics.skipped
    yield names.BATCH, "produced-records-total", tags, metrics.records_out


def _functions(thread: StreamThread, now_s: float) -> Found:
    """Metrics of functions of batches and async functions, by node: a call serves all tasks of a thread."""
    group = names.FUNCTION
    for (node, what), sensor in thread.metrics.sensors.of("function").items():
        tags: Tags = (("thread-id", thread.name), ("processor-node-id", str(node)))
        match what:
            case "call":
                yield from _count(group, "call", tags, sensor, now_s)
                yield from _average(group, "call-latency", tags, sensor, now_s)
            case "process-latency":
                yield from _average(group, "process-latency", tags, sensor, now_s)
                yield group, "process-ratio", tags, min(1.0, sensor.rate(now_s) / 1e3)
            case "in-flight":
                yield group, "in-flight-max", tags, sensor.largest(now_s)
            case _:
                yield from _sum(group, str(what), tags, sensor, now_s)


def _tasks(thread: StreamThread, info: ClientInfo, now_s: float) -> Found:
    metrics = thread.metrics
    sensors = metrics.sensors

    def tags(task: TaskId | str) -> Tags:
        return ("thread-id", thread.name), ("task-id", str(task))

    yield from _sum(names.TASK, "dropped-records", tags(_ALL_TASKS), sensors.at("dropped"), now_s)
    processed = {task: sensors.of("process").get((task,)) for task in thread.tasks}
    rates = {task: 0.0 if sensor is None else sensor.rate(now_s) for task, sensor in processed.items()}
    all_rates = sum(rates.values())
    for task, sensor in sorted(processed.items()):
        if sensor is not None:
            yield from _sum(names.TASK, "process", tags(task), sensor, now_s)
        yield names.TASK, "active-process-ratio", tags(task), rates[task] / all_rates if all_rates else 0.0
    for what in ("restore", "update"):
        for (of_task,), found in sensors.of(what).items():
            yield from _sum(names.TASK, what, tags(str(of_task)), found, now_s)
    for copy in thread.copies:
        if copy.is_active:
            yield names.TASK, "restore-remaining-records-total", tags(copy.task), copy.lag
        kind = (*tags(copy.task), ("role", "restoring" if copy.is_active else "standby"))
        yield names.COPY, "copy-lag", kind, copy.lag
        yield names.COPY, "copy-seconds-left", kind, math.nan if copy.seconds_left is None else copy.seconds_left
    for (of_task, topic), found in sensors.of("age").items():
        node = info.source_node.get(str(topic), str(topic))
        yield from _ages(names.NODE, (*tags(str(of_task)), ("processor-node-id", node)), found, now_s)
    for (of_task, store), found in sensors.of("put").items():
        yield names.STORE, "put-rate", (*tags(str(of_task)), ("lmdb-state-id", str(store))), found.rate(now_s)
    for (of_task, store), found in sensors.of("store-age").items():
        yield from _ages(names.STORE, (*tags(str(of_task)), ("lmdb-state-id", str(store))), found, now_s)
    for task, paused_ms in dict(metrics.paused_ms).items():
        yield names.REBALANCE, "task-pause-ms-total", tags(task), paused_ms


def _consumer(thread: StreamThread, now_s: float) -> Found:
    metrics, tags = thread.metrics, (("client-id", f"{thread.name}-consumer"),)
    at, group = metrics.sensors.at, names.COORDINATOR
    yield group, "assigned-partitions", tags, len(metrics.task_of)
    for name, what in (("rebalance", "rebalance"), ("failed-rebalance", "failed-rebalance")):
        yield group, f"{name}-total", tags, at(what).total
        yield group, f"{name}-rate-per-hour", tags, at(what).rate(now_s) * 3_600
    yield from _average(group, "rebalance-latency", tags, at("rebalance-latency"), now_s)
    yield group, "rebalance-latency-total", tags, at("rebalance-latency").total
    since_s = -1.0 if metrics.assigned_at_s is None else now_s - metrics.assigned_at_s
    yield group, "last-rebalance-seconds-ago", tags, since_s
    yield from _count(group, "heartbeat", tags, at("heartbeat"), now_s)
    yield group, "heartbeat-response-time-max", tags, at("heartbeat").largest(now_s)
    beat_s = -1.0 if metrics.heartbeat_at_s is None else now_s - metrics.heartbeat_at_s
    yield group, "last-heartbeat-seconds-ago", tags, beat_s
    behind = lags(metrics)
    for partition, lag in sorted(behind.items()):
        named: Tags = (*tags, ("topic", partition.topic), ("partition", str(partition.partition)))
        yield names.FETCHER, "records-lag", named, lag
    yield names.FETCHER, "records-lag-max", tags, max(behind.values(), default=math.nan)
    yield from _sum(names.FETCHER, "records-consumed", tags, at("process"), now_s)


def _sum(group: str, name: str, tags: Tags, sensor: Sensor, now_s: float) -> Found:
    """Rate and total of the recorded amounts."""
    yield group, f"{name}-rate", tags, sensor.rate(now_s)
    yield group, f"{name}-total", tags, sensor.total


def _count(group: str, name: str, tags: Tags, sensor: Sensor, now_s: float) -> Found:
    """Rate and number of the recorded occurrences."""
    yield group, f"{name}-rate", tags, sensor.occurrences(now_s)
    yield group, f"{name}-total", tags, sensor.count


def _average(group: str, name: str, tags: Tags, sensor: Sensor, now_s: float) -> Found:
    yield group, f"{name}-avg", tags, sensor.average(now_s)
    yield group, f"{name}-max", tags, sensor.largest(now_s)


def _ages(group: str, tags: Tags, sensor: Sensor, now_s: float) -> Found:
    yield from _average(group, "record-e2e-latency", tags, sensor, now_s)
    yield group, "record-e2e-latency-min", tags, sensor.least(now_s)
