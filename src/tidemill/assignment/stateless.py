"""Stateless tasks, which any client can run at once: each in order to the client with the fewest actives per thread.

Decides nothing else; ties go to the first client.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tidemill.assignment.placement import TaskPlacement


def least_active_clients(placement: TaskPlacement, task_count: int) -> list[int]:
    """The clients of so many stateless tasks, in task order."""
    count = list(placement.active_count)
    capacity: Sequence[int] = placement.capacity
    by_load = [(count[client] / capacity[client], client) for client in range(len(count))]
    heapq.heapify(by_load)
    clients = []
    for _ in range(task_count):
        client = by_load[0][1]
        clients.append(client)
        count[client] += 1
        heapq.heapreplace(by_load, (count[client] / capacity[client], client))
    return clients
