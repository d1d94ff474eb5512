"""Draining: clients that give everything up before they go, without a pause for their tasks.

Decides, on top of any assignor, what a client that drains keeps for now. The assignor is asked as if that client were gone
already, so its answer is where everything ends up. Each stateful task stays with the draining client until the client that is to
have it has warmed up a copy. Also kept are a draining client's copies that replace standbys which have not caught up. Stateless
tasks go at once.

Invariants: KIP-441's. A task is active on a caught-up client as long as there is one, and warm-ups never exceed
``max.warmup.replicas``; those of a drain come first. Here a client without any state of a task is not caught up, however small
its changelog is. Where the lags are unknown, or all clients drain, none does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tidemill.assignment.custom import InvalidAssignmentError
from tidemill.assignment.invariants import violations
from tidemill.assignment.lag import is_caught_up
from tidemill.assignment.model import (
    LATEST_OFFSET,
    ApplicationState,
    Assignment,
    ClientAssignment,
    ClientState,
    CopyRole,
    Decision,
    TaskAssignor,
)
from tidemill.ids import ProcessId, TaskId

RULE = "drain"
SOURCE = "tidemill drain, within KIP-441"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTask:
    """An active task that stays on ``keeper``, which drains, until ``target``, which lags by ``behind`` offsets, has
    caught up."""

    task: TaskId
    keeper: ProcessId
    target: ProcessId
    behind: int
    warms_up: bool


def assign_with_drains(assignor: TaskAssignor, state: ApplicationState) -> Assignment:
    """The assignor's answer for the clients that stay, and what the others keep until then.

    InvalidAssignmentError if the answer can't be carried out; what else the assignor raises passes through.
    """
    staying = tuple(client for client in state.clients if not client.is_draining)
    if len(staying) in (0, len(state.clients)) or any(end < 0 for end in state.end_offset_sums.values()):
        return assignor.assign(state)
    rest = replace(state, clients=staying)
    target = _checked(assignor, rest)
    kept = _kept(state, target)
    if kept:
        own_budget = max(0, state.config.max_warmup_replicas - len(kept))
        target = _checked(assignor, replace(rest, config=replace(state.config, max_warmup_replicas=own_budget)))
        kept = _kept(state, target)
    return _merged(state, target, kept)


def _checked(assignor: TaskAssignor, state: ApplicationState) -> Assignment:
    assignment = assignor.assign(state)
    found = violations(state, assignment)
    if found:
        raise InvalidAssignmentError(type(assignor).__name__, found)
    return assignment


def _kept(state: ApplicationState, target: Assignment) -> list[KeptTask]:
    """The tasks that wait for their targets, the nearest to being caught up first, as far as the budget goes."""
    clients = {client.process_id: client for client in state.clients}
    draining = [client for client in state.clients if client.is_draining]
    waiting = []
    for process_id, held in target.clients.items():
        for task in held.active & state.stateful_tasks:
            behind = _behind(state, clients[process_id], task)
            keeper = min(draining, key=lambda client: (_behind(state, client, task), client.process_id))
            if not _is_ready(state, clients[process_id], task) and _behind(state, keeper, task) < behind:
                waiting.append((behind, task, keeper.process_id, process_id))
    taken = {(task, process_id) for _, task, _, process_id in waiting}
    others = sum((task, process_id) not in taken for process_id, held in target.clients.items() for task in held.warmup)
    budget = max(0, state.config.max_warmup_replicas - others)
    return [
        KeptTask(task=task, keeper=keeper, target=process_id, behind=behind, warms_up=at < budget)
        for at, (behind, task, keeper, process_id) in enumerate(sorted(waiting))
    ]


def _merged(state: ApplicationState, target: Assignment, kept: Sequence[KeptTask]) -> Assignment:
    parts = {client.process_id: target.clients.get(client.process_id, ClientAssignment()) for client in state.clients}
    for one in kept:
        part = parts[one.target]
        copy = frozenset({one.task}) if one.warms_up else frozenset()
        parts[one.target] = replace(
            part, active=part.active - {one.task}, standby=part.standby | copy, warmup=part.warmup | copy
        )
        parts[one.keeper] = replace(parts[one.keeper], active=parts[one.keeper].active | {one.task})
    _drop_other_warmups(parts, kept)
    copies = list(_kept_copies(state, target, parts))
    for task, process_id in copies:
        parts[process_id] = replace(parts[process_id], standby=parts[process_id].standby | {task})
    return Assignment(
        clients=parts,
        followup_needed=target.followup_needed or bool(kept or copies),
        explain=lambda: tuple(_decisions(state, target, kept)),
    )


def _drop_other_warmups(parts: dict[ProcessId, ClientAssignment], kept: Sequence[KeptTask]) -> None:
    """For a task that waits on a draining client, keeps only the warm-up that it waits for."""
    waits_for = {one.task: one.target for one in kept}
    for process_id, part in parts.items():
        others = frozenset(task for task in part.warmup if waits_for.get(task, process_id) != process_id)
        if others:
            parts[process_id] = replace(part, standby=part.standby - others, warmup=part.warmup - others)


def _kept_copies(
    state: ApplicationState, target: Assignment, parts: dict[ProcessId, ClientAssignment]
) -> Iterator[tuple[TaskId, ProcessId]]:
    """Caught-up copies on draining clients, as many as standbys elsewhere have yet to catch up."""
    clients = {client.process_id: client for client in state.clients}
    behind: dict[TaskId, int] = {}
    for process_id, held in target.clients.items():
        for task in held.standby - held.warmup:
            if not _is_ready(state, clients[process_id], task):
                behind[task] = behind.get(task, 0) + 1
    for task, missing in sorted(behind.items()):
        ready = [
            client.process_id
            for client in state.clients
            if client.is_draining and task not in parts[client.process_id].active and _is_ready(state, client, task)
        ]
        yield from ((task, process_id) for process_id in sorted(ready)[:missing])


def _behind(state: ApplicationState, client: ClientState, task: TaskId) -> int:
    """0 for one that runs it; the whole changelog for one without any state of it."""
    lag = client.lags.get(task, state.end_offset_sums[task])
    return 0 if lag == LATEST_OFFSET else state.end_offset_sums[task] if lag < 0 else lag


def _is_ready(state: ApplicationState, client: ClientState, task: TaskId) -> bool:
    """Caught up, with state of its own."""
    behind, end = _behind(state, client, task), state.end_offset_sums[task]
    return is_caught_up(behind, state.config.acceptable_recovery_lag) and (behind < end or end == 0)


def _decisions(state: ApplicationState, target: Assignment, kept: Sequence[KeptTask]) -> Iterator[Decision]:
    waits = {one.task: one for one in kept}
    budget = max(1, sum(one.warms_up for one in kept))
    for at, one in enumerate(kept):
        ranked = sorted((_behind(state, client, one.task), client.process_id) for client in state.clients)
        active = Decision(
            task=one.task,
            role=CopyRole.ACTIVE,
            rule=RULE,
            candidates=tuple((process_id, behind, behind) for behind, process_id in ranked),
            chosen=one.keeper,
            target=one.target,
            rebalances_to_go=at // budget + 1,
            reason=_reason(one),
            source=SOURCE,
        )
        yield active
        if one.warms_up:
            yield replace(active, role=CopyRole.WARM_UP, chosen=one.target)
    for decision in target.explain():
        if decision.task not in waits or (decision.role is CopyRole.STANDBY and decision.chosen is not None):
            yield decision


def _reason(one: KeptTask) -> str:
    keeper, target = str(one.keeper)[:8], str(one.target)[:8]
    meanwhile = "is warmed up there" if one.warms_up else "waits for one of max.warmup.replicas"
    return (
        f"{one.task} is active on {keeper} for now, which drains. It is assigned to {target}, which lags by {one.behind} "
        f"offsets: the task {meanwhile}, and is handed over when that copy has caught up."
    )
