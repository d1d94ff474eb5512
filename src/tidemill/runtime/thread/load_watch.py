"""Load of a stream thread's tasks: its measurement, and its part in subscriptions.

Decides only where the figures come from: the ends of the inputs from the last batches, sizes from the task directories of this
machine (those on executors are not seen, so state has no weight there). What counts, and when it is worth a rebalance, is
``task.measured_loads``'s. ``measure`` is called by the stream thread, ``joins`` by the member's, ``loads`` by any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from tidemill.assignment.choice import reads_weights
from tidemill.assignment.task_load import TaskLoad
from tidemill.config.slices import ThreadConfig
from tidemill.ids import TaskId
from tidemill.runtime.observe.thread_metrics import ThreadMetrics
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.state.directory import DATA_FILE, StateDirectory
from tidemill.task.measured_loads import MEASURE_INTERVAL_S, MeasuredLoads

_BLOCK = 512
"""Bytes of a block in ``st_blocks``, which counts the disk space of a sparse file."""


class LoadWatch:
    """Measures nothing if it is switched off, or with an assignor of Kafka's, which have no weights."""

    def __init__(
        self, config: ThreadConfig, registry: TaskRegistry, metrics: ThreadMetrics, directory: StateDirectory,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_on = config.task_weights and reads_weights(config.task_assignor_class)
        self._interval_s = config.probing_rebalance_interval_ms / 1e3
        self._registry, self._metrics, self._directory, self._now_s = registry, metrics, directory, now_s
        self._loads = MeasuredLoads(interval_s=min(MEASURE_INTERVAL_S, self._interval_s))  # a test's interval may be shorter
        self._lock = threading.Lock()

    def measure(self) -> bool:
        """Measures at its interval; True if the load has changed so much that a rebalance is due."""
        now_s = self._now_s()
        if not (self._is_on and self._loads.is_due(now_s)):
            return False
        tasks = self._registry.now
        running = sorted(tasks.running)
        inputs = {task: tuple(tasks.active[task].inputs) for task in running}
        sizes = {task: self._size(task) for task in running}
        assigned_s = self._metrics.assigned_at_s
        with self._lock:
            self._loads = self._loads.measure(now_s, inputs, dict(self._metrics.high_watermarks), sizes)
            is_time = assigned_s is not None and now_s - assigned_s >= self._interval_s and not tasks.member.is_joining
            return is_time and self._loads.is_worth_a_rebalance(running)

    def joins(self) -> Mapping[TaskId, TaskLoad]:
        """The loads that a join reports."""
        with self._lock:
            self._loads = self._loads.joins(self._registry.now.running)
        return self.loads()

    def loads(self) -> Mapping[TaskId, TaskLoad]:
        """Loads measured so far, of tasks that run here or ran here recently."""
        with self._lock:
            return self._loads.loads(self._now_s())

    def _size(self, task: TaskId) -> int:
        try:
            return (self._directory.task_path(task) / DATA_FILE).stat().st_blocks * _BLOCK
        except OSError:
            return 0
