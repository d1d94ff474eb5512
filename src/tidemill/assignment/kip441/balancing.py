"""Balance over stream threads: move copies from loaded clients to less loaded ones, as Kafka's assignor does.

Decides which copies move when some clients have more threads than others: passes over all pairs (source, destination)
in client order; a task moves while the source, after giving it up, would still carry at least as much per thread as
the destination would. Invariant: a client never gets a second copy of a task. The pairs are not visited one by one:
a tree over the destinations gives the next one that could take a task, which answers the same as visiting all.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from math import inf

from tidemill.assignment.balanced.load_tree import LoadTree
from tidemill.assignment.placement import TaskPlacement

Destinations = Sequence[Sequence[int]]
"""For each source client the clients, in order, that its tasks may move to; equal ones are best the same object."""


def balance_actives(placement: TaskPlacement) -> None:
    """Balance active copies; any client may take any task."""
    everyone = range(len(placement.clients))
    _balance(
        placement,
        placement.active_tasks,
        [everyone for _ in everyone],
        lambda task, _source, destination: placement.set_active(task, destination),
    )


def balance_standbys(placement: TaskPlacement, destinations: Destinations) -> None:
    """Balance standby copies, each within the destinations that its present client allows."""

    def move(task: int, source: int, destination: int) -> None:
        placement.drop_standby(task, source)
        placement.add_standby(task, destination)

    _balance(placement, placement.standby_tasks, destinations, move)


def _balance(
    placement: TaskPlacement,
    tasks_by_client: Callable[[], list[list[int]]],
    destinations: Destinations,
    move: Callable[[int, int, int], None],
) -> None:
    regions = Regions(placement, destinations)
    if not any(regions.first_below(source, 0) is not None for source in range(len(placement.clients))):
        return
    tasks = tasks_by_client()
    any_moved = True
    while any_moved:
        any_moved = False
        for source in range(len(tasks)):
            at = regions.first_below(source, 0)
            while at is not None and tasks[source]:
                destination = destinations[source][at]
                for task in tuple(tasks[source]):
                    if not regions.should_move(source, destination):
                        break
                    if not placement.holds(task, destination):
                        move(task, source, destination)
                        tasks[source].remove(task)
                        insort(tasks[destination], task)
                        regions.update(source)
                        regions.update(destination)
                        any_moved = True
                at = regions.first_below(source, at + 1)


class Regions:
    """The destinations of each source with the load that one more task would give them, in a tree per region."""

    def __init__(self, placement: TaskPlacement, destinations: Destinations) -> None:
        self._count, self._capacity = placement.count, placement.capacity
        self._destinations = destinations
        trees: dict[int, LoadTree[float]] = {}
        self._places: list[list[tuple[LoadTree[float], int]]] = [[] for _ in placement.clients]
        for region in destinations:
            if id(region) not in trees:
                tree = trees[id(region)] = LoadTree([self._load_with_one_more(client) for client in region], inf)
                for at, client in enumerate(region):
                    self._places[client].append((tree, at))
        self._tree_of = [trees[id(region)] for region in destinations]

    def first_below(self, source: int, start: int) -> int | None:
        """The first place of the source's region, from ``start``, whose client should take a task of the source."""
        limit = (self._count[source] - 1) / self._capacity[source]
        return self._tree_of[source].first_at_most(limit, start)

    def takers(self, source: int) -> Iterator[int]:
        """The clients that should take a task of the source, the least loaded first; updates end the iteration."""
        tried: list[tuple[int, int]] = []
        while (at := self._tree_of[source].least_outside(tried)) is not None:
            client = self._destinations[source][at]
            if not self.should_move(source, client):
                return
            yield client
            tried.append((at, at + 1))

    def should_move(self, source: int, destination: int) -> bool:
        return self._load_with_one_more(destination) <= (self._count[source] - 1) / self._capacity[source]

    def update(self, client: int) -> None:
        load = self._load_with_one_more(client)
        for tree, at in self._places[client]:
            tree.set(at, load)

    def _load_with_one_more(self, client: int) -> float:
        return (self._count[client] + 1) / self._capacity[client]
