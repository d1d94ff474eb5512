"""Invariants of every assignment, whatever assignor made it: one list, used by tests, the simulator and the leader.

Decides what is wrong with an answer for a state, in sentences; the ids in them are those of the answer. Rules that only
some assignors promise (balance, most caught-up clients, the budget) are asked for by name. The caller decides what
happens to a wrong answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tidemill.assignment.lag import is_caught_up
from tidemill.assignment.model import LATEST_OFFSET, LONG_MAX, UNKNOWN_OFFSET_SUM, ApplicationState, Assignment, ClientState
from tidemill.assignment.task_load import COUNT_BOUND, count_bounds
from tidemill.ids import ProcessId, TaskId

Check = Callable[[ApplicationState, Assignment], Iterable[str]]


def violations(state: ApplicationState, assignment: Assignment) -> list[str]:
    """Everything that makes an answer impossible to carry out; empty = it can be carried out."""
    return [wrong for check in (_clients, _tasks_once, _copies, _followups) for wrong in check(state, assignment)]


def guarantee_violations(state: ApplicationState, assignment: Assignment) -> list[str]:
    """Everything that KIP-441 promises beyond that and the answer breaks."""
    checks: tuple[Check, ...] = (active_on_caught_up, warmups_within_budget, enough_standbys)
    return [wrong for check in checks for wrong in check(state, assignment)]


def active_on_caught_up(state: ApplicationState, assignment: Assignment) -> Iterator[str]:
    """A stateful task is active on a caught-up client as long as one exists; an unknown lag is not judged."""
    clients = {client.process_id: client for client in state.clients}
    caught_up: set[TaskId] = set()
    acceptable = state.config.acceptable_recovery_lag
    for client in clients.values():
        caught_up.update(task for task, lag in client.lags.items() if is_caught_up(lag, acceptable))
    for process_id, held in sorted(assignment.clients.items()):
        for task in sorted(held.active & state.stateful_tasks):
            lag = _lag(state, clients[process_id], task)
            if lag == UNKNOWN_OFFSET_SUM or is_caught_up(lag, acceptable):
                continue
            if task in caught_up or _end_is_caught_up(state, task):
                yield f"task {task} is active on {process_id}, which lags by {lag}, though a caught-up client exists"


def warmups_within_budget(state: ApplicationState, assignment: Assignment) -> Iterator[str]:
    """At most ``max.warmup.replicas`` warm-ups in the whole group."""
    used = sum(len(held.warmup) for held in assignment.clients.values())
    if used > state.config.max_warmup_replicas:
        yield f"{used} warm-ups were handed out; max.warmup.replicas = {state.config.max_warmup_replicas}"


def enough_standbys(state: ApplicationState, assignment: Assignment) -> Iterator[str]:
    """``num.standby.replicas`` standbys besides the warm-ups of each stateful task, or one on every other client that stays."""
    copies = Counter(task for held in assignment.clients.values() for task in held.standby)
    warmups = Counter(task for held in assignment.clients.values() for task in held.warmup)
    staying = sum(not client.is_draining for client in state.clients) or len(state.clients)
    possible = min(state.config.num_standby_replicas, staying - 1)
    for task in sorted(state.stateful_tasks):
        if copies[task] - warmups[task] < possible and copies[task] < staying - 1:
            yield f"task {task} has {copies[task] - warmups[task]} standbys besides its warm-ups; expected {possible}"


def unbalanced(counts: dict[ProcessId, int], state: ApplicationState) -> list[str]:
    """Clients whose count is more than one away from their share by threads (KIP-441: most - least at most one); where tasks have
    weights, further away than these may bring it."""
    threads = sum(client.capacity for client in state.clients)
    total = sum(counts.values())
    bound = COUNT_BOUND if any(info.weight is not None for info in state.task_info.values()) else 0.0
    wrong = []
    for client in sorted(state.clients, key=lambda client: client.process_id):
        got = counts.get(client.process_id, 0)
        least, most = count_bounds(total, client.capacity, threads, bound)
        if not least <= got <= most:
            share = total * client.capacity / threads
            wrong.append(f"{client.process_id} has {got} of {total} tasks; its {client.capacity} threads are worth {share:.2f}")
    return wrong


def _clients(state: ApplicationState, assignment: Assignment) -> Iterator[str]:
    known = {client.process_id for client in state.clients}
    for process_id in sorted(known - assignment.clients.keys()):
        yield f"client {process_id} got no assignment; every client must be named, if only with no tasks"
    for process_id in sorted(assignment.clients.keys() - known):
        yield f"client {process_id} was given an assignment but is not in the group ({len(known)} clients are)"


def _tasks_once(state: ApplicationState, assignment: Assignment) -> Iterator[str]:
    active = [task for held in assignment.clients.values() for task in held.active]
    if len(active) == len(state.tasks) and frozenset(active) == frozenset(state.tasks):
        return
    owners: dict[TaskId, list[ProcessId]] = {}
    for process_id, held in sorted(assignment.clients.items()):
        for task in held.active:
            owners.setdefault(task, []).append(process_id)
    known = set(state.tasks)
    for task in sorted(known - owners.keys()):
        yield f"task {task} is active nowhere; each task must be active on one client"
    for task, processes in sorted(owners.items()):
        if task not in known:
            yield f"{processes[0]} was given {task} as active, which is no task of this application"
        elif len(processes) > 1:
            yield f"task {task} is active on {len(processes)} clients: {', '.join(map(str, processes))}; expected one"


def _copies(state: ApplicationState, assignment: Assignment) -> Iterator[str]:
    known = set(state.tasks)
    for process_id, held in sorted(assignment.clients.items()):
        for task in sorted(held.standby & held.active):
            yield f"{process_id} was given {task} both as active and as standby; expected one of them"
        for task in sorted(held.standby - state.stateful_tasks):
            what = "has no state to keep a copy of" if task in known else "is no task of this application"
            yield f"{process_id} was given a standby of {task}, which {what}"
        for task in sorted(held.warmup - held.standby):
            yield f"{process_id} has a warm-up of {task} that is not among its standbys; warm-ups are standbys too"


def _followups(_state: ApplicationState, assignment: Assignment) -> Iterator[str]:
    for process_id, held in sorted(assignment.clients.items()):
        at_ms: object = held.followup_deadline_ms  # a user's class may have put anything there
        if at_ms is not None and (type(at_ms) is not int or not 0 <= at_ms <= LONG_MAX):
            yield f"{process_id} has the follow-up deadline {at_ms!r}; expected None or milliseconds since 1970 (0 = at once)"


def _lag(state: ApplicationState, client: ClientState, task: TaskId) -> int:
    return client.lags.get(task, state.end_offset_sums.get(task, LATEST_OFFSET))


def _end_is_caught_up(state: ApplicationState, task: TaskId) -> bool:
    """True if clients without any state of a task count as caught up, and there is one."""
    if not is_caught_up(state.end_offset_sums.get(task, LATEST_OFFSET), state.config.acceptable_recovery_lag):
        return False
    return any(task not in client.lags for client in state.clients)
