"""StickyTaskAssignor in its two forms, the legacy class (also 2.7's) and the one on KIP-924's interface; and
FallbackPriorTaskAssignor, for when the lags could not be had.

Decides the order of the steps and the rack-aware defaults: stickiness costs 10, traffic 1. Which client a task goes to is
decided in ``placing``; neither form ever asks for a probing rebalance, except the KIP-924 one where it must preserve actives.
The fallback gives every task back to the client that ran it before, whatever the load and the lag, and asks for another
rebalance; tasks that no one ran, and standbys, follow the sticky rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tidemill.assignment.iteration_order import IterationOrder, TaskHash, hash_iteration
from tidemill.assignment.model import ApplicationState, Assignment, ClientAssignment, RackStrategy, TaskInfo
from tidemill.assignment.rack import aware as rack
from tidemill.assignment.rack.aware import RackCosts
from tidemill.assignment.sticky.placing import StickyPlacing, fullness, fullness_by_load
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.java_collections.hash_table import HashTable, hash_order, process_hash, task_hash

STATEFUL_COSTS = RackCosts(traffic=1, non_overlap=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyTaskAssignor:
    """LegacyStickyTaskAssignor; with ``task_hash_2_7`` the StickyTaskAssignor of 2.7.

    ``iteration`` replaces the hash order of the three inputs; the containers within keep ``task_hash``.
    """

    task_hash: TaskHash = task_hash
    iteration: Callable[[ApplicationState], IterationOrder] | None = None

    def assign(self, state: ApplicationState) -> Assignment:
        placing, order = place_by_stickiness(state, self.task_hash, self.iteration, preserve_active=False)
        is_rack_aware = rack.is_applicable(state)
        costs = rack.configured_costs(state.config, default=STATEFUL_COSTS)
        if is_rack_aware:
            active = rack.optimize_active(state, placing.active, state.stateful_tasks, costs)
            stateless = set(state.tasks) - state.stateful_tasks
            placing.replace_active(rack.optimize_active(state, active, stateless, rack.STATELESS_COSTS))
        placing.place_standbys()
        if is_rack_aware and state.config.num_standby_replicas > 0:
            placing.replace_standby(rack.optimize_standby(state, placing.active, placing.standby, costs))
        return assignment_of(placing, order.clients, followup_needed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicStickyTaskAssignor:
    """org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor (KIP-924).

    With ``preserves_active`` every task returns to its previous owner, and one client is asked to rebalance at once.
    Where Kafka goes by object identity (the order in which tasks get their standbys), this goes by task id.
    """

    preserves_active: bool = False

    def assign(self, state: ApplicationState) -> Assignment:
        order = hash_iteration(state)
        clients = hash_order(order.clients, process_hash)
        placing = StickyPlacing(
            state,
            replace(order, clients=tuple(clients), stateful_tasks=tuple(sorted(state.stateful_tasks))),
            task_hash=task_hash,
            fullness_of=fullness_by_load,
        )
        unassigned = HashTable.copy_of(task_hash, order.tasks)
        for task in placing.keep_active(regardless_of_room=self.preserves_active):
            unassigned.remove(task)
        left = placing.place_on_previous_standbys(unassigned)
        placing.place_active(left, hash_order(clients, process_hash))
        if not self.preserves_active:
            self._swap_active(state, placing, clients)
        placing.place_standbys()
        if not self.preserves_active:
            self._swap_standby(state, placing, clients)
        assignment = assignment_of(placing, clients, followup_needed=self.preserves_active)
        return _rebalancing_at_once(assignment, clients[0]) if self.preserves_active else assignment

    def _swap_active(self, state: ApplicationState, placing: StickyPlacing, clients: Sequence[ProcessId]) -> None:
        """KIP-924's helper weighs changelog partitions of actives too, and works only if both costs are configured."""
        if not _is_optimizable(state, _all_partitions):
            return
        active = placing.active
        for tasks, costs in _tasks_and_costs(state):
            active = rack.optimize_active(
                state, active, tasks, costs, clients=clients, partitions_of=_all_partitions
            )
        placing.replace_active(active)

    def _swap_standby(self, state: ApplicationState, placing: StickyPlacing, clients: Sequence[ProcessId]) -> None:
        if state.config.num_standby_replicas > 0 and _is_optimizable(state, rack.changelog_partitions):
            costs = rack.configured_costs(state.config, default=STATEFUL_COSTS)
            strategy = state.config.rack_aware_assignment_strategy
            placing.replace_standby(
                rack.optimize_standby(
                    state, placing.active, placing.standby, costs, clients=clients, strategy=strategy
                )
            )


def place_by_stickiness(
    state: ApplicationState,
    hash_of_task: TaskHash,
    iteration: Callable[[ApplicationState], IterationOrder] | None,
    *,
    preserve_active: bool,
) -> tuple[StickyPlacing, IterationOrder]:
    """All active tasks placed by the legacy rules, and the order in which the inputs were taken."""
    order = hash_iteration(state, hash_of_task) if iteration is None else iteration(state)
    placing = StickyPlacing(state, order, task_hash=hash_of_task, fullness_of=fullness)
    kept = placing.keep_active(regardless_of_room=preserve_active)
    unassigned = HashTable.copy_of(hash_of_task, order.tasks)
    _remove_all(unassigned, HashTable(hash_of_task, kept))
    placing.place_active(placing.place_on_previous_standbys(unassigned), order.clients)
    return placing, order


def assignment_of(placing: StickyPlacing, clients: Iterable[ProcessId], *, followup_needed: bool) -> Assignment:
    return Assignment(
        clients={
            client: ClientAssignment(
                active=frozenset(placing.active[client]), standby=frozenset(placing.standby[client])
            )
            for client in clients
        },
        followup_needed=followup_needed,
        explain=placing.explain,
    )


def _remove_all(keys: HashTable[TaskId], removed: HashTable[TaskId]) -> None:
    """``AbstractSet.removeAll``: goes through the smaller of the two, which decides how crowded buckets are left."""
    remove = keys.remove if len(keys) > len(removed) else keys.remove_in_iteration
    for task in removed:
        remove(task)


def _rebalancing_at_once(assignment: Assignment, client: ProcessId) -> Assignment:
    asked = replace(assignment.clients[client], followup_deadline_ms=0)
    return replace(assignment, clients={**assignment.clients, client: asked})


def _all_partitions(task: TaskInfo) -> Sequence[TopicPartition]:
    return tuple(dict.fromkeys((*task.source_partitions, *task.changelog_partitions)))


def _is_optimizable(state: ApplicationState, partitions_of: rack.PartitionsOf) -> bool:
    config = state.config
    return (
        config.rack_aware_assignment_strategy is not RackStrategy.NONE
        and config.rack_aware_assignment_traffic_cost is not None
        and config.rack_aware_assignment_non_overlap_cost is not None
        and rack.has_racks(state, partitions_of)
    )


def _tasks_and_costs(state: ApplicationState) -> tuple[tuple[Iterable[TaskId], RackCosts], ...]:
    stateless = set(state.tasks) - state.stateful_tasks
    costs = rack.configured_costs(state.config, default=STATEFUL_COSTS)
    return (state.stateful_tasks, costs), (stateless, rack.STATELESS_COSTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackPriorTaskAssignor:
    """The previous assignment as far as there is one; always asks for a probing rebalance."""

    task_hash: TaskHash = task_hash
    iteration: Callable[[ApplicationState], IterationOrder] | None = None

    def assign(self, state: ApplicationState) -> Assignment:
        placing, order = place_by_stickiness(state, self.task_hash, self.iteration, preserve_active=True)
        placing.place_standbys()
        return assignment_of(placing, order.clients, followup_needed=True)
