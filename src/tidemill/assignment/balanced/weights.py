"""Balance by weight: exchange tasks of one sub-topology between clients so that their weights per thread come closer.

Decides which tasks of a target trade places when weights (state bytes, input rate) are given. Every exchange keeps the
number of tasks that each client has, in all and of each sub-topology, and lowers the greater load of its two clients.
Free exchanges, which neither move a running task more nor restore more state, are made whenever they help. Others only
take tasks from a client that carries clearly more than the average, and only where both tasks can run at once in their
new places: so weights never start a restoration, and no half of an exchange waits for the other. Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from tidemill.ids import TaskId

TOLERANCE = 0.1
"""A client may carry so much more than the average per thread before running tasks are moved for it."""
LEAST_GAIN = 0.01
"""An exchange must lower the greater load by so much of the average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Weights of having a task on a client."""

    runs_on: Mapping[TaskId, int]
    to_restore: Callable[[TaskId, int], int]
    """0 = nothing (the client is caught up), 1 = some of the state, 2 = all of it."""

    def moves(self, task: TaskId, client: int) -> bool:
        return self.runs_on.get(task, client) != client


class _Exchange(NamedTuple):
    """Ordered by preference: fewest moves, least to restore, lowest greater load, ids."""

    moves: int
    to_restore: int
    greater_load: float
    given: TaskId
    taken: TaskId


def even_out(
    target: Mapping[TaskId, int], weights: Mapping[TaskId, float], capacity: Sequence[int], effort: Effort
) -> dict[TaskId, int]:
    """``target`` (task -> client) after the exchanges; a task without weight counts as much as the average one."""
    clients = _Clients(target, weights, capacity, effort)
    while clients.exchange_from_heaviest():
        pass
    return clients.target


class _Clients:
    def __init__(
        self, target: Mapping[TaskId, int], weights: Mapping[TaskId, float], capacity: Sequence[int], effort: Effort
    ) -> None:
        unknown = fmean(weights.values())
        self.target = dict(target)
        self._weight = {task: weights.get(task, unknown) for task in target}
        self._capacity, self._effort = capacity, effort
        self._carried = [0.0] * len(capacity)
        self._held: list[dict[int, set[TaskId]]] = [{} for _ in capacity]
        for task, client in target.items():
            self._carried[client] += self._weight[task]
            self._held[client].setdefault(task.subtopology, set()).add(task)
        self._average = sum(self._carried) / sum(capacity)

    def exchange_from_heaviest(self) -> bool:
        """Make the best exchange of the most loaded client, with the least loaded one that offers any."""
        *others, heavy = sorted(range(len(self._capacity)), key=lambda client: (self._load(client), client))
        for light in others:
            best = min(self._acceptable(heavy, light), default=None)
            if best is not None:
                self._move(best.given, heavy, light)
                self._move(best.taken, light, heavy)
                return True
        return False

    def _acceptable(self, heavy: int, light: int) -> Iterator[_Exchange]:
        is_overloaded = self._load(heavy) > self._average * (1 + TOLERANCE)
        ceiling = self._load(heavy) - LEAST_GAIN * self._average
        for given, taken in self._pairs(heavy, light):
            difference = self._weight[given] - self._weight[taken]
            greater = max(
                (self._carried[heavy] - difference) / self._capacity[heavy],
                (self._carried[light] + difference) / self._capacity[light],
            )
            if difference <= 0 or greater >= ceiling:
                continue
            moves = self._more_moves(given, heavy, light) + self._more_moves(taken, light, heavy)
            restores = self._effort.to_restore(given, light), self._effort.to_restore(taken, heavy)
            more = sum(restores) - self._effort.to_restore(given, heavy) - self._effort.to_restore(taken, light)
            is_free = moves <= 0 and more <= 0
            if is_free or (is_overloaded and not any(restores)):
                yield _Exchange(moves, more, greater, given, taken)

    def _pairs(self, heavy: int, light: int) -> Iterator[tuple[TaskId, TaskId]]:
        for subtopology, given_ones in self._held[heavy].items():
            for given in given_ones:
                for taken in self._held[light].get(subtopology, ()):
                    yield given, taken

    def _more_moves(self, task: TaskId, source: int, destination: int) -> int:
        return self._effort.moves(task, destination) - self._effort.moves(task, source)

    def _load(self, client: int) -> float:
        return self._carried[client] / self._capacity[client]

    def _move(self, task: TaskId, source: int, destination: int) -> None:
        self._held[source][task.subtopology].remove(task)
        self._held[destination].setdefault(task.subtopology, set()).add(task)
        self._carried[source] -= self._weight[task]
        self._carried[destination] += self._weight[task]
        self.target[task] = destination
