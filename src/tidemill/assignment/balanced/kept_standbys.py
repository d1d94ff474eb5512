"""Standby copies that stay where state is, evened out with as few moves as that takes.

Decides, for the ``balanced`` assignor, which clients get the standbys of each task: those that are caught up (the one
that runs the task now last, since its copy still serves), then those with some of the state, then the least loaded.
Of more copies than are wanted, the one on the most loaded client is given up.
Then the most loaded client hands copies to the least loaded that can take one, as long as that evens out copies per
thread; best a copy whose state the taker has and the giver lacks. Tags are respected all along. Invariants: no client
gets a second copy; where nothing is uneven, nothing is moved.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from tidemill.assignment.kip441.balancing import Destinations, Regions
from tidemill.assignment.kip441.standby import Shortfall, place_on_least_loaded
from tidemill.assignment.kip441.tags import TagRow, UsedTags, spread
from tidemill.assignment.lag import Lags
from tidemill.assignment.model import LATEST_OFFSET
from tidemill.assignment.placement import TaskPlacement


def keep_standbys(placement: TaskPlacement, lags: Lags, row: TagRow, replicas: int) -> list[Shortfall]:
    """Place ``replicas`` standbys of each task; returns which tasks got too few."""
    used = [UsedTags(row, active) for active in placement.active]
    copies = _copies_with_state(placement, lags)
    given_up: list[list[int]] = []
    for task, used_for_task in enumerate(used):
        left = _in_order_of_keeping(placement, lags, task, copies)
        while len(placement.standbys[task]) < replicas:
            client = next(filter(used_for_task.allows, left), None)
            if client is None:
                break
            left.remove(client)
            used_for_task.add(client)
            _add(placement, row, task, client)
        for client in left:
            copies[client] -= 1
        given_up.append(left)
    pending = []
    for task, used_for_task in enumerate(used):
        missing = replicas - len(placement.standbys[task])
        missing -= spread(placement, row, task, used_for_task, missing)
        for client in given_up[task]:
            if missing and not placement.holds(task, client):
                _add(placement, row, task, client)
                missing -= 1
        if missing:
            pending.append((task, missing))
    return place_on_least_loaded(placement, pending)


def even_out_standbys(placement: TaskPlacement, lags: Lags, destinations: Destinations) -> None:
    """Move standbys from the most loaded clients to the least loaded of their ``destinations``."""
    tasks = [set(of_client) for of_client in placement.standby_tasks()]
    regions = Regions(placement, destinations)
    any_moved = True
    while any_moved:
        any_moved = False
        givers = [(-placement.load(client), client) for client in range(len(placement.clients))]
        heapq.heapify(givers)
        while givers:
            load, giver = heapq.heappop(givers)
            found = None if -load != placement.load(giver) else _best_move(placement, lags, regions, tasks[giver], giver)
            if found is None:
                continue
            task, taker = found
            any_moved = True
            placement.drop_standby(task, giver)
            placement.add_standby(task, taker)
            tasks[giver].remove(task)
            tasks[taker].add(task)
            for client in (giver, taker):
                regions.update(client)
                heapq.heappush(givers, (-placement.load(client), client))


def _add(placement: TaskPlacement, row: TagRow, task: int, client: int) -> None:
    placement.add_standby(task, client)
    row.update(client, placement.load(client))


def _best_move(
    placement: TaskPlacement, lags: Lags, regions: Regions, tasks: Collection[int], giver: int
) -> tuple[int, int] | None:
    """The least loaded client that can take a standby of the giver, and the task that costs least to restore there."""
    for taker in regions.takers(giver):
        movable = [
            (lags.to_restore(task, taker) - lags.to_restore(task, giver), task)
            for task in tasks
            if not placement.holds(task, taker)
        ]
        if movable:
            return min(movable)[1], taker
    return None


def _copies_with_state(placement: TaskPlacement, lags: Lags) -> list[int]:
    """The copies that each client would have if every copy with some state stayed."""
    copies = placement.count.copy()
    for task, active in enumerate(placement.active):
        for _, client in lags.reported(task):
            copies[client] += client != active
    return copies


def _in_order_of_keeping(placement: TaskPlacement, lags: Lags, task: int, copies: Sequence[int]) -> list[int]:
    """The clients with state of the task but its active's: caught-up ones (the running one last), then the others.

    Of several the least loaded comes first, so that the copy to give up is the one on the most loaded client.
    """
    ranked = [
        (
            not lags.is_caught_up(task, client),
            lag == LATEST_OFFSET,
            copies[client] / placement.capacity[client],
            client,
        )
        for lag, client in lags.reported(task)
        if client != placement.active[task]
    ]
    return [client for *_, client in sorted(ranked)]
