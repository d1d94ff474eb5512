"""The balanced target that is nearest to the running placement: as few tasks as possible change their client.

Decides the client of every task, with and without state, as a flow of least cost from tasks over (sub-topology, client) and
clients: each client gets its share, rounded down or up, of each sub-topology, of the tasks with state, of those without, and of
all. Among balanced targets the one wins that has the fewest, compared in this order: moves of running stateful tasks; tasks on
clients that are not caught up; tasks on clients without any of their state; moves of stateless tasks. So what is balanced stays
as it is, and a warm-up that was begun is kept.

Balanced (KIP-441): clients differ by at most one task, in all and in each sub-topology; with unequal threads each client has
its share, rounded down or up. Shares of all groups of tasks can be met at once, because the fractional shares themselves meet
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemill.assignment.balanced.cheapest_flow import CheapestFlow
from tidemill.assignment.lag import Lags
from tidemill.assignment.model import LATEST_OFFSET, ClientState
from tidemill.assignment.task_load import count_bounds
from tidemill.ids import TaskId


@dataclass(frozen=True, slots=True)
class _Costs:
    """Each worth more than all tasks at the next lower one."""

    move: int
    not_caught_up: int
    no_state: int
    stateless_move: int
    above_all: int

    @classmethod
    def of(cls, tasks: int) -> _Costs:
        base = tasks + 1
        return cls(move=base**3, not_caught_up=base**2, no_state=base, stateless_move=1, above_all=base**4)


def nearest_target(
    clients: Sequence[ClientState], tasks: Sequence[TaskId], stateful: Sequence[TaskId], lags: Lags
) -> dict[TaskId, int]:
    """The client (by position) of each task; ``stateful`` in the order of ``lags``."""
    holders = dict(_holders(clients, tasks, stateful, lags))
    capacity = [client.capacity for client in clients]
    stays = {task: seats[0] for task, (seats, _) in holders.items() if len(seats) == 1}
    has_state = set(stateful)
    if len(stays) == len(tasks) and is_balanced(stays, tasks, has_state, capacity):
        return stays
    return _Network(tasks, has_state, capacity, holders).solve()


Holders = tuple[list[int], tuple[dict[int, int], int]]
"""Clients that run the task; cost of each client that is special, and of all others."""


def _holders(
    clients: Sequence[ClientState], tasks: Sequence[TaskId], stateful: Sequence[TaskId], lags: Lags
) -> Iterator[tuple[TaskId, Holders]]:
    costs = _Costs.of(len(tasks))
    has_state = set(stateful)
    running: dict[TaskId, list[int]] = {task: [] for task in tasks if task not in has_state}
    for at, client in enumerate(clients):
        for task in client.previous_active:
            if task in running:
                running[task].append(at)
    for task, seats in running.items():
        yield task, (seats, (dict.fromkeys(seats, 0), costs.stateless_move if seats else 0))
    for at, task in enumerate(stateful):
        seats = [client for lag, client in lags.reported(at) if lag == LATEST_OFFSET]
        move = costs.move if seats else 0
        special = {
            client: 0 if lag == LATEST_OFFSET else move if lags.is_caught_up(at, client) else move + costs.not_caught_up
            for lag, client in lags.reported(at)
        }
        other = move if lags.end_is_caught_up(at) else move + costs.not_caught_up + costs.no_state
        yield task, (seats, (special, other))


class _Network:
    """Source -> tasks -> (straight, or by way of "any client") -> cells -> (kind, client) -> clients -> sink."""

    def __init__(
        self, tasks: Sequence[TaskId], stateful: set[TaskId], capacity: Sequence[int], holders: Mapping[TaskId, Holders]
    ) -> None:
        self._tasks = tasks
        self._clients = range(len(capacity))
        self._groups = sorted({(task in stateful, task.subtopology) for task in tasks})
        self._group_of = {task: self._groups.index((task in stateful, task.subtopology)) for task in tasks}
        self._kinds = sorted({kind for kind, _ in self._groups})
        self._capacity, self._threads = capacity, sum(capacity)
        self._any = 1 + len(tasks)
        self._cells = self._any + len(self._groups)
        kinds = self._cells + len(self._groups) * len(capacity)
        owners = kinds + len(self._kinds) * len(capacity)
        self._sink = owners + len(capacity)
        self._flow = CheapestFlow(self._sink + 1, above_all_costs=_Costs.of(len(tasks)).above_all)
        self._straight: list[list[tuple[int, int]]] = []
        for at, task in enumerate(tasks):
            self._add_task(at, self._group_of[task], *holders[task][1])
        sizes = [0] * len(self._groups)
        for task in tasks:
            sizes[self._group_of[task]] += 1
        self._by_any: list[list[int]] = []
        for group, (kind, _) in enumerate(self._groups):
            self._by_any.append(
                [
                    self._flow.add_edge(self._any + group, self._cell(group, client), most=sizes[group])
                    for client in self._clients
                ]
            )
            for client in self._clients:
                into = kinds + self._kinds.index(kind) * len(capacity) + client
                self._add_share(self._cell(group, client), into, sizes[group], client)
        for index, kind in enumerate(self._kinds):
            of_kind = sum(size for size, (other, _) in zip(sizes, self._groups, strict=True) if other == kind)
            for client in self._clients:
                self._add_share(kinds + index * len(capacity) + client, owners + client, of_kind, client)
        for client in self._clients:
            self._add_share(owners + client, self._sink, len(tasks), client)

    def solve(self) -> dict[TaskId, int]:
        pushed = self._flow.run()
        assert pushed == len(self._tasks), "the fractional shares are a flow, so all tasks find a place"
        free = [
            iter([client for client in self._clients for _ in range(self._flow.flow(edges[client]))])
            for edges in self._by_any
        ]
        target = {}
        for task, straight in zip(self._tasks, self._straight, strict=True):
            chosen = next((client for client, edge in straight if self._flow.flow(edge)), None)
            target[task] = next(free[self._group_of[task]]) if chosen is None else chosen
        return target

    def _cell(self, group: int, client: int) -> int:
        return self._cells + group * len(self._capacity) + client

    def _add_task(self, at: int, group: int, special: Mapping[int, int], other: int) -> None:
        self._flow.add_edge(0, 1 + at, most=1)
        self._straight.append(
            [
                (client, self._flow.add_edge(1 + at, self._cell(group, client), most=1, cost=cost))
                for client, cost in sorted(special.items())
            ]
        )
        self._flow.add_edge(1 + at, self._any + group, most=1, cost=other)

    def _add_share(self, tail: int, head: int, tasks: int, client: int) -> None:
        least, most = count_bounds(tasks, self._capacity[client], self._threads)
        self._flow.add_edge(tail, head, most=most, least=least)


def groups_of(task: TaskId, stateful: Collection[TaskId]) -> tuple[object, object, object]:
    """The groups that are balanced each: all tasks, those with (or without) state, those of the sub-topology."""
    has_state = task in stateful
    return "all", has_state, (has_state, task.subtopology)


def is_balanced(
    client_of: Mapping[TaskId, int], tasks: Iterable[TaskId], stateful: Collection[TaskId], capacity: Sequence[int]
) -> bool:
    """True if each client has its share of each group, ``client_of`` naming the client of each task."""
    totals: Counter[object] = Counter()
    held: Counter[tuple[object, int]] = Counter()
    for task in tasks:
        for group in groups_of(task, stateful):
            totals[group] += 1
            held[group, client_of[task]] += 1
    threads = sum(capacity)
    for group, total in totals.items():
        for client, of_client in enumerate(capacity):
            least, most = count_bounds(total, of_client, threads)
            if not least <= held[group, client] <= most:
                return False
    return True
