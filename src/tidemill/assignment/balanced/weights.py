"""Balance by weight: tasks change their client so that the weights per thread come closer.

Decides which tasks trade places, or go to another client, when weights (input rate, state) are given. First the nearest balanced
target is evened out by exchanges of two tasks of one sub-topology, which keep the counts. A free exchange neither moves another
running task nor restores more state: it is made whenever it helps. Any other one is made only if the most loaded client carries
clearly more than the average (``TOLERANCE``), and if both tasks can run at once in their new places: so neither waits for the
other.

Only where a client would still carry far more (``FAR_MORE``) do weights count for more than numbers of tasks. Then the running
placement is the start, if all counts are within ``COUNT_BOUND`` of an even one, in all and in each sub-topology; tasks that run
nowhere go to the least loaded of the clients with the least to restore, within those bounds. Besides exchanges there are

    hand-overs  of one task of the most loaded client, within ``COUNT_BOUND``; state is restored for them, by warm-ups.
    evenings    of counts: a client with more tasks than its share relieves itself for one that lacks some.

Of these a client either gives tasks or takes some in one assignment, so that those that are carried out first leave a state that
is better too. Each step lowers the greater load of its two clients. Deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from tidemill.assignment.task_load import COUNT_BOUND, CountBounds, count_bounds
from tidemill.ids import TaskId

TOLERANCE = 0.1
"""Fraction of the average per thread that a client may carry in addition before running tasks are moved for it."""
LEAST_GAIN = 0.01
"""Fraction of the average by which a step must lower the greater load."""
FAR_MORE = 0.25
"""Fraction of the average per thread that a client may carry in addition before state is restored for it."""
LEAST_RESTORE_GAIN = 0.1
"""Fraction of the average by which a step that restores state must lower the greater load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Weights of having a task on a client."""

    runs_on: Mapping[TaskId, int]
    to_restore: Callable[[TaskId, int], int]
    """0 = nothing (the client is caught up), 1 = some of the state, 2 = all of it."""

    def moves(self, task: TaskId, client: int) -> bool:
        return self.runs_on.get(task, client) != client


class _Step(NamedTuple):
    """Ordered by preference: free; undoes moves; keeps counts; fewest moves, least to restore, lowest greater load."""

    is_costly: bool
    undone: int
    """The moves of a free step, 0 or fewer."""
    is_hand_over: bool
    moves: int
    to_restore: int
    greater_load: float
    given: TaskId
    taken: TaskId | tuple[()]
    """The task that the other client gives in exchange; () for a hand-over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvenedOut:
    """The target after all steps. ``weights``: of each task, 1.0 being the average one's; ``before``, ``after``: what each client
    carries, 1.0 being its share by threads."""

    target: Mapping[TaskId, int]
    weights: Mapping[TaskId, float]
    before: Sequence[float]
    after: Sequence[float]


def even_out(
    target: Mapping[TaskId, int], weights: Mapping[TaskId, float], capacity: Sequence[int], effort: Effort
) -> EvenedOut:
    """``target`` (task -> client), evened out; a task without weight counts as much as the average one."""
    unknown = fmean(weights.values())
    of_each = {task: weights.get(task, unknown) for task in target}
    average = fmean(of_each.values())
    of_each = {task: weight / average for task, weight in of_each.items()}
    clients = _Clients(target, of_each, capacity, effort)
    before = clients.shares()
    while clients.step_from_heaviest(may_hand_over=False):
        pass
    if max(clients.shares()) > 1 + FAR_MORE and effort.runs_on:
        running = _Clients(effort.runs_on, of_each, capacity, effort)
        running.place_free_tasks()
        clients = _spread(clients, running)
    return EvenedOut(target=clients.target, weights=of_each, before=before, after=clients.shares())


def _spread(even: _Clients, running: _Clients) -> _Clients:
    """The running placement, evened out with hand-overs, if that gains enough; else the placement with even counts."""
    if not running.has_bounded_counts():
        return even
    while running.step_from_heaviest(may_hand_over=True) or running.step_to_even_counts():
        pass
    return running if max(running.shares()) <= max(even.shares()) - LEAST_RESTORE_GAIN else even


ALL = -1
"""All tasks, where else a sub-topology's number counts its tasks."""


class _Clients:
    def __init__(
        self, target: Mapping[TaskId, int], weights: Mapping[TaskId, float], capacity: Sequence[int], effort: Effort
    ) -> None:
        self.target: dict[TaskId, int] = {}
        self._weight = weights
        self._capacity, self._effort = capacity, effort
        self._carried = [0.0] * len(capacity)
        self._held: list[dict[int, set[TaskId]]] = [{} for _ in capacity]
        self._counts = [0] * len(capacity)
        for task, client in target.items():
            self._place(task, client)
        threads = sum(capacity)
        self._average = sum(weights[task] for task in sorted(weights)) / threads
        totals = {ALL: len(weights), **Counter(task.subtopology for task in weights)}
        self._gave: set[int] = set()
        self._took: set[int] = set()
        self._shares = [_bounds(totals, of_client, threads, 0.0) for of_client in capacity]
        self._bounds = [_bounds(totals, of_client, threads, COUNT_BOUND) for of_client in capacity]

    def shares(self) -> list[float]:
        """Load of each client, in multiples of its share."""
        return [self._load(client) / self._average for client in range(len(self._capacity))]

    def place_free_tasks(self) -> None:
        """Places the tasks that run nowhere, the heaviest first: where the least is to be restored, then where the load is least.

        Within the bounds of the counts, since ``_spread`` rejects a placement outside of them.
        """
        free = sorted(self._weight.keys() - self.target.keys(), key=lambda task: (-self._weight[task], task))
        left = {ALL: len(free), **Counter(task.subtopology for task in free)}
        for task in free:
            _, _, client = min(self._placed(task, client) for client in self._with_room(task, left))
            self._place(task, client)
            left[ALL] -= 1
            left[task.subtopology] -= 1

    def _placed(self, task: TaskId, client: int) -> tuple[int, float, int]:
        load = (self._carried[client] + self._weight[task]) / self._capacity[client]
        return self._effort.to_restore(task, client), load, client

    def _with_room(self, task: TaskId, left: Mapping[int, int]) -> Sequence[int]:
        """Clients that may take ``task``; ``left``: number of free tasks, in all and by sub-topology.

        If all of these are needed to bring clients up to their least count, only such clients.
        """
        found: Sequence[int] = range(len(self._capacity))
        for group in (ALL, task.subtopology):
            below = [client for client in found if self._count(client, group) < self._bounds[client][group].most]
            lacks = {client: self._bounds[client][group].least - self._count(client, group) for client in below}
            lacking = [client for client, number in lacks.items() if number > 0]
            must = sum(lacks[client] for client in lacking) >= left[group]
            found = (lacking if must else below) or found
        return found

    def step_from_heaviest(self, *, may_hand_over: bool) -> bool:
        """Make the best step of the most loaded client, of the kind that is preferred among all that any client offers it."""
        *others, heavy = sorted(range(len(self._capacity)), key=lambda client: (self._load(client), client))
        best: tuple[_Step, int] | None = None
        for light in others:
            found = min(self._acceptable(heavy, light, may_hand_over=may_hand_over), default=None)
            if found is not None and (best is None or found[:3] < best[0][:3]):
                best = found, light
        if best is None:
            return False
        step, light = best
        self._move(step.given, heavy, light)
        if isinstance(step.taken, TaskId):
            self._move(step.taken, light, heavy)
        elif step.is_costly:
            self._gave.add(heavy)
            self._took.add(light)
        return True

    def step_to_even_counts(self) -> bool:
        """Hand over one task that makes the counts more even and lowers the greater load of the two clients."""
        best = min(self._uneven_counts(), default=None)
        if best is None:
            return False
        _, _, _, task, source, destination = best
        self._move(task, source, destination)
        self._gave.add(source)
        self._took.add(destination)
        return True

    def has_bounded_counts(self) -> bool:
        return all(
            least <= self._count(client, group) <= most
            for client, bounds in enumerate(self._bounds)
            for group, (least, most) in bounds.items()
        )

    def _uneven_counts(self) -> Iterator[tuple[int, int, float, TaskId, int, int]]:
        """(moves, to restore, greater load, task, source, destination) of each task that ``step_to_even_counts`` might take."""
        clients = range(len(self._capacity))
        for group in self._shares[0]:
            counts = [self._count(client, group) for client in clients]
            givers = [client for client in clients if counts[client] > self._shares[client][group].least]
            takers = [client for client in clients if counts[client] < self._shares[client][group].most]
            for source in givers:
                is_above = counts[source] > self._shares[source][group].most
                for destination in takers:
                    is_below = counts[destination] < self._shares[destination][group].least
                    fits = self._fits_roles(source, destination)
                    if fits and (is_above or is_below) and self._load(destination) < self._load(source):
                        yield from self._relieving(group, source, destination)

    def _relieving(self, group: int, source: int, destination: int) -> Iterator[tuple[int, int, float, TaskId, int, int]]:
        ceiling = self._load(source) - LEAST_GAIN * self._average
        for subtopology, held in self._held[source].items():
            if group not in (ALL, subtopology) or not self._may_hand_over(subtopology, source, destination):
                continue
            for task in held:
                greater = max(
                    (self._carried[source] - self._weight[task]) / self._capacity[source],
                    (self._carried[destination] + self._weight[task]) / self._capacity[destination],
                )
                if greater < ceiling:
                    moves = self._effort.moves(task, destination) - self._effort.moves(task, source)
                    yield moves, self._effort.to_restore(task, destination), greater, task, source, destination

    def _acceptable(self, heavy: int, light: int, *, may_hand_over: bool) -> Iterator[_Step]:
        load = self._load(heavy)
        for given, taken in self._candidates(heavy, light, may_hand_over=may_hand_over):
            difference = self._weight[given] - (self._weight[taken] if isinstance(taken, TaskId) else 0.0)
            if difference <= 0:
                continue
            greater = max(
                (self._carried[heavy] - difference) / self._capacity[heavy],
                (self._carried[light] + difference) / self._capacity[light],
            )
            gain = load - greater
            if gain <= LEAST_GAIN * self._average:
                continue
            moved = [(given, heavy, light), *([(taken, light, heavy)] if isinstance(taken, TaskId) else [])]
            moves = sum(self._effort.moves(task, to) - self._effort.moves(task, at) for task, at, to in moved)
            restores = [self._effort.to_restore(task, to) for task, _, to in moved]
            more = sum(restores) - sum(self._effort.to_restore(task, at) for task, at, _ in moved)
            is_free = moves <= 0 and more <= 0
            is_exchange = len(moved) == 2
            may = is_exchange or self._fits_roles(heavy, light)
            if is_free or (may and self._is_worth(load, gain, restores=any(restores), is_exchange=is_exchange)):
                undone = moves if is_free else 0
                yield _Step(not is_free, undone, not is_exchange, moves, more, greater, given, taken)

    def _is_worth(self, load: float, gain: float, *, restores: bool, is_exchange: bool) -> bool:
        """The moves of running tasks, and the restoring if there is any."""
        if restores:
            return not is_exchange and load > self._average * (1 + FAR_MORE) and gain >= self._average * LEAST_RESTORE_GAIN
        return load > self._average * (1 + TOLERANCE)

    def _fits_roles(self, source: int, destination: int) -> bool:
        return source not in self._took and destination not in self._gave

    def _candidates(self, heavy: int, light: int, *, may_hand_over: bool) -> Iterator[tuple[TaskId, TaskId | tuple[()]]]:
        for subtopology, given_ones in self._held[heavy].items():
            others = self._held[light].get(subtopology, ())
            is_within = may_hand_over and self._may_hand_over(subtopology, heavy, light)
            for given in given_ones:
                for taken in others:
                    yield given, taken
                if is_within:
                    yield given, ()

    def _may_hand_over(self, subtopology: int, source: int, destination: int) -> bool:
        """Within the bounds of the counts."""
        return all(
            self._count(source, group) > self._bounds[source][group].least
            and self._count(destination, group) < self._bounds[destination][group].most
            for group in (ALL, subtopology)
        )

    def _count(self, client: int, group: int) -> int:
        return self._counts[client] if group == ALL else len(self._held[client].get(group, ()))

    def _load(self, client: int) -> float:
        return self._carried[client] / self._capacity[client]

    def _move(self, task: TaskId, source: int, destination: int) -> None:
        self._held[source][task.subtopology].remove(task)
        self._counts[source] -= 1
        self._carried[source] -= self._weight[task]
        self._place(task, destination)

    def _place(self, task: TaskId, client: int) -> None:
        self.target[task] = client
        self._held[client].setdefault(task.subtopology, set()).add(task)
        self._counts[client] += 1
        self._carried[client] += self._weight[task]


def _bounds(totals: Mapping[int, int], capacity: int, threads: int, bound: float) -> dict[int, CountBounds]:
    return {group: count_bounds(total, capacity, threads, bound) for group, total in totals.items()}
