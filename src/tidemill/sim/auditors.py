"""Auditors: invariants at each step of a simulated run, whatever happens in it.

Decides what is wrong, in sentences; a run continues, so that all of it can be seen. What must hold of one
assignment is asked of ``assignment.invariants``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from tidemill.assignment.choice import DEFAULT
from tidemill.assignment.invariants import guarantee_violations, violations
from tidemill.assignment.lag import is_caught_up
from tidemill.ids import ProcessId, TaskId
from tidemill.sim.client import SimulatedClient
from tidemill.sim.history import Round
from tidemill.sim.scenario import Scenario
from tidemill.task import tasks
from tidemill.task.tasks import Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditors:
    """Checks of a run that change nothing."""

    of_steps: tuple[Callable[[Collection[SimulatedClient]], Iterable[str]], ...] = ()
    of_rounds: tuple[Callable[[Round], Iterable[str]], ...] = ()


NONE = Auditors()
WITH_GUARANTEES = frozenset({DEFAULT, "balanced"})
"""Assignors that promise what KIP-441 demands."""


def auditors_for(scenario: Scenario) -> Auditors:
    """All that apply: only some assignors promise caught-up owners and convergence."""
    of_steps = (more_than_one_running_active, ContradictoryTasks())
    if scenario.assignor not in WITH_GUARANTEES:
        return Auditors(of_steps=of_steps, of_rounds=(refused_answers, not_to_be_carried_out))
    return Auditors(
        of_steps=of_steps,
        of_rounds=(
            refused_answers, not_to_be_carried_out, broken_guarantees, caught_up_copies_given_up, Convergence(scenario),
        ),
    )


def more_than_one_running_active(clients: Collection[SimulatedClient]) -> Iterator[str]:
    """Two members that run a task as active and may both commit it."""
    runs: dict[TaskId, str] = {}
    for client in clients:
        for task, thread in client.running():
            other = runs.setdefault(task, thread.name)
            if other != thread.name:
                yield f"task {task} runs on {other} and on {thread.name}"


class ContradictoryTasks:
    """Faults of the tasks of a thread (``task.tasks``), wherever they have changed."""

    def __init__(self) -> None:
        self._seen: dict[str, Tasks] = {}

    def __call__(self, clients: Collection[SimulatedClient]) -> Iterator[str]:
        for client in clients:
            for thread in client.threads:
                if self._seen.get(thread.name) is not thread.tasks:
                    self._seen[thread.name] = thread.tasks
                    yield from (f"{thread.name}: {wrong}" for wrong in tasks.violations(thread.tasks))


def refused_answers(round_: Round) -> tuple[str, ...]:
    """Answers of the assignor that the leader refused and replaced by the previous assignment."""
    return round_.errors


def not_to_be_carried_out(round_: Round) -> list[str]:
    return violations(round_.state, round_.assignment)


def broken_guarantees(round_: Round) -> list[str]:
    """KIP-441's promises about one assignment, where lags are known; without them the previous one is returned."""
    return guarantee_violations(round_.state, round_.assignment) if _lags_are_known(round_) else []


def caught_up_copies_given_up(round_: Round) -> Iterator[str]:
    """Tasks of which all caught-up copies are dropped; one that runs again on one of them, or is kept there, is safe."""
    if not _lags_are_known(round_):
        return
    acceptable = round_.state.config.acceptable_recovery_lag
    holders: dict[TaskId, set[ProcessId]] = {}
    for client in round_.state.clients:
        for task, lag in client.lags.items():
            if is_caught_up(lag, acceptable):
                holders.setdefault(task, set()).add(client.process_id)
    for task, having in sorted(holders.items()):
        if is_caught_up(round_.state.end_offset_sums[task], acceptable):
            continue  # so little that even a client without any of it counts as caught up
        answer = round_.assignment.clients
        if not any(task in answer[process_id].active or task in answer[process_id].standby for process_id in having):
            yield f"the caught-up copies of {task} on {', '.join(map(str, sorted(having)))} are all given up"


class Convergence:
    """After the last disturbance at most stateful / max.warmup.replicas + 1 probing rounds, of those before which all
    warm-ups had caught up; standbys move within the same budget, so each replica adds as many."""

    def __init__(self, scenario: Scenario) -> None:
        stateful = sum(part.partitions for part in scenario.subtopologies if part.is_stateful)
        copies = 1 + scenario.settings.num_standby_replicas
        self._limit = -(-stateful * copies // max(scenario.settings.max_warmup_replicas, 1)) + 1
        self._calm_from_ms = scenario.last_event_ms + scenario.surroundings.session_timeout_ms
        self._fruitful = 0
        self._last: Round | None = None

    def __call__(self, round_: Round) -> Iterator[str]:
        last, self._last = self._last, round_
        if last is None or round_.time_ms <= self._calm_from_ms or not round_.assignment.followup_needed:
            return
        if _lags_are_known(round_) and round_.assignment != last.assignment and _all_caught_up(last, round_):
            self._fruitful += 1
            if self._fruitful > self._limit:
                yield f"not balanced after {self._fruitful} rounds with restored warm-ups; the bound is {self._limit}"


def _lags_are_known(round_: Round) -> bool:
    return all(end >= 0 for end in round_.state.end_offset_sums.values())


def _all_caught_up(before: Round, now: Round) -> bool:
    """True if all warm-ups of the round before had caught up by this one."""
    acceptable = now.state.config.acceptable_recovery_lag
    lags = {client.process_id: client.lags for client in now.state.clients}
    return all(
        is_caught_up(lags[process_id].get(task, now.state.end_offset_sums[task]), acceptable)
        for process_id, held in before.assignment.clients.items()
        if process_id in lags
        for task in held.warmup
    )
