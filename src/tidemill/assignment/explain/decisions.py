"""Decisions: the reason for the place of each copy of each task, from the facts that an assignor recorded while it ran.

Decides which facts make up one decision. It applies no rule of placing or moving: targets, movements, keepers,
warm-ups and shortfalls are read from the trace, lags and ranks from the table that the rules themselves asked. Built
one by one on access, so that an assignment whose reasons are not read costs nothing more. ``reasons`` has the wording.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, overload

from tidemill.assignment.explain.reasons import Reasons
from tidemill.assignment.explain.rules import Rule
from tidemill.assignment.explain.trace import Trace
from tidemill.assignment.kip441.movements import Kept, Movement
from tidemill.assignment.lag import rank_of
from tidemill.assignment.model import CopyRole, Decision
from tidemill.ids import ProcessId, TaskId

MOVEMENT_SOURCE = "KIP-441: active tasks on most caught-up instances, warm-ups up to max.warmup.replicas"
STANDBY_MOVEMENT_SOURCE = "KIP-441: standbys on the next most caught-up instances"


class _Fact(NamedTuple):
    """One copy, or the lack of one; the sentence is made when asked for."""

    role: CopyRole
    rule: str
    source: str
    chosen: int | None
    target: int | None
    go: int | None
    reason: Callable[[], str]


class Decisions(Sequence[Decision]):
    """All decisions of one assignment, by task; of a task its active copy, its movements, its standbys."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._reasons = Reasons(trace)
        self._facts = [(task, fact) for task, facts in self._by_task().items() for fact in facts]

    def __len__(self) -> int:
        return len(self._facts)

    @overload
    def __getitem__(self, index: int) -> Decision: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Decision]: ...
    def __getitem__(self, index: int | slice) -> Decision | Sequence[Decision]:
        if isinstance(index, slice):
            return [self._decision(task, fact) for task, fact in self._facts[index]]
        return self._decision(*self._facts[index])

    def of(self, task: TaskId) -> list[Decision]:
        """The decisions about one task; none if the assignment does not know it."""
        return [self._decision(other, fact) for other, fact in self._facts if other == task]

    def _by_task(self) -> dict[TaskId, list[_Fact]]:
        trace = self._trace
        facts: list[list[_Fact]] = [[] for _ in trace.placement.tasks]
        explained = self._add_movements(facts)
        for at, of_task in enumerate(facts):
            if not of_task or of_task[0].role is not CopyRole.ACTIVE:
                of_task.insert(0, self._in_place(at, CopyRole.ACTIVE, trace.placement.active[at], trace.rule_of_active(at)))
            of_task += [
                self._in_place(at, CopyRole.STANDBY, client, trace.rule_of_standby(at, client))
                for client in trace.placement.standbys[at]
                if (at, client) not in explained
            ]
        for at, missing in trace.shortfalls:
            source = trace.standby_stages[0][0].source
            reason = partial(self._reasons.shortfall, at, missing)
            facts[at].append(_Fact(CopyRole.STANDBY, "too few clients", source, None, None, None, reason))
        by_task = dict(zip(trace.placement.tasks, facts, strict=True))
        for task, client in trace.stateless.items():
            rule = trace.rule_of_stateless(task)
            reason = partial(self._reasons.stateless, task, client, rule)
            by_task[task] = [_Fact(CopyRole.ACTIVE, rule.title, rule.source, client, client, None, reason)]
        return dict(sorted(by_task.items()))

    def _add_movements(self, facts: list[list[_Fact]]) -> set[tuple[int, int]]:
        """Add what movements decided; returns the (task, client) pairs whose standby copies are explained thereby."""
        trace = self._trace
        explained = set()
        for movement in trace.active_movements:
            rule = trace.rule_of_active(movement.task)
            facts[movement.task].append(self._kept(movement, CopyRole.ACTIVE, rule))
            if (movement.task, movement.target) not in trace.moved_standbys:
                facts[movement.task].append(self._at_target(movement))
            explained.add((movement.task, movement.target))
        for movement in trace.standby_movements:
            rule = trace.rule_of_standby(movement.task, movement.target)
            if movement.kept is not Kept.NOT_MOVABLE:
                facts[movement.task] += [self._kept(movement, CopyRole.STANDBY, rule), self._at_target(movement)]
            elif (movement.task, movement.target) not in explained:
                facts[movement.task].append(
                    _Fact(
                        CopyRole.STANDBY, "standby not movable", STANDBY_MOVEMENT_SOURCE, movement.target, movement.target,
                        None, partial(self._reasons.not_movable, movement),
                    )
                )
            explained |= {(movement.task, movement.target), (movement.task, movement.keeper)}
        return explained

    def _in_place(self, at: int, role: CopyRole, client: int, rule: Rule) -> _Fact:
        reason = partial(self._reasons.in_place, at, role.value, client, rule)
        return _Fact(role, rule.title, rule.source, client, client, None, reason)

    def _kept(self, movement: Movement, role: CopyRole, rule: Rule) -> _Fact:
        source = MOVEMENT_SOURCE if role is CopyRole.ACTIVE else STANDBY_MOVEMENT_SOURCE
        go = self._trace.rebalances_to_go(movement)
        reason = partial(self._reasons.kept, movement, role.value, rule)
        return _Fact(role, "kept until the target is caught up", source, movement.keeper, movement.target, go, reason)

    def _at_target(self, movement: Movement) -> _Fact:
        """The copy, or the lack of one, on the client that the task is to move to."""
        go, target = self._trace.rebalances_to_go(movement), movement.target
        if movement.is_swap:
            reason = partial(self._reasons.swapped, movement)
            return _Fact(CopyRole.STANDBY, "swapped with a standby", MOVEMENT_SOURCE, target, target, go, reason)
        if movement.warms_up:
            reason = partial(self._reasons.warming_up, movement)
            return _Fact(CopyRole.WARM_UP, "warm-up", MOVEMENT_SOURCE, target, target, go, reason)
        reason = partial(self._reasons.waiting, movement)
        return _Fact(CopyRole.WARM_UP, "no warm-up left", MOVEMENT_SOURCE, None, target, go, reason)

    def _decision(self, task: TaskId, fact: _Fact) -> Decision:
        return Decision(
            task=task,
            role=fact.role,
            rule=fact.rule,
            candidates=self._candidates(task),
            chosen=self._process_id(fact.chosen),
            target=self._process_id(fact.target),
            rebalances_to_go=fact.go,
            reason=fact.reason(),
            source=fact.source,
        )

    def _candidates(self, task: TaskId) -> tuple[tuple[ProcessId, int, int], ...]:
        trace = self._trace
        if task in trace.stateless:
            return ()
        at, acceptable = bisect_left(trace.placement.tasks, task), trace.state.config.acceptable_recovery_lag
        candidates = []
        for client, of_client in enumerate(trace.placement.clients):
            lag = trace.lags.lag(at, client)
            candidates.append((of_client.process_id, lag, rank_of(lag, trace.lags.end[at], acceptable)))
        return tuple(sorted(candidates, key=lambda candidate: (candidate[2], candidate[0])))

    def _process_id(self, client: int | None) -> ProcessId | None:
        return None if client is None else self._trace.placement.clients[client].process_id
