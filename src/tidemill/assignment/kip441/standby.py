"""Placement of standby copies by load alone (Kafka's DefaultStandbyTaskAssignor).

Decides that per task, in order, each copy goes to the least loaded client (copies per thread, then client order) that
has none of the task. Invariant: no client gets a second copy of a task; a shortage of clients is reported, it is not
an error. Spreading copies over tags, and when that applies, is decided in ``tags``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tidemill.assignment.explain.rules import Rule
from tidemill.assignment.kip441.balancing import Destinations
from tidemill.assignment.model import ClientState
from tidemill.assignment.placement import TaskPlacement
from tidemill.ids import ProcessId, TaskId


class Shortfall(NamedTuple):
    """A stateful task (by position) that got ``missing`` standby copies less than configured: too few clients."""

    task: int
    missing: int


class StandbyPlacing(Protocol):
    """Policy for standby copies: how they are placed, and which client may hand a placed one to which other."""

    rule: Rule

    def place(self, placement: TaskPlacement, replicas: int) -> list[Shortfall]: ...

    def destinations(self, clients: Sequence[ClientState]) -> Destinations: ...

    def may_swap(
        self, source: ProcessId, target: ProcessId, task: TaskId, has: Callable[[ProcessId, TaskId], bool]
    ) -> bool: ...


class LeastLoaded:
    """DefaultStandbyTaskAssignor: load alone decides."""

    rule = Rule.LEAST_LOADED

    def place(self, placement: TaskPlacement, replicas: int) -> list[Shortfall]:
        return place_on_least_loaded(placement, [(task, replicas) for task in range(len(placement.tasks))])

    def destinations(self, clients: Sequence[ClientState]) -> Destinations:
        everyone = range(len(clients))
        return [everyone for _ in clients]

    def may_swap(
        self, source: ProcessId, target: ProcessId, task: TaskId, has: Callable[[ProcessId, TaskId], bool]
    ) -> bool:
        del source, target, task, has
        return True


def place_on_least_loaded(placement: TaskPlacement, wanted: Sequence[tuple[int, int]]) -> list[Shortfall]:
    """Place each ``(task, number of copies)`` in turn."""
    by_load = [(placement.load(client), client) for client in range(len(placement.clients))]
    heapq.heapify(by_load)
    shortfalls = []
    for task, copies in wanted:
        set_aside = []
        missing = copies
        while missing and by_load:
            client = by_load[0][1]
            if placement.holds(task, client):
                set_aside.append(heapq.heappop(by_load))
            else:
                placement.add_standby(task, client)
                heapq.heapreplace(by_load, (placement.load(client), client))
                missing -= 1
        if missing:
            shortfalls.append(Shortfall(task, missing))
        for entry in set_aside:
            heapq.heappush(by_load, entry)
    return shortfalls
