"""The ``balanced`` assignor: KIP-441's guarantees with as little movement as balance allows.

Decides the phases. The target is the balanced assignment nearest to the present one (``nearest_target``), evened out by weights
where they are given (``weights``). Standbys stay where state is (``kept_standbys``). The group gets there in KIP-441's way
(``movements``): a stateful task runs on a caught-up client as long as there is one, targets warm up within the budget, and
probing rebalances continue until the target is reached. Unlike Kafka's assignor it lets a task run on
where it runs until its target is ready, and leaves stateless tasks where they are. Racks are not looked at.

Invariants (without weights). From any state in which every task runs, exactly as many running tasks are handed over as
the nearest balanced target needs, none twice. When clients leave, tasks of which a standby is caught up run there at
once, however unevenly, because KIP-441 wants a task on a caught-up client: a client may carry the tasks of one that left
until the next probing rebalances. Then the group hands over at most as many tasks as were orphaned, beyond the least that
balance needs; those need not be the orphans, because the state of a group doesn't show who ran a task before. Without
caught-up copies it is the least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.assignment.balanced.kept_standbys import even_out_standbys, keep_standbys
from tidemill.assignment.balanced.nearest_target import nearest_target
from tidemill.assignment.balanced.weights import Effort, EvenedOut, even_out
from tidemill.assignment.explain.rules import Rule
from tidemill.assignment.explain.trace import ByWeight, StandbyStages, Trace
from tidemill.assignment.kip441.high_availability import assignment_of, move
from tidemill.assignment.kip441.movements import ONLY_FOR_GAIN
from tidemill.assignment.kip441.standby import Shortfall
from tidemill.assignment.kip441.tags import TagSpread, standby_placing
from tidemill.assignment.lag import Lags
from tidemill.assignment.model import LATEST_OFFSET, ApplicationState, Assignment
from tidemill.assignment.placement import TaskPlacement
from tidemill.ids import TaskId


@dataclass(frozen=True, slots=True)
class BalancedTaskAssignor:
    """Pure and deterministic: the order of clients and tasks in the state does not matter."""

    def assign(self, state: ApplicationState) -> Assignment:
        placement = TaskPlacement.of(state)
        lags = Lags(placement.clients, placement.tasks, state.end_offset_sums, state.config.acceptable_recovery_lag)

        nearest = nearest_target(placement.clients, sorted(state.tasks), placement.tasks, lags)
        by_weight = _by_weight(state, placement, lags, nearest)
        target = nearest if by_weight is None else by_weight.target
        for at, task in enumerate(placement.tasks):
            placement.set_active(at, target[task])
        standby_stages, shortfalls = _place_standbys(state, placement, lags)
        active_movements, standby_movements = move(placement, lags, ONLY_FOR_GAIN, state.config)

        return assignment_of(
            Trace(
                state=state,
                placement=placement,
                lags=lags,
                form=ONLY_FOR_GAIN,
                active_stages=[
                    (Rule.NEAREST, [nearest[task] for task in placement.tasks]),
                    (Rule.WEIGHTS, [target[task] for task in placement.tasks]),
                ],
                standby_stages=standby_stages,
                shortfalls=shortfalls,
                active_movements=active_movements,
                standby_movements=standby_movements,
                stateless={task: target[task] for task in sorted(set(state.tasks) - state.stateful_tasks)},
                stateless_rule=Rule.NEAREST,
                by_weight=None if by_weight is None else _traced(nearest, by_weight),
            )
        )


def _by_weight(
    state: ApplicationState, placement: TaskPlacement, lags: Lags, target: Mapping[TaskId, int]
) -> EvenedOut | None:
    """The target evened out; None without weights, or where all are zero."""
    weights = {task: info.weight for task, info in state.task_info.items() if info.weight is not None}
    if not any(weights.values()):
        return None
    number = {task: at for at, task in enumerate(placement.tasks)}
    seats: dict[TaskId, list[int]] = {}
    for at, client in enumerate(placement.clients):
        for task in client.previous_active - state.stateful_tasks:
            seats.setdefault(task, []).append(at)
    for task, at in number.items():
        seats[task] = [client for lag, client in lags.reported(at) if lag == LATEST_OFFSET]
    if any(len(clients) > 1 for clients in seats.values()):
        return None
    runs_on = {task: clients[0] for task, clients in seats.items() if clients and task in target}

    def to_restore(task: TaskId, client: int) -> int:
        return lags.to_restore(number[task], client) if task in number else 0

    return even_out(target, weights, placement.capacity, Effort(runs_on=runs_on, to_restore=to_restore))


def _traced(nearest: Mapping[TaskId, int], evened: EvenedOut) -> ByWeight:
    moved = {task: client for task, client in nearest.items() if evened.target[task] != client}
    return ByWeight(moved=moved, weights=evened.weights, before=evened.before, after=evened.after)


def _place_standbys(
    state: ApplicationState, placement: TaskPlacement, lags: Lags
) -> tuple[StandbyStages, list[Shortfall]]:
    replicas = state.config.num_standby_replicas
    if replicas == 0:
        return [], []
    placing = standby_placing(state)
    spread = placing if isinstance(placing, TagSpread) else TagSpread({c.process_id: {} for c in state.clients}, frozenset())
    shortfalls = keep_standbys(placement, lags, spread.row(placement), replicas)
    kept = [list(clients) for clients in placement.standbys]
    even_out_standbys(placement, lags, placing.destinations(placement.clients))
    balanced = [list(clients) for clients in placement.standbys]
    return [(Rule.STICKY_STANDBY, kept), (Rule.BALANCED_OVER_THREADS, balanced)], shortfalls
