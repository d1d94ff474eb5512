"""The order in which an assignor's inputs iterate: that of Kafka's hash maps and sets, or sorted.

Decides both; assignors whose ties depend on it take it as a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.assignment.model import ApplicationState
from tidemill.ids import ProcessId, TaskId
from tidemill.java_collections.hash_table import hash_order, process_hash, task_hash

TaskHash = Callable[[TaskId], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationOrder:
    """The iteration order of the map of clients, the set of all tasks and the set of stateful tasks."""

    clients: tuple[ProcessId, ...]
    tasks: tuple[TaskId, ...]
    stateful_tasks: tuple[TaskId, ...]


def hash_iteration(state: ApplicationState, hash_of_task: TaskHash = task_hash) -> IterationOrder:
    """Order of Kafka's HashMap and HashSets: clients inserted in the order of ``state``, tasks in the order of their ids."""
    return IterationOrder(
        clients=tuple(hash_order((client.process_id for client in state.clients), process_hash)),
        tasks=tuple(hash_order(state.tasks, hash_of_task)),
        stateful_tasks=tuple(hash_order(sorted(state.stateful_tasks), hash_of_task)),
    )


def sorted_iteration(state: ApplicationState) -> IterationOrder:
    """Order of sorted maps and sets."""
    return IterationOrder(
        clients=tuple(sorted(client.process_id for client in state.clients)),
        tasks=tuple(sorted(state.tasks)),
        stateful_tasks=tuple(sorted(state.stateful_tasks)),
    )
