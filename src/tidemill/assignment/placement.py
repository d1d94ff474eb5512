"""The working state of one assignment: which client holds which stateful task, by position, with running counts.

Decides nothing; it keeps the counts and the holders consistent while phases place and move tasks. Positions are those
of the sorted clients and sorted stateful tasks, so that a lower number is an earlier id. It lives inside one call of
an assignor and never leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.assignment.model import ApplicationState, ClientState
from tidemill.errors import AssignmentError
from tidemill.ids import TaskId

NOWHERE = -1


def require_threads(clients: Sequence[ClientState]) -> None:
    """AssignmentError if there is no client, or one without a thread."""
    if not clients:
        raise AssignmentError("no clients: an assignment needs at least one client")
    for client in clients:
        if client.capacity < 1:
            raise AssignmentError(
                f"client {client.process_id} has {client.capacity} consumers; every client of a group has at least one"
            )


class TaskPlacement:
    __slots__ = ("active", "active_count", "capacity", "clients", "count", "standbys", "tasks")

    def __init__(self, clients: Sequence[ClientState], tasks: Sequence[TaskId]) -> None:
        self.clients = clients
        self.tasks = tasks
        self.capacity = [client.capacity for client in clients]
        self.active = [NOWHERE] * len(tasks)
        """The client of each task's active copy."""
        self.standbys: list[list[int]] = [[] for _ in tasks]
        """The clients of each task's standby copies, in the order of placing."""
        self.count = [0] * len(clients)
        """Active and standby copies on each client."""
        self.active_count = [0] * len(clients)

    @classmethod
    def of(cls, state: ApplicationState) -> TaskPlacement:
        """Nothing placed yet; refuses a group that can't hold anything."""
        require_threads(state.clients)
        clients = sorted(state.clients, key=lambda client: client.process_id)
        return cls(clients, sorted(state.stateful_tasks))

    def holds(self, task: int, client: int) -> bool:
        return self.active[task] == client or client in self.standbys[task]

    def load(self, client: int) -> float:
        """Copies per stream thread."""
        return self.count[client] / self.capacity[client]

    def set_active(self, task: int, client: int) -> None:
        """Place the active copy, or move it from where it is."""
        before = self.active[task]
        if before != NOWHERE:
            self.count[before] -= 1
            self.active_count[before] -= 1
        self.active[task] = client
        self.count[client] += 1
        self.active_count[client] += 1

    def set_active_round_robin(self) -> None:
        """Places the active copies over the clients in turn; the placement must be empty."""
        clients, tasks = len(self.clients), len(self.tasks)
        self.active = [task % clients for task in range(tasks)]
        self.active_count = [tasks // clients + (client < tasks % clients) for client in range(clients)]
        self.count = self.active_count.copy()

    def add_standby(self, task: int, client: int) -> None:
        self.standbys[task].append(client)
        self.count[client] += 1

    def drop_standby(self, task: int, client: int) -> None:
        self.standbys[task].remove(client)
        self.count[client] -= 1

    def swap_active_and_standby(self, task: int, standby: int) -> None:
        """The standby copy on ``standby`` becomes the active one, the active one a standby copy."""
        before = self.active[task]
        self.drop_standby(task, standby)
        self.set_active(task, standby)
        self.add_standby(task, before)

    def active_tasks(self) -> list[list[int]]:
        """The active tasks of each client, in task order."""
        tasks: list[list[int]] = [[] for _ in self.clients]
        for task, client in enumerate(self.active):
            if client != NOWHERE:
                tasks[client].append(task)
        return tasks

    def standby_tasks(self) -> list[list[int]]:
        """The standby tasks of each client, in task order."""
        tasks: list[list[int]] = [[] for _ in self.clients]
        for task, clients in enumerate(self.standbys):
            for client in clients:
                tasks[client].append(task)
        return tasks
