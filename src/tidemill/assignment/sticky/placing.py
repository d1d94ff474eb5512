"""The rules of "balanced stickiness": a task goes back to who had it, as long as that one has room, else to the least loaded.

Decides one task at a time, in the order of Java's hash containers, which is also the tie rule everywhere. Ignores lags.
``assignor`` decides the order of the steps and what the result is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidemill.assignment.iteration_order import IterationOrder, TaskHash
from tidemill.assignment.model import ApplicationState, ClientState, CopyRole, Decision
from tidemill.assignment.placement import require_threads
from tidemill.ids import ProcessId, TaskId
from tidemill.java_collections.hash_table import HashTable, process_hash

FullnessOf = Callable[[int, int], tuple[float, int]]
"""(tasks, threads) of a client -> its place among clients; less = more room."""

_REASONS = {
    "kept": "{task} stays on {client}, which ran it before and has room: fewer actives than its threads' share.",
    "preserved": "{task} stays on {client}, which ran it before, whatever its load.",
    "previous standby": "{task} goes to {client}, which held its state before and has room for actives.",
    "previous owner": "{task} goes to {client}, which had it before and is not overfull.",
    "previous standby with room": "{task} goes to {client}: its previous owner is overfull, this one held its state.",
    "least loaded": "{task} goes to {client}: no previous owner has room, and this is the least loaded client, those "
    "being preferred that would see a new pair of tasks together.",
    "rack-aware swap": "{task} was swapped to {client}: less traffic across racks, or less movement.",
}


def fullness(tasks: int, threads: int) -> tuple[float, int]:
    """Sort key by load; of equal loads the client with more threads has more room."""
    return tasks / threads, -threads


def fullness_by_load(tasks: int, threads: int) -> tuple[float, int]:
    """Sort key by load only."""
    return tasks / threads, 0


class StickyPlacing:
    """Placements so far. Lives inside one ``assign``."""

    def __init__(
        self, state: ApplicationState, order: IterationOrder, *, task_hash: TaskHash, fullness_of: FullnessOf
    ) -> None:
        require_threads(state.clients)
        self._state, self._order = state, order
        self._fullness_of = fullness_of
        self._clients: dict[ProcessId, ClientState] = {client.process_id: client for client in state.clients}
        self.active: dict[ProcessId, set[TaskId]] = {client: set() for client in order.clients}
        self.standby: dict[ProcessId, set[TaskId]] = {client: set() for client in order.clients}
        self._fullness = {client: fullness_of(0, self._threads(client)) for client in order.clients}
        self._seen_with: dict[TaskId, set[TaskId]] = {}
        self._log: list[tuple[TaskId, CopyRole, str, ProcessId]] = []
        self._tasks_per_thread = len(state.tasks) // sum(client.capacity for client in state.clients)
        self._previous_active: dict[TaskId, ProcessId] = {}
        self._previous_active_order = HashTable(task_hash)
        self._previous_standby: dict[TaskId, HashTable[ProcessId]] = {}
        self._note_previous_owners()

    def keep_active(self, *, regardless_of_room: bool) -> list[TaskId]:
        """Each task that someone ran before goes there again (if there is room); these tasks, in the order of deciding."""
        known = set(self._state.tasks)
        kept = []
        for task in self._previous_active_order:
            owner = self._previous_active[task]
            if task in known and (regardless_of_room or self._is_below_quota(owner)):
                self._place(task, CopyRole.ACTIVE, owner, "preserved" if regardless_of_room else "kept")
                kept.append(task)
        return kept

    def place_on_previous_standbys(self, unassigned: HashTable[TaskId]) -> list[TaskId]:
        """Each task that someone held as a standby and has room for goes there; the tasks that are left, sorted."""
        left = []
        for task in unassigned:
            owner = next((c for c in self._previous_standby.get(task, ()) if self._is_below_quota(c)), None)
            if owner is None:
                left.append(task)
            else:
                self._place(task, CopyRole.ACTIVE, owner, "previous standby")
        return sorted(left)

    def place_active(self, tasks: Iterable[TaskId], candidates: Sequence[ProcessId]) -> None:
        """The rest, one by one, to the best of the candidates."""
        for task in tasks:
            client, rule = self._best(task, candidates)
            self._place(task, CopyRole.ACTIVE, client, rule)

    def place_standbys(self) -> None:
        """Places as many standbys as configured for each stateful task, while there are clients without a copy."""
        for task in self._order.stateful_tasks:
            for _ in range(self._state.config.num_standby_replicas):
                without = HashTable(process_hash, (c for c in self._order.clients if not self._has(c, task)))
                if not without:
                    break
                client, rule = self._best(task, list(without))
                self._place(task, CopyRole.STANDBY, client, rule)

    def replace_active(self, active: dict[ProcessId, set[TaskId]]) -> None:
        """Take over actives that were swapped between clients; every client has as many as before."""
        self._note_swaps(CopyRole.ACTIVE, self.active, active)
        self.active = active

    def replace_standby(self, standby: dict[ProcessId, set[TaskId]]) -> None:
        """Take over standbys that were swapped between clients."""
        self._note_swaps(CopyRole.STANDBY, self.standby, standby)
        self.standby = standby

    def explain(self) -> tuple[Decision, ...]:
        """One record a decision, in the order of deciding; candidates are the previous owners by (lag, id)."""
        return tuple(self._decision(*entry) for entry in self._log)

    def _note_previous_owners(self) -> None:
        for client in self._order.clients:
            for task in sorted(self._clients[client].previous_active):
                self._previous_active[task] = client
                self._previous_active_order.add(task)
            for task in sorted(self._clients[client].previous_standby):
                self._previous_standby.setdefault(task, HashTable(process_hash)).add(client)

    def _note_swaps(
        self, role: CopyRole, before: dict[ProcessId, set[TaskId]], after: dict[ProcessId, set[TaskId]]
    ) -> None:
        for client in self._order.clients:
            self._log += ((task, role, "rack-aware swap", client) for task in sorted(after[client] - before[client]))

    def _threads(self, client: ProcessId) -> int:
        return self._clients[client].capacity

    def _has(self, client: ProcessId, task: TaskId) -> bool:
        return task in self.active[client] or task in self.standby[client]

    def _count(self, client: ProcessId) -> int:
        return len(self.active[client]) + len(self.standby[client])

    def _is_below_quota(self, client: ProcessId) -> bool:
        return len(self.active[client]) < self._threads(client) * self._tasks_per_thread

    def _place(self, task: TaskId, role: CopyRole, client: ProcessId, rule: str) -> None:
        partners = self._seen_with.setdefault(task, set())
        for other in (*self.active[client], *self.standby[client]):
            partners.add(other)
            self._seen_with[other].add(task)
        (self.active if role is CopyRole.ACTIVE else self.standby)[client].add(task)
        self._fullness[client] = self._fullness_of(self._count(client), self._threads(client))
        self._log.append((task, role, rule, client))

    def _best(self, task: TaskId, candidates: Sequence[ProcessId]) -> tuple[ProcessId, str]:
        owner = self._previous_active.get(task)
        if owner is None or owner not in candidates:
            owner = self._least_loaded_previous_standby(task, candidates)
        if owner is not None:
            if not self._is_overfull(owner):
                return owner, "previous owner"
            standby = self._least_loaded_previous_standby(task, candidates)
            if standby is not None and not self._is_overfull(standby):
                return standby, "previous standby with room"
        least = self._least_loaded(task, candidates)
        assert least is not None
        return least, "least loaded"

    def _is_overfull(self, client: ProcessId) -> bool:
        """True if it has a task for each of its threads, and another client has more room."""
        if self._count(client) < self._threads(client):
            return False
        return any(fullness < self._fullness[client] for fullness in self._fullness.values())

    def _least_loaded_previous_standby(self, task: TaskId, candidates: Sequence[ProcessId]) -> ProcessId | None:
        holders = self._previous_standby.get(task)
        if holders is None:
            return None
        among = set(candidates)
        copied = HashTable.copy_of(process_hash, list(holders))
        return self._least_loaded(task, [client for client in copied if client in among])

    def _least_loaded(self, task: TaskId, candidates: Sequence[ProcessId]) -> ProcessId | None:
        """First an idle one, then one for which the task makes a new pair, then any; the first of equals."""
        idle = next((client for client in candidates if self._count(client) == 0), None)
        if idle is not None:
            return idle
        fresh = [client for client in candidates if self._makes_new_pair(task, client)]
        return min(fresh or candidates, key=self._fullness.__getitem__, default=None)

    def _makes_new_pair(self, task: TaskId, client: ProcessId) -> bool:
        partners = self._seen_with.get(task, set())
        return not (self.active[client] <= partners and self.standby[client] <= partners)

    def _decision(self, task: TaskId, role: CopyRole, rule: str, chosen: ProcessId) -> Decision:
        end = self._state.end_offset_sums.get(task, 0)
        owners = sorted(
            (client.lags.get(task, end), client.process_id)
            for client in self._state.clients
            if task in client.previous_active or task in client.previous_standby
        )
        return Decision(
            task=task,
            role=role,
            rule=rule,
            candidates=tuple((client, lag, rank) for rank, (lag, client) in enumerate(owners)),
            chosen=chosen,
            target=chosen,
            rebalances_to_go=None,
            reason=_REASONS[rule].format(task=task, client=chosen),
            source="StickyTaskAssignor",
        )
