"""HighAvailabilityTaskAssignor: KIP-441 as Kafka implements it, in the form of 4.3 and in that of 2.7.

Decides the order of the phases and the target: stateful tasks in order, round robin over the clients in order, whatever was
before, then balanced over threads; each stateless task to the client with the fewest actives per thread. What moves there when
is decided in ``movements``, standbys in ``standby`` and ``tags``, racks in ``rack.aware``. Invariant: the same state gives the
same answer, whatever the order of its clients and tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum

from tidemill.assignment.explain.decisions import Decisions
from tidemill.assignment.explain.rules import Rule
from tidemill.assignment.explain.trace import ActiveStages, StandbyStages, Trace
from tidemill.assignment.kip441.balancing import balance_actives, balance_standbys
from tidemill.assignment.kip441.movements import (
    FEWEST_CAUGHT_UP_FIRST,
    HEAP_ARRAY_ORDER,
    Kept,
    Movement,
    MovementForm,
    move_actives,
    move_standbys,
)
from tidemill.assignment.kip441.standby import Shortfall, StandbyPlacing
from tidemill.assignment.kip441.tags import standby_placing
from tidemill.assignment.lag import Lags
from tidemill.assignment.model import ApplicationState, Assignment, AssignmentConfig, ClientAssignment, RackStrategy
from tidemill.assignment.placement import TaskPlacement
from tidemill.assignment.rack import aware as rack
from tidemill.ids import ProcessId, TaskId

DEFAULT_COSTS = rack.RackCosts(traffic=10, non_overlap=1)


class Compatibility(Enum):
    """The version of Kafka whose answers are given: 4.3 (like all since 3.3), or 2.7."""

    KAFKA_4_3 = "4.3"
    KAFKA_2_7 = "2.7"


_FORMS = {Compatibility.KAFKA_4_3: FEWEST_CAUGHT_UP_FIRST, Compatibility.KAFKA_2_7: HEAP_ARRAY_ORDER}


@dataclass(frozen=True, slots=True, kw_only=True)
class HighAvailabilityTaskAssignor:
    """Kafka's default assignor; ``compatibility`` may be given as the text "4.3" or "2.7"."""

    compatibility: Compatibility | str = Compatibility.KAFKA_4_3

    def assign(self, state: ApplicationState) -> Assignment:
        compatibility = Compatibility(self.compatibility)
        state = _as_understood_by(compatibility, state)
        placement = TaskPlacement.of(state)

        active_stages = place_actives(state, placement)
        standby_stages, shortfalls = place_standbys(state, placement)
        lags = Lags(
            placement.clients, placement.tasks, state.end_offset_sums, state.config.acceptable_recovery_lag
        )
        form = _FORMS[compatibility]
        active_movements, standby_movements = move(placement, lags, form, state.config)
        stateless = place_stateless(state, placement)

        trace = Trace(
            state=state,
            placement=placement,
            lags=lags,
            form=form,
            active_stages=active_stages,
            standby_stages=standby_stages,
            shortfalls=shortfalls,
            active_movements=active_movements,
            standby_movements=standby_movements,
            stateless=stateless,
        )
        return assignment_of(trace)


def place_actives(state: ApplicationState, placement: TaskPlacement) -> ActiveStages:
    """The balanced target of the stateful tasks, with what each stage made of it."""
    placement.set_active_round_robin()
    stages = [(Rule.ROUND_ROBIN, placement.active.copy())]
    balance_actives(placement)
    stages.append((Rule.BALANCED_OVER_THREADS, placement.active.copy()))
    if rack.is_applicable(state):
        optimized = rack.optimize_active(
            state, _by_id(placement, placement.active_tasks()), placement.tasks, _costs(state.config)
        )
        for task, client in _positions(placement, optimized):
            placement.set_active(task, client)
        stages.append((Rule.RACKS, placement.active.copy()))
    return stages


def place_standbys(state: ApplicationState, placement: TaskPlacement) -> tuple[StandbyStages, list[Shortfall]]:
    """The target of the standby tasks, with what each stage made of it, and which tasks got too few."""
    if state.config.num_standby_replicas == 0:
        return [], []
    placing = standby_placing(state)
    shortfalls = placing.place(placement, state.config.num_standby_replicas)
    stages = [(placing.rule, _copied(placement.standbys))]
    balance_standbys(placement, placing.destinations(placement.clients))
    stages.append((Rule.BALANCED_OVER_THREADS, _copied(placement.standbys)))
    if rack.is_applicable(state):
        _optimize_standbys(state, placement, placing)
        stages.append((Rule.RACKS, _copied(placement.standbys)))
    return stages, shortfalls


def move(
    placement: TaskPlacement, lags: Lags, form: MovementForm, config: AssignmentConfig
) -> tuple[list[Movement], list[Movement]]:
    """Moves from the target to what state allows; actives and standbys share the budget of warm-ups, actives first."""
    actives = move_actives(placement, lags, form, config.max_warmup_replicas)
    left = config.max_warmup_replicas - sum(movement.warms_up for movement in actives)
    return actives, move_standbys(placement, lags, form, left, actives)


def place_stateless(state: ApplicationState, placement: TaskPlacement) -> dict[TaskId, int]:
    """The client of each stateless task."""
    tasks = sorted(set(state.tasks) - state.stateful_tasks)
    clients = dict(zip(tasks, least_active_clients(placement, len(tasks)), strict=True))
    if not tasks or not rack.is_applicable(state):
        return clients
    active: dict[ProcessId, set[TaskId]] = {client.process_id: set() for client in placement.clients}
    for task, client in clients.items():
        active[placement.clients[client].process_id].add(task)
    position = {client.process_id: at for at, client in enumerate(placement.clients)}
    optimized = rack.optimize_active(state, active, tasks, rack.STATELESS_COSTS)
    return {task: position[process_id] for process_id, held in optimized.items() for task in held}


def assignment_of(trace: Trace) -> Assignment:
    """The answer in ids; movements that could be planned call for a probing rebalance, warm-ups left or not."""
    placement = trace.placement
    active = _by_id(placement, placement.active_tasks())
    standby = _by_id(placement, placement.standby_tasks())
    for task_id, client in trace.stateless.items():
        active[placement.clients[client].process_id].add(task_id)
    warmup: dict[ProcessId, set[TaskId]] = {client.process_id: set() for client in placement.clients}
    for movement in (*trace.active_movements, *trace.standby_movements):
        if movement.warms_up:
            warmup[placement.clients[movement.target].process_id].add(placement.tasks[movement.task])
    movable = sum(movement.kept is not Kept.NOT_MOVABLE for movement in trace.standby_movements)
    return Assignment(
        clients={
            process_id: ClientAssignment(
                active=frozenset(active[process_id]),
                standby=frozenset(standby[process_id]),
                warmup=frozenset(warmup[process_id]),
            )
            for process_id in active
        },
        followup_needed=len(trace.active_movements) + movable > 0,
        explain=lambda: Decisions(trace),
    )


def _as_understood_by(compatibility: Compatibility, state: ApplicationState) -> ApplicationState:
    """2.7 knew neither client tags nor racks."""
    if compatibility is not Compatibility.KAFKA_2_7:
        return state
    config = replace(
        state.config, rack_aware_assignment_tags=(), rack_aware_assignment_strategy=RackStrategy.NONE
    )
    clients = tuple(replace(client, tags={}, rack=None) for client in state.clients)
    return replace(state, config=config, clients=clients)


def _optimize_standbys(state: ApplicationState, placement: TaskPlacement, placing: StandbyPlacing) -> None:
    standby = _by_id(placement, placement.standby_tasks())
    optimized = rack.optimize_standby(
        state,
        _by_id(placement, placement.active_tasks()),
        standby,
        _costs(state.config),
        may_move=placing.may_swap,
    )
    before = set(_positions(placement, standby))
    after = set(_positions(placement, optimized))
    for task, client in sorted(before - after):
        placement.drop_standby(task, client)
    for task, client in sorted(after - before):
        placement.add_standby(task, client)


def _costs(config: AssignmentConfig) -> rack.RackCosts:
    return rack.configured_costs(config, default=DEFAULT_COSTS)


def _by_id(placement: TaskPlacement, tasks_by_client: Sequence[Sequence[int]]) -> dict[ProcessId, set[TaskId]]:
    return {
        client.process_id: {placement.tasks[task] for task in tasks}
        for client, tasks in zip(placement.clients, tasks_by_client, strict=True)
    }


def _positions(placement: TaskPlacement, held: Mapping[ProcessId, Set[TaskId]]) -> list[tuple[int, int]]:
    """(task, client) for everything held."""
    task_at = {task: at for at, task in enumerate(placement.tasks)}
    client_at = {client.process_id: at for at, client in enumerate(placement.clients)}
    return [(task_at[task], client_at[process_id]) for process_id, tasks in held.items() for task in tasks]


def _copied(standbys: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(clients) for clients in standbys]


def least_active_clients(placement: TaskPlacement, task_count: int) -> list[int]:
    """The clients of ``task_count`` stateless tasks, in task order."""
    count = list(placement.active_count)
    capacity: Sequence[int] = placement.capacity
    by_load = [(count[client] / capacity[client], client) for client in range(len(count))]
    heapq.heapify(by_load)
    clients = []
    for _ in range(task_count):
        client = by_load[0][1]
        clients.append(client)
        count[client] += 1
        heapq.heapreplace(by_load, (count[client] / capacity[client], client))
    return clients
