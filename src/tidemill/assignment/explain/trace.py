"""The facts that an assignor records while it runs: targets by stage, movements as served, shortfalls.

Decides nothing; decisions are derived from it. Tasks and clients are positions, as in the placement. What can be
read off the facts without applying a rule again (who waits for a warm-up, which stage placed a copy) is read off here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tidemill.assignment.explain.rules import Rule
from tidemill.assignment.kip441.movements import Kept, Movement, MovementForm
from tidemill.assignment.kip441.standby import Shortfall
from tidemill.assignment.lag import Lags
from tidemill.assignment.model import ApplicationState
from tidemill.assignment.placement import TaskPlacement
from tidemill.ids import TaskId
from tidemill.java_collections.priority_queue import JavaPriorityQueue

ActiveStages = Sequence[tuple[Rule, Sequence[int]]]
StandbyStages = Sequence[tuple[Rule, Sequence[Sequence[int]]]]


@dataclass(frozen=True, kw_only=True)
class ByWeight:
    """The target before and after it was evened out by weight. ``moved``: the tasks of which it changed the client, with the one
    before. ``weights``: 1.0 is the average task's; ``before``, ``after``: what each client carries, 1.0 being its share by
    threads."""

    moved: Mapping[TaskId, int]
    weights: Mapping[TaskId, float]
    before: Sequence[float]
    after: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One run of an assignor; ``active_stages`` and ``standby_stages`` hold the target after each stage."""

    state: ApplicationState
    placement: TaskPlacement
    lags: Lags
    form: MovementForm
    active_stages: ActiveStages
    standby_stages: StandbyStages
    shortfalls: Sequence[Shortfall]
    active_movements: Sequence[Movement]
    standby_movements: Sequence[Movement]
    stateless: Mapping[TaskId, int]
    stateless_rule: Rule = Rule.LEAST_ACTIVE
    by_weight: ByWeight | None = None

    @cached_property
    def planned(self) -> list[Movement]:
        """All movements that could be made or begun, in the order in which they were served."""
        movable = (movement for movement in self.standby_movements if movement.kept is not Kept.NOT_MOVABLE)
        return [*self.active_movements, *movable]

    @cached_property
    def order(self) -> dict[Movement, int]:
        """The place of each planned movement in the order of serving, from 1."""
        return {movement: place for place, movement in enumerate(self.planned, 1)}

    @cached_property
    def waiting(self) -> dict[Movement, int]:
        """Movements whose target got no copy, because no warm-up was left, with their expected place, from 0.

        They are queued again in each round, actives before standbys, as many being served as the budget allows.
        """
        late = [movement for movement in self.planned if not movement.target_has_copy]
        if not self.form.is_requeued_in_order:
            actives = set(self.active_movements)
            late = [*self._queued_again(actives.intersection(late)), *self._queued_again(set(late) - actives)]
        return {movement: place for place, movement in enumerate(late)}

    def _queued_again(self, late: set[Movement]) -> Iterator[Movement]:
        left = sorted(late, key=lambda movement: (movement.target, movement.task))
        while left:
            queue: JavaPriorityQueue[Movement] = JavaPriorityQueue()
            for movement in left:
                queue.add((self.lags.caught_up_count(movement.task), movement.task), movement)
            served = list(self.form.in_order(queue))[: max(self.state.config.max_warmup_replicas, 1)]
            yield from served
            left = [movement for movement in left if movement not in served]

    @cached_property
    def warming_up(self) -> list[Movement]:
        """Movements that took a warm-up, in the order of serving."""
        return [movement for movement in self.planned if movement.warms_up]

    @cached_property
    def moved_standbys(self) -> dict[tuple[int, int], Movement]:
        """(task, target) -> its standby movement; a copy that a swap left on its target may be moved once more."""
        return {(one.task, one.target): one for one in self.standby_movements if one.kept is not Kept.NOT_MOVABLE}

    def rule_of_active(self, task: int) -> Rule:
        """The stage that last changed where the target has the active copy."""
        rule, before = self.active_stages[0][0], self.active_stages[0][1][task]
        for later, clients in self.active_stages[1:]:
            if clients[task] != before:
                rule, before = later, clients[task]
        return rule

    def rule_of_stateless(self, task: TaskId) -> Rule:
        """The stage that last changed where the target has a stateless task."""
        return Rule.WEIGHTS if self.by_weight is not None and task in self.by_weight.moved else self.stateless_rule

    def rule_of_standby(self, task: int, client: int) -> Rule:
        """The stage that put a standby copy on this client last."""
        rule, was_there = self.standby_stages[0][0], False
        for stage, standbys in self.standby_stages:
            is_there = client in standbys[task]
            if is_there and not was_there:
                rule = stage
            was_there = is_there
        return rule

    def rebalances_to_go(self, movement: Movement) -> int | None:
        """Number of further rebalances, if each round's warm-ups catch up before the next; None = never."""
        place = self.place_in_queue(movement)
        if place is None:
            return 1
        budget = self.state.config.max_warmup_replicas
        return None if budget < 1 else 2 + place // budget

    def place_in_queue(self, movement: Movement) -> int | None:
        """The place among those who wait for a warm-up; None if the target has a copy that can catch up."""
        if movement.is_swap:
            movement = self.moved_standbys.get((movement.task, movement.target), movement)
        return None if movement.target_has_copy else self.waiting[movement]
