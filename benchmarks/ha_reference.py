"""The high-availability assignor written as it is described, without any thought of speed: the benchmark's yardstick.

Decides nothing that the real one does not; it scans every client for every task, keeps every lag of every client, and
shares no rule with ``tidemill.assignment`` (only its values, Java's queue and Java's hash order), so that a slip in one
of the two shows as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidemill.assignment.model import LONG_MAX, ApplicationState
from tidemill.ids import ProcessId, TaskId
from tidemill.java_collections.hash_table import HashTable, task_hash
from tidemill.java_collections.priority_queue import JavaPriorityQueue

Held = dict[ProcessId, set[TaskId]]


class SlowAssignor:
    """One assignment: ``run`` returns {client: (active, standby)} and whether a probing rebalance is wanted."""

    def __init__(self, state: ApplicationState, *, version: str = "4.3") -> None:
        self.is_2_7 = version == "2.7"
        self.config = state.config
        self.clients = {client.process_id: client for client in sorted(state.clients, key=lambda one: one.process_id)}
        self.stateful = sorted(state.stateful_tasks)
        self.stateless = sorted(set(state.tasks) - state.stateful_tasks)
        self.active: dict[ProcessId, set[TaskId]] = {client: set() for client in self.clients}
        self.standby: dict[ProcessId, set[TaskId]] = {client: set() for client in self.clients}
        self.lag = {
            (task, client): of_client.lags.get(task, state.end_offset_sums[task])
            for task in self.stateful
            for client, of_client in self.clients.items()
        }
        acceptable = self.config.acceptable_recovery_lag
        self.caught_up = {
            task: [
                client
                for client in self.clients
                if acceptable == LONG_MAX or self.lag[task, client] == -2 or 0 <= self.lag[task, client] <= acceptable
            ]
            for task in self.stateful
        }
        self.by_lag = {
            task: sorted(self.clients, key=lambda client: (self.lag[task, client], client)) for task in self.stateful
        }
        self.warmups_left = self.config.max_warmup_replicas

    def run(self) -> tuple[dict[ProcessId, tuple[set[TaskId], set[TaskId]]], bool]:
        for turn, task in enumerate(self.stateful):
            self.active[list(self.clients)[turn % len(self.clients)]].add(task)
        self.balance(self.active, lambda _source, _destination: True)
        if self.config.num_standby_replicas:
            self.place_standbys()
        moves = self.move_actives() + self.move_standbys()
        for task in self.stateless:
            least = min(self.clients, key=lambda client: (len(self.active[client]) / self.clients[client].capacity, client))
            self.active[least].add(task)
        return {client: (self.active[client], self.standby[client]) for client in self.clients}, moves > 0

    def count(self, client: ProcessId) -> int:
        return len(self.active[client]) + len(self.standby[client])

    def load(self, client: ProcessId) -> float:
        return self.count(client) / self.clients[client].capacity

    def has(self, client: ProcessId, task: TaskId) -> bool:
        return task in self.active[client] or task in self.standby[client]

    def least_loaded(self, candidates: Iterable[ProcessId]) -> ProcessId | None:
        return min(candidates, key=lambda client: (self.load(client), client), default=None)

    def should_move(self, source: ProcessId, destination: ProcessId) -> bool:
        skew = self.load(source) - self.load(destination)
        proposed = (self.count(source) - 1) / self.clients[source].capacity - (
            self.count(destination) + 1
        ) / self.clients[destination].capacity
        return skew > 0 and 0 <= proposed < skew

    def balance(self, kind: Held, is_allowed: Callable[[ProcessId, ProcessId], bool]) -> None:
        moved = True
        while moved:
            moved = False
            for source in self.clients:
                for destination in self.clients:
                    if source == destination:
                        continue
                    for task in sorted(kind[source]):
                        if not self.should_move(source, destination):
                            break
                        if not self.has(destination, task) and is_allowed(source, destination):
                            kind[source].remove(task)
                            kind[destination].add(task)
                            moved = True

    def place_standbys(self) -> None:
        if not self.config.rack_aware_assignment_tags or self.is_2_7:
            for task in self.stateful:
                self.place_by_load(task, self.config.num_standby_replicas)
            self.balance(self.standby, lambda _source, _destination: True)
            return
        pending = HashTable(task_hash, self.stateful)
        missing = {}
        for task in self.stateful:
            missing[task] = self.config.num_standby_replicas - self.spread(task)
            if not missing[task]:
                pending.remove(task)
        for task in pending:
            self.place_by_load(task, missing[task])

        def may(source: ProcessId, destination: ProcessId) -> bool:
            return self.clients[source].tags.items() <= self.clients[destination].tags.items()

        self.balance(self.standby, may)

    def place_by_load(self, task: TaskId, copies: int) -> None:
        for _ in range(copies):
            client = self.least_loaded([client for client in self.clients if not self.has(client, task)])
            if client is not None:
                self.standby[client].add(task)

    def spread(self, task: TaskId) -> int:
        excluded: set[tuple[str, str]] = set()
        last = next(client for client in self.clients if task in self.active[client])
        for placed in range(self.config.num_standby_replicas):
            for key, value in self.clients[last].tags.items():
                if key not in self.config.rack_aware_assignment_tags:
                    continue
                values = {client.tags[key] for client in self.clients.values() if key in client.tags}
                if len(values) <= placed + 1:
                    excluded = {entry for entry in excluded if entry[0] != key}
                else:
                    excluded.add((key, value))
            chosen = self.least_loaded(
                client
                for client in self.clients
                if not self.has(client, task) and not excluded & set(self.clients[client].tags.items())
            )
            if chosen is None:
                return placed
            self.standby[chosen].add(task)
            last = chosen
        return self.config.num_standby_replicas

    def is_wanted(self, task: TaskId, client: ProcessId) -> bool:
        if client in self.caught_up[task]:
            return False
        if self.is_2_7:
            return bool(self.caught_up[task])
        return self.lag[task, self.by_lag[task][0]] < self.lag[task, client]

    def queue(self, kind: Held, skipped: set[tuple[TaskId, ProcessId]]) -> list[tuple[TaskId, ProcessId]]:
        queue: JavaPriorityQueue[tuple[TaskId, ProcessId]] = JavaPriorityQueue()
        for client in self.clients:
            for task in sorted(kind[client]):
                if (task, client) not in skipped and self.is_wanted(task, client):
                    queue.add((len(self.caught_up[task]), task), (task, client))
        return list(queue) if self.is_2_7 else list(queue.drain())

    def move_actives(self) -> int:
        self.warmups: set[tuple[TaskId, ProcessId]] = set()
        queue = self.queue(self.active, set())
        for task, target in queue:
            keeper = self.least_loaded([client for client in self.caught_up[task] if task in self.standby[client]])
            if keeper is None:
                keeper = self.least_loaded(self.caught_up[task])
            if keeper is None:
                keeper = self.by_lag[task][0]
            self.active[target].remove(task)
            if task in self.standby[keeper]:
                self.standby[keeper].remove(task)
                self.standby[target].add(task)
            elif self.warmups_left > 0:
                self.warmups_left -= 1
                self.standby[target].add(task)
                self.warmups.add((task, target))
            self.active[keeper].add(task)
        return len(queue)

    def move_standbys(self) -> int:
        moved = 0
        for task, target in self.queue(self.standby, self.warmups):
            keeper = self.least_loaded([client for client in self.caught_up[task] if not self.has(client, task)])
            if keeper is None and not self.is_2_7:
                better = self.by_lag[task][: self.by_lag[task].index(target)]
                keeper = next((client for client in better if not self.has(client, task)), None)
            if keeper is None:
                continue
            self.standby[keeper].add(task)
            if self.warmups_left > 0:
                self.warmups_left -= 1
            else:
                self.standby[target].remove(task)
            moved += 1
        return moved
