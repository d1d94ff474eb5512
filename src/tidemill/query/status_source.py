"""Status of an instance for its HTTP server: documents, metrics, liveness and readiness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidemill.ids import TaskId
from tidemill.metrics.names import Metric, MetricName
from tidemill.query.metadata import HostMap


class StatusSource(Protocol):
    """Thread-safe; every answer is current and without secrets."""

    def status(self) -> dict[str, object]:
        """State, threads, tasks, copies, rates, and the rebalances that it has led."""

    def decisions(self, task: TaskId | None) -> dict[str, object] | None:
        """The assignor's records of the last rebalance that this instance has led; None if it has led none."""

    def history(self) -> dict[str, object]:
        """The rebalances that it has led, over restarts; and why earlier ones could not be read."""

    def topology(self) -> dict[str, object]:
        """Sub-topologies with their nodes, as ``tidemill describe --json`` has them."""

    def assigned(self, hosts: HostMap) -> dict[str, list[str]]:
        """The active tasks that this assignment gives to each instance, by address."""

    def drain(self, timeout_s: float) -> None:
        """Begins to hand all tasks over, after which the instance closes. DrainRefusedError, RetriableError."""

    def metrics(self) -> Mapping[MetricName, Metric]: ...

    def alive(self) -> tuple[bool, tuple[str, ...]]:
        """False, with why, if only a restart helps."""

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        """False, with why, while not every task that is assigned here runs."""

    def restoring(self) -> dict[str, object] | None:
        """Offsets and seconds left of active tasks that are restored, as in ``status``; None if none is."""
