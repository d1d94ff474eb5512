"""Status of an instance over HTTP: its state, threads, tasks and copies, rates, and past rebalances, as one document.

Implements ``query.status_source.StatusSource``. Decides the figures and when the instance counts as alive and as ready; how
the documents of a group are put together, and who may ask, is ``query``'s.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata

from tidemill.config.slices import StatusConfig
from tidemill.errors import TidemillError
from tidemill.ids import ProcessId, TaskId
from tidemill.metrics.names import Metric, MetricName, RecordingLevel
from tidemill.query.metadata import HostMap
from tidemill.runtime.group.rebalance_history import RebalanceHistory
from tidemill.runtime.instance.draining import Draining
from tidemill.runtime.instance.instance_metrics import ClientInfo, instance_metrics
from tidemill.runtime.instance.instance_state import InstanceState, State
from tidemill.runtime.observe.thread_metrics import ThreadMetrics, lags
from tidemill.runtime.thread.stream_thread import StreamThread
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.progress import CopyProgress, restoring
from tidemill.topology.describe import describe, to_json
from tidemill.topology.graph import broker_topic, subtopologies
from tidemill.topology.nodes import SourceNode, Topology

_DEAD = (State.ERROR, State.PENDING_ERROR, State.NOT_RUNNING, State.PENDING_SHUTDOWN)


class InstanceStatus:
    """``threads`` may grow and shrink; ``error`` says why the instance is in ERROR."""

    def __init__(
        self,
        config: StatusConfig,
        topology: Topology,
        process_id: ProcessId,
        state: InstanceState,
        threads: Sequence[StreamThread],
        history: RebalanceHistory,
        *,
        host: str,
        error: Callable[[], TidemillError | None],
        draining: Draining,
        spark_ui: str | None = None,
    ) -> None:
        self._config, self._process_id = config, process_id
        self._state, self._threads, self._history, self._host, self._error = state, threads, history, host, error
        self._draining, self._spark_ui = draining, spark_ui
        self._started_ms = _now_ms()
        self.reads(topology)

    def reads(self, topology: Topology) -> None:
        """The instance's topology, with topics in place of patterns: at its start, and when topics have been added."""
        config, process_id = self._config, self._process_id
        self._topology = topology
        parts = subtopologies(topology, config.application_id)
        self._reader_of = {topic: part.id for part in parts for topic in part.source_topics}
        self._client = ClientInfo(
            client_id=config.client_id or f"{config.application_id}-{process_id}",
            process_id=str(process_id),
            application_id=config.application_id,
            version=metadata.version("tidemill"),
            topology=describe(topology),
            source_node={
                broker_topic(topology, config.application_id, topic): node.name
                for node in topology.nodes.values()
                if isinstance(node, SourceNode)
                for topic in node.topics
            },
        )

    # --- StatusSource ------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        config, threads, error = self._config, list(self._threads), self._error()
        ready, why = self.ready()
        return {
            "application": config.application_id,
            "process": str(self._process_id),
            "host": self._host or None,
            "version": self._client.version,
            "state": self._state.now.value,
            "ready": ready,
            "why": list(why),
            "error": None if error is None else str(error),
            "now_ms": _now_ms(),
            "started_ms": self._started_ms,
            "settings": {
                "guarantee": config.processing_guarantee.value,
                "standbys": config.num_standby_replicas,
                "warmups": config.max_warmup_replicas,
                "acceptable_lag": config.acceptable_recovery_lag,
                "probing_interval_ms": config.probing_rebalance_interval_ms,
                "assignor": config.task_assignor_class,
                "tags": dict(config.client_tags),
                "rack": config.client_rack,
            },
            "restoring": self.restoring(),
            "drain": self._draining.to_json(),
            "spark_ui": self._spark_ui,
            "threads": [_thread(thread) for thread in threads],
            "led": self._history.to_json(),
        }

    def restoring(self) -> dict[str, object] | None:
        threads = list(self._threads)
        active = [task for thread in threads for task in thread.tasks.values()]
        found = restoring(active, [copy for thread in threads for copy in thread.copies])
        if found is None:
            return None
        return {
            "tasks": list(map(str, found.tasks)),
            "offsets_left": found.offsets_left,
            "offsets_per_s": _number(found.offsets_per_s),
            "seconds_left": _number(found.seconds_left),
        }

    def drain(self, timeout_s: float) -> None:
        self._draining.begin(timeout_s)

    def decisions(self, task: TaskId | None) -> dict[str, object] | None:
        return self._history.decisions(task)

    def history(self) -> dict[str, object]:
        return {"rebalances": self._history.history(), "problem": self._history.problem or None}

    def topology(self) -> dict[str, object]:
        described: dict[str, object] = json.loads(to_json(self._topology))
        return {"application": self._config.application_id, **described, "text": self._client.topology}

    def assigned(self, hosts: HostMap) -> dict[str, list[str]]:
        return {
            str(host): [
                str(task) for task in sorted({TaskId(self._reader_of[tp.topic], tp.partition) for tp in partitions})
            ]
            for host, partitions in hosts.active.items()
            if all(tp.topic in self._reader_of for tp in partitions)
        }

    def metrics(self) -> Mapping[MetricName, Metric]:
        return instance_metrics(
            self._client,
            self._state.now,
            list(self._threads),
            level=RecordingLevel[self._config.metrics_recording_level],
            led=self._history.total,
        )

    def alive(self) -> tuple[bool, tuple[str, ...]]:
        state = self._state.now
        if state in _DEAD:
            error = self._error()
            return False, (f"the instance is {state.value}" + (f": {error}" if error is not None else ""),)
        return True, ()

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        is_alive, why = self.alive()
        if not is_alive:
            return False, why
        stuck = [_why_stuck(thread) for thread in list(self._threads) if thread.lost_in_a_row.is_lasting]
        if stuck:
            return False, tuple(stuck)
        if self._state.now is State.RUNNING:
            return True, ()
        waiting = [f"{_short(thread)}: {thread.why_waiting}" for thread in list(self._threads) if thread.why_waiting]
        return False, tuple(waiting) or (f"the instance is {self._state.now.value}",)


def _thread(thread: StreamThread) -> dict[str, object]:
    metrics, now_s = thread.metrics, time.monotonic()
    copies = {copy.task: copy for copy in thread.copies}
    live, tasks = metrics.live, thread.tasks
    behind = _lag_by_task(metrics)
    since_s = None if metrics.assigned_at_s is None else round(now_s - metrics.assigned_at_s, 1)
    return {
        "name": thread.name,
        "number": thread.number,
        "running": thread.is_running,
        "waiting": thread.why_waiting,
        "error": None if thread.error is None else str(thread.error),
        "active": [_active(task, copies, metrics, behind, now_s) for _, task in sorted(tasks.items())],
        "standby": [_copy(task, copies.get(task), held.lag) for task, held in sorted(thread.standbys.items())],
        "records_per_s": round(live.at("in").rate(now_s), 1),
        "produced_per_s": round(live.at("out").rate(now_s), 1),
        "restored_per_s": round(live.at("restored").rate(now_s), 1),
        "capacity_per_s": _number(metrics.capacity_per_s),
        "batch_ms": _number(live.at("batch").average(now_s)),
        "batch_max_ms": _number(live.at("batch").largest(now_s)),
        "latency_ms": _number(live.at("age").average(now_s)),
        "latency_max_ms": _number(live.at("age").largest(now_s)),
        "records": metrics.records_in,
        "produced": metrics.records_out,
        "restored": metrics.records_restored,
        "dropped": metrics.dropped,
        "skipped": metrics.skipped,
        "lost_batches": metrics.lost,
        "assignments": int(metrics.sensors.at("rebalance").total),
        "last_assignment_s": since_s,
        "memberships_lost": metrics.memberships_lost,
        "rebalances": [
            {
                "at_ms": past.at_ms,
                "generations": list(past.cost.generations),
                "joined_ms": past.cost.joined_ms,
                "paused_ms": {str(task): paused for task, paused in past.cost.paused_ms.items()},
            }
            for past in tuple(metrics.past)
        ],
    }


def _lag_by_task(metrics: ThreadMetrics) -> dict[TaskId, int]:
    """The records that a task's inputs still have for it."""
    behind: dict[TaskId, int] = {}
    for partition, lag in lags(metrics).items():
        task = metrics.task_of.get(partition)
        if task is not None:
            behind[task] = behind.get(task, 0) + lag
    return behind


def _active(
    task: ActiveTask, copies: Mapping[TaskId, CopyProgress], metrics: ThreadMetrics, behind: Mapping[TaskId, int], now_s: float
) -> dict[str, object]:
    copy = copies.get(task.task) if task.phase is not Phase.RUNNING else None
    return {
        "task": str(task.task),
        "phase": task.phase.value,
        "stateful": bool(task.changelogs),
        "records_per_s": round(metrics.live.at("process", task.task).rate(now_s), 1),
        "behind": behind.get(task.task),
        "lag": None if copy is None else copy.lag,
        "seconds_left": None if copy is None else _number(copy.seconds_left),
    }


def _copy(task: TaskId, copy: CopyProgress | None, lag: int | None) -> dict[str, object]:
    return {
        "task": str(task),
        "lag": lag if copy is None else copy.lag,
        "offsets_per_s": None if copy is None else _number(copy.offsets_per_s),
        "seconds_left": None if copy is None else _number(copy.seconds_left),
    }


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 1)


def _why_stuck(thread: StreamThread) -> str:
    lost = thread.lost_in_a_row
    return f"{_short(thread)}: the last {lost.count} batches did not count: {lost.reason}"


def _short(thread: StreamThread) -> str:
    return f"thread {thread.number}"


def _now_ms() -> int:
    return int(time.time() * 1e3)
