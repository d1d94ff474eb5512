"""Standby copies spread over client tags (Kafka's ClientTagAwareStandbyTaskAssignor).

Decides, per task in order, that each copy goes to the least loaded client that shares no configured tag value with
the clients used before (the active's first). When a tag has no more values than clients used, it excludes no client any
longer. Copies that find no such client are placed afterwards by load alone, in the order of Java's hash map of tasks.
Invariant: no client gets a second copy. The work per copy depends on the number of tag values, not of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from tidemill.assignment.balanced.load_tree import LoadTree
from tidemill.assignment.explain.rules import Rule
from tidemill.assignment.kip441.balancing import Destinations
from tidemill.assignment.kip441.standby import LeastLoaded, Shortfall, StandbyPlacing, place_on_least_loaded
from tidemill.assignment.model import ApplicationState, ClientState
from tidemill.assignment.placement import TaskPlacement
from tidemill.ids import ProcessId, TaskId
from tidemill.java_collections.hash_table import HashTable, task_hash

Tags = Mapping[str, str]
Range = tuple[int, int]


def standby_placing(state: ApplicationState) -> StandbyPlacing:
    """Placement by tags if ``rack.aware.assignment.tags`` names any, else by load alone; clients' racks are not considered."""
    keys = frozenset(state.config.rack_aware_assignment_tags)
    return TagSpread({client.process_id: client.tags for client in state.clients}, keys) if keys else LeastLoaded()


class TagSpread:
    """Placing by the tags of each client, of which only ``keys`` spread copies."""

    rule = Rule.SPREAD_OVER_TAGS

    def __init__(self, tags: Mapping[ProcessId, Tags], keys: frozenset[str]) -> None:
        self._tags = tags
        self._keys = keys

    def place(self, placement: TaskPlacement, replicas: int) -> list[Shortfall]:
        row = self.row(placement)
        pending: dict[int, int] = {}
        for task in range(len(placement.tasks)):
            missing = replicas - spread(placement, row, task, UsedTags(row, placement.active[task]), replicas)
            if missing:
                pending[task] = missing
        if not pending:
            return []
        return place_on_least_loaded(placement, [(task, pending[task]) for task in _hash_order(placement, pending)])

    def destinations(self, clients: Sequence[ClientState]) -> Destinations:
        """Balancing moves a copy only to a client that has every tag of its present one with the same value."""
        allowed: dict[frozenset[tuple[str, str]], list[int]] = {}
        tags = [frozenset(self._tags[client.process_id].items()) for client in clients]
        for source in tags:
            if source not in allowed:
                allowed[source] = [client for client, of_client in enumerate(tags) if source <= of_client]
        return [allowed[source] for source in tags]

    def may_swap(
        self, source: ProcessId, target: ProcessId, task: TaskId, has: Callable[[ProcessId, TaskId], bool]
    ) -> bool:
        """A rack-aware swap may not lower the number of different tag values among the clients of the task."""
        others = {
            tag
            for client, tags in self._tags.items()
            if client not in (source, target) and has(client, task)
            for tag in tags.items()
        }
        return len(others.union(self._tags[target].items())) >= len(others.union(self._tags[source].items()))

    def row(self, placement: TaskPlacement) -> TagRow:
        """The clients by those of their tags that spread copies."""
        tags = (self._tags[client.process_id] for client in placement.clients)
        return TagRow(placement, [{key: own[key] for key in own if key in self._keys} for own in tags])


class TagRow:
    """All clients in a row where those of equal tags are together, so that a tag value excludes few ranges."""

    def __init__(self, placement: TaskPlacement, tags: Sequence[Tags]) -> None:
        self.tags = tags
        self.values: dict[str, set[str]] = {}
        for of_client in tags:
            for key, value in of_client.items():
                self.values.setdefault(key, set()).add(value)
        keys = sorted(self.values, key=lambda key: (len(self.values[key]), key))
        self.client_at = sorted(
            range(len(tags)), key=lambda client: ([tags[client].get(key, "") for key in keys], client)
        )
        self.place_of = [0] * len(tags)
        for place, client in enumerate(self.client_at):
            self.place_of[client] = place
        self.ranges: dict[tuple[str, str], list[Range]] = {}
        for place, client in enumerate(self.client_at):
            for entry in tags[client].items():
                ranges = self.ranges.setdefault(entry, [])
                if ranges and ranges[-1][1] == place:
                    ranges[-1] = (ranges[-1][0], place + 1)
                else:
                    ranges.append((place, place + 1))
        self._tree: LoadTree[tuple[float, int]] = LoadTree(
            [(placement.load(client), client) for client in self.client_at], (inf, -1)
        )

    def least_loaded(self, excluded: Sequence[Range]) -> int | None:
        place = self._tree.least_outside(excluded)
        return None if place is None else self.client_at[place]

    def update(self, client: int, load: float) -> None:
        self._tree.set(self.place_of[client], (load, client))


class UsedTags:
    """Clients that the next copy of one task may not go to, given the clients used so far, the active's first."""

    def __init__(self, row: TagRow, active: int) -> None:
        self._row = row
        self._clients: list[int] = []
        self._values: dict[str, set[str]] = {}
        self.add(active)

    def add(self, client: int) -> None:
        """Use a client; a tag with no more values than clients used is forgotten."""
        self._clients.append(client)
        for key, value in self._row.tags[client].items():
            if len(self._row.values[key]) <= len(self._clients):
                self._values.pop(key, None)
            else:
                self._values.setdefault(key, set()).add(value)

    def allows(self, client: int) -> bool:
        tags = self._row.tags[client]
        return client not in self._clients and not any(
            tags.get(key) in values for key, values in self._values.items()
        )

    def excluded(self) -> list[Range]:
        places = [self._row.place_of[client] for client in self._clients]
        return [(place, place + 1) for place in places] + [
            ranges
            for key, values in self._values.items()
            for value in values
            for ranges in self._row.ranges[key, value]
        ]


def spread(placement: TaskPlacement, row: TagRow, task: int, used: UsedTags, copies: int) -> int:
    """Place up to ``copies`` copies of a task on clients that ``used`` leaves over; how many were placed."""
    for placed in range(copies):
        client = row.least_loaded(used.excluded())
        if client is None:
            return placed
        placement.add_standby(task, client)
        row.update(client, placement.load(client))
        used.add(client)
    return copies


def _hash_order(placement: TaskPlacement, pending: Mapping[int, int]) -> Iterator[int]:
    """The order of a HashMap of all stateful tasks from which those without pending copies were removed in turn."""
    left = HashTable(task_hash, placement.tasks)
    number = {task: position for position, task in enumerate(placement.tasks)}
    for position, task in enumerate(placement.tasks):
        if position not in pending:
            left.remove(task)
    return (number[task] for task in left)
