"""Rack-aware strategies: swap tasks between clients so that less is read across racks, as RackAwareTaskAssignor does.

Decides costs (partitions without a replica in the client's rack, tasks that leave their client), the flow network of
each strategy, and which tasks change place. Every client keeps its number of tasks; with ``balance_subtopology`` also,
as far as rounding allows, its share of each sub-topology. The assignors have placed the tasks before;
``graph`` finds a cheapest flow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from tidemill.assignment.model import ApplicationState, AssignmentConfig, RackStrategy, TaskInfo
from tidemill.assignment.rack.graph import FlowGraph
from tidemill.errors import AssignmentError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.java_collections.hash_table import int32

STANDBY_ROUNDS = 4
"""Passes over all pairs of clients for standby tasks, at most."""

Placement = dict[ProcessId, set[TaskId]]
PartitionsOf = Callable[[TaskInfo], Sequence[TopicPartition]]
MayMove = Callable[[ProcessId, ProcessId, TaskId, Callable[[ProcessId, TaskId], bool]], bool]
"""(from, to, standby task, has the client the task now?) -> may it move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RackCosts:
    """Costs of each partition read across racks, and of each task that leaves its target client."""

    traffic: int
    non_overlap: int


STATELESS_COSTS = RackCosts(traffic=1, non_overlap=0)


def configured_costs(config: AssignmentConfig, *, default: RackCosts) -> RackCosts:
    """The configured costs, each with the assignor's own default."""
    traffic, non_overlap = config.rack_aware_assignment_traffic_cost, config.rack_aware_assignment_non_overlap_cost
    return RackCosts(
        traffic=default.traffic if traffic is None else traffic,
        non_overlap=default.non_overlap if non_overlap is None else non_overlap,
    )


def source_partitions(task: TaskInfo) -> Sequence[TopicPartition]:
    return task.source_partitions


def changelog_partitions(task: TaskInfo) -> Sequence[TopicPartition]:
    return task.changelog_partitions


def is_applicable(state: ApplicationState) -> bool:
    """True if a strategy is set and all racks that it needs are known (those of changelogs only with standbys)."""
    if state.config.rack_aware_assignment_strategy is RackStrategy.NONE or not has_racks(state, source_partitions):
        return False
    return state.config.num_standby_replicas == 0 or has_racks(state, changelog_partitions)


def has_racks(state: ApplicationState, partitions_of: PartitionsOf) -> bool:
    """True if every client and every such partition has a rack; one without switches the strategies off for all."""
    return all(client.rack is not None for client in state.clients) and all(
        state.partition_racks.get(partition) for info in state.task_info.values() for partition in partitions_of(info)
    )


def optimize_active(
    state: ApplicationState,
    active: Mapping[ProcessId, Set[TaskId]],
    tasks: Iterable[TaskId],
    costs: RackCosts,
    *,
    clients: Sequence[ProcessId] | None = None,
    partitions_of: PartitionsOf = source_partitions,
) -> Placement:
    """Swap these active tasks (each on one client); other tasks stay. ``is_applicable`` must hold.

    ``clients`` decides between equally cheap answers: Kafka takes process ids in order, its KIP-924 form in hash order.
    """
    placement = {client: set(held) for client, held in active.items()}
    swapped = sorted(tasks)
    if swapped:
        order = sorted(placement) if clients is None else clients
        costing = _Costing(state, costs, partitions_of)
        _swap(placement, swapped, order, costing, state.config.rack_aware_assignment_strategy)
    return placement


def optimize_standby(
    state: ApplicationState,
    active: Mapping[ProcessId, Set[TaskId]],
    standby: Mapping[ProcessId, Set[TaskId]],
    costs: RackCosts,
    *,
    may_move: MayMove = lambda _from, _to, _task, _has: True,
    clients: Sequence[ProcessId] | None = None,
    strategy: RackStrategy = RackStrategy.MIN_TRAFFIC,
) -> Placement:
    """Swap standby tasks between pairs of clients of different racks, round by round until nothing moves.

    Whatever the configured strategy, Kafka swaps by ``min_traffic`` here (only its KIP-924 form keeps to the strategy).
    """
    placement = {client: set(held) for client, held in standby.items()}
    order = sorted(placement) if clients is None else clients
    costing = _Costing(state, costs, changelog_partitions)

    def has(client: ProcessId, task: TaskId) -> bool:
        return task in placement[client] or task in active[client]

    def movable(source: ProcessId, target: ProcessId) -> list[TaskId]:
        return [
            task for task in placement[source] if not has(target, task) and may_move(source, target, task, has)
        ]

    for _ in range(STANDBY_ROUNDS):
        moved = False
        for at, one in enumerate(order):
            for other in order[at + 1 :]:
                if costing.racks[one] == costing.racks[other]:
                    continue
                here, there = movable(one, other), movable(other, one)
                if here and there:
                    moved |= _swap(placement, sorted(here + there), sorted((one, other)), costing, strategy)
        if not moved:
            break
    return placement


class _Costing:
    """Cost of having a task on a client."""

    def __init__(self, state: ApplicationState, costs: RackCosts, partitions_of: PartitionsOf) -> None:
        self.racks = {client.process_id: client.rack or "" for client in state.clients}
        self._state, self._costs, self._partitions_of = state, costs, partitions_of
        self._traffic: dict[tuple[TaskId, str], int] = {}

    def cost(self, task: TaskId, client: ProcessId, *, is_there: bool) -> int:
        rack = self.racks[client]
        traffic = self._traffic.get((task, rack))
        if traffic is None:
            traffic = self._traffic[task, rack] = self._costs.traffic * self._across(task, rack)
        return int32(traffic if is_there else traffic + self._costs.non_overlap)

    def _across(self, task: TaskId, rack: str) -> int:
        info = self._state.task_info.get(task)
        partitions = () if info is None else self._partitions_of(info)
        if not partitions:
            raise AssignmentError(
                f"task {task} has no partitions whose racks could be compared; rack-aware assignment needs the source "
                "partitions of every task and the changelog partitions of every task with standbys"
            )
        return sum(rack not in self._state.partition_racks[partition] for partition in partitions)


def _swap(
    placement: Placement, tasks: list[TaskId], clients: Sequence[ProcessId], costing: _Costing, strategy: RackStrategy
) -> bool:
    """Reassign ``tasks`` (sorted, each on one of ``clients``) at least cost; whether any has moved."""
    owner: dict[TaskId, ProcessId] = {}
    for client in clients:
        for task in tasks:
            if task in placement[client]:
                owner[task] = client
    if strategy is RackStrategy.BALANCE_SUBTOPOLOGY:
        graph, first_client_node = _balance_subtopology_graph(tasks, clients, owner, costing)
    else:
        graph, first_client_node = _min_traffic_graph(tasks, clients, owner, costing)
    graph.minimize_cost()
    moved = False
    for at, task in enumerate(tasks):
        (node,) = graph.heads_with_flow(at + 1)
        client = clients[(node - first_client_node) % len(clients)]
        if client != owner[task]:
            placement[owner[task]].remove(task)
            placement[client].add(task)
            moved = True
    return moved


def _min_traffic_graph(
    tasks: Sequence[TaskId],
    clients: Sequence[ProcessId],
    owner: Mapping[TaskId, ProcessId],
    costing: _Costing,
) -> tuple[FlowGraph, int]:
    """Source -> tasks -> clients -> sink, each client with room for what it has; the flow is the present placement."""
    first_client = 1 + len(tasks)
    sink = first_client + len(clients)
    graph = FlowGraph(sink + 1)
    for at, task in enumerate(tasks):
        graph.add_edge(0, at + 1, capacity=1, flow=1)
        for index, client in enumerate(clients):
            is_there = owner[task] == client
            cost = costing.cost(task, client, is_there=is_there)
            graph.add_edge(at + 1, first_client + index, capacity=1, cost=cost, flow=int(is_there))
    for index, client in enumerate(clients):
        held = sum(owner[task] == client for task in tasks)
        graph.add_edge(first_client + index, sink, capacity=held, flow=held)
    return graph, first_client


def _balance_subtopology_graph(
    tasks: Sequence[TaskId],
    clients: Sequence[ProcessId],
    owner: Mapping[TaskId, ProcessId],
    costing: _Costing,
) -> tuple[FlowGraph, int]:
    """The graph of ``min_traffic``, with a node per sub-topology and client before each client, which limits its share there.

    The flow starts from nothing: a maximum flow first, and the costs only then.
    """
    groups: dict[int, list[int]] = {}
    for at, task in enumerate(tasks):
        groups.setdefault(task.subtopology, []).append(at)
    held = {client: sum(owner[task] == client for task in tasks) for client in clients}
    first_share = 1 + len(tasks)
    first_client = first_share + len(clients) * len(groups)
    sink = first_client + len(clients)
    graph = FlowGraph(sink + 1)
    for group, members in enumerate(groups.values()):
        for index, client in enumerate(clients):
            share = first_share + group * len(clients) + index
            for at in members:
                cost = costing.cost(tasks[at], client, is_there=owner[tasks[at]] == client)
                graph.add_edge(at + 1, share, capacity=1, cost=cost)
            capacity = math.ceil(held[client] / len(tasks) * len(members))
            graph.add_edge(share, first_client + index, capacity=capacity)
    for at in range(len(tasks)):
        graph.add_edge(0, at + 1, capacity=1)
    for index, client in enumerate(clients):
        graph.add_edge(first_client + index, sink, capacity=held[client])
    graph.maximize_flow(0, sink)
    return graph, first_share
