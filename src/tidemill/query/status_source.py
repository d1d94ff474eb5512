"""What the HTTP side needs of an instance to show it: documents, metrics, and whether it is alive and ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tidemill.ids import TaskId
from tidemill.metrics.names import Metric, MetricName
from tidemill.query.metadata import HostMap


class StatusSource(Protocol):
    """May be asked from any thread; every answer is of the moment, and free of secrets."""

    def status(self) -> dict[str, Any]:
        """State, threads, tasks, copies, rates, and the rebalances that it has led."""

    def decisions(self, task: TaskId | None) -> dict[str, Any] | None:
        """The assignor's records of the last rebalance that this instance has led; None if it has led none."""

    def topology(self) -> dict[str, Any]:
        """Sub-topologies with their nodes, as ``tidemill describe --json`` has them."""

    def assigned(self, hosts: HostMap) -> dict[str, list[str]]:
        """The active tasks that each instance is to have by this assignment, by address."""

    def metrics(self) -> Mapping[MetricName, Metric]: ...

    def alive(self) -> tuple[bool, tuple[str, ...]]:
        """False, with why, if only a restart helps."""

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        """False, with why, while not every task that is assigned here runs."""
