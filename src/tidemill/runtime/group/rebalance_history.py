"""The rebalances that this instance has led: moved tasks, with reasons.

Decides what counts as a move (an active task with another owner than in the assignment before, a copy that is new or gone), and
which of the assignor's own Decision records gives its reason. Nothing is worked out a second time: reasons are the records'
sentences, with instances under their addresses. Kept for the last rebalances, over restarts where a file is (``history_file``);
other instances show those that they have led.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemill.assignment.explain.decisions import Decisions
from tidemill.assignment.model import LONG_MAX, ApplicationState, Assignment, ClientAssignment, CopyRole, Decision
from tidemill.documents import Document
from tidemill.ids import ProcessId, TaskId
from tidemill.membership.group_assignment import StreamsGroupAssignment
from tidemill.membership.leader import AT_ONCE_MS, PreparedRebalance

KEPT = 100
"""Rebalances that are kept, also over restarts."""
_SHOWN = 30
"""Rebalances that pages get, which ask every two seconds."""
_KEPT_WHOLE = 2
_MOST_MOVES = 60
_SHORT = 8
"""Digits of a process id in the sentences of decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedRebalance:
    """``hosts``: addresses of the clients that can be asked; ``next_ms``: when the next one is due, None if none is."""

    at_ms: int
    took_ms: int
    state: ApplicationState
    assignment: Assignment
    hosts: Mapping[ProcessId, str]
    is_stable: bool
    next_ms: int | None
    hands_over: bool
    """Tasks were withheld from their new owners until the old ones have released them."""
    remarks: tuple[str, ...]


class RebalanceHistory:
    """Shared by the instance's threads: any of them may be asked to lead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: list[tuple[LedRebalance, LedRebalance | None]] = []
        self._documents: dict[int, Document] = {}
        """Older rebalances by time, as documents: an assignment object of many tasks takes megabytes."""
        self._saved: frozenset[int] = frozenset()
        """Times of the documents that are in the file."""
        self.total = 0
        self.problem = ""
        """The reason why those from before this start could not be read."""
        self.on_added: Callable[[], None] = lambda: None
        """Called when a rebalance was added; must not block."""

    def remember(self, kept: Sequence[Document], problem: str = "") -> None:
        """Adds the rebalances of earlier starts."""
        with self._lock:
            self._documents = {led["at_ms"]: led for led in [*kept, *self._documents.values()]}
            self._saved = frozenset(led["at_ms"] for led in kept)
            self.problem = problem

    def add(self, prepared: PreparedRebalance, done: StreamsGroupAssignment, at_ms: int, took_ms: int) -> None:
        """Adds a rebalance; an error sent to all members is not one."""
        if done.state is None or done.assignment is None:
            return
        due = [member.info.next_rebalance_ms for member in done.members.values() if member.info is not None]
        # What is withheld is asked for at once, too, but that is no new look at the assignment.
        later = [max(at, at_ms) for at in due if at != LONG_MAX and not (done.hands_over and at == AT_ONCE_MS)]
        led = LedRebalance(
            at_ms=at_ms,
            took_ms=took_ms,
            state=done.state,
            assignment=done.assignment,
            hosts={c.process_id: str(c.endpoint) for c in prepared.group.clients if c.endpoint is not None},
            is_stable=done.is_stable,
            next_ms=min(later) if later else None,
            hands_over=done.hands_over,
            remarks=tuple(line.text for line in done.log if line.level.name != "INFO"),
        )
        with self._lock:
            self._newest.append((led, self._newest[-1][0] if self._newest else None))
            if len(self._newest) > _KEPT_WHOLE:
                oldest, before = self._newest.pop(0)
                if oldest.at_ms not in self._documents:  # no thread has asked for the history since it was added
                    self._keep(oldest.at_ms, rebalance_to_json(oldest, before))
            self.total += 1
        self.on_added()

    def to_json(self) -> list[Document]:
        """The last ones, oldest first."""
        return self.history()[-_SHOWN:]

    def history(self) -> list[Document]:
        """All that are kept, oldest first. Each is converted once: pages ask every two seconds."""
        with self._lock:
            missing = [(led, before) for led, before in self._newest if led.at_ms not in self._documents]
        made = [(led, rebalance_to_json(led, before)) for led, before in missing]  # without the lock: ``add`` would wait for it
        with self._lock:
            newest = {led.at_ms for led, _ in self._newest}  # what was dropped meanwhile has its document
            for led, document in made:
                if led.at_ms in newest and led.at_ms not in self._documents:
                    self._keep(led.at_ms, document)
            return list(self._documents.values())

    def unsaved(self) -> tuple[list[Document], list[Document]]:
        """The documents that are not in the file, and all documents; a consistent pair, since others may be added meanwhile."""
        found = self.history()
        return [led for led in found if led["at_ms"] not in self._saved], found

    def saved(self, found: Sequence[Document]) -> None:
        """The file has these now."""
        self._saved = frozenset(led["at_ms"] for led in found)

    def _keep(self, at_ms: int, document: Document) -> None:
        """Under the lock."""
        self._documents[at_ms] = document
        while len(self._documents) > KEPT:
            del self._documents[next(iter(self._documents))]  # the first added: a clock that is set back makes times smaller

    def decisions(self, task: TaskId | None) -> dict[str, object] | None:
        """Decisions of the last rebalance, for one task or all; None if there was no rebalance."""
        with self._lock:
            if not self._newest:
                return None
            led, before = self._newest[-1]
        names = _Names(led, before)
        found = _decisions(led, {task}) if task is not None else led.assignment.explain()
        return {"at_ms": led.at_ms, "decisions": [_decision_to_json(decision, names) for decision in found]}


def _decisions(led: LedRebalance, tasks: Collection[TaskId]) -> Iterator[Decision]:
    """About these tasks only: the records are made when they are asked for."""
    found = led.assignment.explain()
    if isinstance(found, Decisions):
        yield from (decision for task in sorted(tasks) for decision in found.of(task))
    else:
        yield from (decision for decision in found if decision.task in tasks)


class _Names:
    """Instances by address where they have one."""

    def __init__(self, led: LedRebalance, before: LedRebalance | None) -> None:
        hosts = {**(before.hosts if before else {}), **led.hosts}
        self._names = {str(process): host for process, host in hosts.items()}
        self._short = {process[:_SHORT]: host for process, host in self._names.items()}
        self._pattern = re.compile("|".join(map(re.escape, [*self._names, *self._short])) or r"(?!)")

    def of(self, process: ProcessId | None) -> str | None:
        return None if process is None else self._names.get(str(process), str(process)[:_SHORT])

    def within(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._names.get(found[0]) or self._short[found[0]], text)


def rebalance_to_json(led: LedRebalance, before: LedRebalance | None) -> dict[str, object]:
    """``before``: the one that the same instance has led before it; without it the members' own word counts."""
    names = _Names(led, before)
    present = {client.process_id for client in led.state.clients}
    earlier = set(before.assignment.clients) if before else None
    moves = list(_moves(led, before))
    by_task: dict[TaskId, list[Decision]] = {}
    if moves:
        for decision in _decisions(led, {move.task for move in moves[:_MOST_MOVES]}):
            by_task.setdefault(decision.task, []).append(decision)
    return {
        "at_ms": led.at_ms,
        "took_ms": led.took_ms,
        "stable": led.is_stable,
        "hands_over": led.hands_over,
        "next_ms": led.next_ms,
        "joined": [names.of(process) for process in sorted(present - earlier)] if earlier is not None else [],
        "left": [names.of(process) for process in sorted(earlier - present)] if earlier is not None else [],
        "clients": [
            {
                "process": str(process),
                "host": led.hosts.get(process),
                "active": _texts(client.active),
                "standby": _texts(client.standby - client.warmup),
                "warmup": _texts(client.warmup),
            }
            for process, client in sorted(led.assignment.clients.items())
        ],
        "moves": [_move_to_json(move, by_task.get(move.task, []), names) for move in moves[:_MOST_MOVES]],
        "more_moves": max(0, len(moves) - _MOST_MOVES),
        "remarks": list(led.remarks),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """``source`` None: no client had it; ``target`` None: the copy is given up."""

    task: TaskId
    role: CopyRole
    source: ProcessId | None
    target: ProcessId | None
    had_copy: bool = False


def _moves(led: LedRebalance, before: LedRebalance | None) -> Iterator[_Move]:
    """Actives first, then copies, by task."""
    owners, copies = _before(led, before)
    after = led.assignment.clients
    for task, process in sorted((task, process) for process, client in after.items() for task in client.active):
        if owners.get(task) != process:
            had = (task, process) in copies
            yield _Move(task=task, role=CopyRole.ACTIVE, source=owners.get(task), target=process, had_copy=had)
    now = {(task, process): client for process, client in after.items() for task in client.standby}
    active_now = {(task, process) for process, client in after.items() for task in client.active}
    for task, process in sorted(now.keys() - copies):
        role = CopyRole.WARM_UP if task in now[task, process].warmup else CopyRole.STANDBY
        yield _Move(task=task, role=role, source=None, target=process)
    for task, process in sorted(copies - now.keys() - active_now):
        if process in after:
            yield _Move(task=task, role=CopyRole.STANDBY, source=process, target=None)


def _before(
    led: LedRebalance, before: LedRebalance | None
) -> tuple[dict[TaskId, ProcessId], set[tuple[TaskId, ProcessId]]]:
    """Owners of tasks and of copies before the rebalance."""
    if before is not None:
        held = before.assignment.clients.items()
    else:
        held = {
            client.process_id: ClientAssignment(active=client.previous_active, standby=client.previous_standby)
            for client in led.state.clients
        }.items()
    owners = {task: process for process, client in held for task in client.active}
    return owners, {(task, process) for process, client in held for task in client.standby}


def _move_to_json(move: _Move, decisions: list[Decision], names: _Names) -> dict[str, object]:
    fitting = [one for one in decisions if one.role is move.role and one.chosen == move.target] if move.target else []
    decision = next(iter(fitting), None)
    return {
        "task": str(move.task),
        "role": move.role.value,
        "from": names.of(move.source),
        "to": names.of(move.target),
        "had_copy": move.had_copy,
        "rule": None if decision is None else decision.rule,
        "reason": None if decision is None else names.within(decision.reason),
        "rebalances_to_go": None if decision is None else decision.rebalances_to_go,
    }


def _decision_to_json(decision: Decision, names: _Names) -> dict[str, object]:
    return {
        "task": str(decision.task),
        "role": decision.role.value,
        "rule": decision.rule,
        "on": names.of(decision.chosen),
        "target": names.of(decision.target),
        "rebalances_to_go": decision.rebalances_to_go,
        "reason": names.within(decision.reason),
        "source": decision.source,
        "candidates": [
            {"instance": names.of(process), "lag": lag, "rank": rank} for process, lag, rank in decision.candidates
        ],
    }


def _texts(tasks: frozenset[TaskId]) -> list[str]:
    return [str(task) for task in sorted(tasks)]
