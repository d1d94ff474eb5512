"""The observers of one stream thread: its log, its metrics, its instance's listeners, and the instance itself.

Decides nothing. The parts of a thread get this one value instead of each observer by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.runtime.observe.rebalance_watch import RebalanceWatch
from tidemill.runtime.observe.restore_listeners import RestoreListeners
from tidemill.runtime.observe.restore_watch import RestoreWatch
from tidemill.runtime.observe.task_log import TaskLog
from tidemill.runtime.observe.thread_metrics import ThreadMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadObservers:
    task_log: TaskLog
    rebalance: RebalanceWatch
    metrics: ThreadMetrics
    restoring: RestoreWatch
    on_change: Callable[[], None]
    """Tells the instance that the thread's tasks or their phases have changed, or that it has ended."""

    @classmethod
    def of(
        cls, thread: str, metrics: ThreadMetrics, listeners: RestoreListeners, on_change: Callable[[], None]
    ) -> ThreadObservers:
        """The observers of the thread of this name."""
        return cls(
            task_log=TaskLog(thread),
            rebalance=RebalanceWatch(thread),
            metrics=metrics,
            restoring=RestoreWatch(thread, listeners),
            on_change=on_change,
        )

    @property
    def of_tasks(self) -> tuple[TaskLog, RebalanceWatch, ThreadMetrics, RestoreWatch]:
        """The observers of each change of the tasks, in the order in which they are called."""
        return self.task_log, self.rebalance, self.metrics, self.restoring
