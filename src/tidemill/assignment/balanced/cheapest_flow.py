"""A maximum flow of least cost through a network without cycles, whose edges may demand a least flow.

Decides the flow, deterministically for the same order of edges. Costs are whole numbers, so that no rounding decides.
The method: shortest paths by reduced costs (Dijkstra), and on each distance as much flow as fits at once, so that the
number of searches grows with the number of different path costs and not with the flow.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class CheapestFlow:
    """Nodes are numbers in topological order, the source first and the sink last."""

    def __init__(self, nodes: int, *, above_all_costs: int) -> None:
        """``above_all_costs``: more than any whole flow can cost; what an unmet demand is worth."""
        self._edges: list[list[int]] = [[] for _ in range(nodes)]
        self._head: list[int] = []
        self._room: list[int] = []
        self._cost: list[int] = []
        self._penalty = above_all_costs

    def add_edge(self, tail: int, head: int, *, most: int, cost: int = 0, least: int = 0) -> int:
        """An edge with room for ``most``; returns its number for ``flow``. Demands are met if any flow meets them all."""
        if least:
            self._add(tail, head, least, cost - self._penalty)
        self._add(tail, head, most - least, cost)
        return len(self._head) - 2

    def _add(self, tail: int, head: int, room: int, cost: int) -> None:
        for start, end, capacity, price in ((tail, head, room, cost), (head, tail, 0, -cost)):
            self._edges[start].append(len(self._head))
            self._head.append(end)
            self._room.append(capacity)
            self._cost.append(price)

    def flow(self, edge: int) -> int:
        """The flow on an edge without a demand."""
        return self._room[edge ^ 1]

    def run(self) -> int:
        """Push as much as goes through, at least cost; returns how much that is."""
        potential = self._first_potentials()
        total = 0
        while potential is not None:
            total += self._push(potential)
            potential = self._next_potentials(potential)
        return total

    def _first_potentials(self) -> list[int | None] | None:
        """Distances from the source in topological order, since costs may be negative before any flow."""
        distance: list[int | None] = [None] * len(self._edges)
        distance[0] = 0
        for node, edges in enumerate(self._edges):
            so_far = distance[node]
            if so_far is None:
                continue
            for edge in edges:
                if self._room[edge] > 0:
                    head, there = self._head[edge], so_far + self._cost[edge]
                    best = distance[head]
                    if best is None or there < best:
                        distance[head] = there
        return distance if distance[-1] is not None else None

    def _next_potentials(self, potential: list[int | None]) -> list[int | None] | None:
        """Distances after some flow, by Dijkstra on reduced costs; None when the sink can't be reached any more."""
        head, room, cost, edges = self._head, self._room, self._cost, self._edges
        distance: list[int | None] = [None] * len(edges)
        heap = [(0, 0)]
        while heap:
            so_far, node = heapq.heappop(heap)
            if distance[node] is not None:
                continue
            distance[node] = so_far
            here = so_far + (potential[node] or 0)
            for edge in edges[node]:
                if room[edge] > 0 and distance[head[edge]] is None:
                    heapq.heappush(heap, (here + cost[edge] - (potential[head[edge]] or 0), head[edge]))
        if distance[-1] is None:
            return None
        return [
            None if far is None else far + (before or 0) for far, before in zip(distance, potential, strict=True)
        ]

    def _push(self, potential: list[int | None]) -> int:
        """A blocking flow over the edges on shortest paths, by depth-first search with a current edge per node."""
        tried = [0] * len(self._edges)
        level = self._levels(potential)
        sink, total = len(self._edges) - 1, 0
        path: list[int] = []
        node = 0
        while True:
            if node == sink:
                amount = min(self._room[edge] for edge in path)
                for edge in path:
                    self._room[edge] -= amount
                    self._room[edge ^ 1] += amount
                total += amount
                path, node = [], 0
                continue
            advanced = False
            edges = self._edges[node]
            while tried[node] < len(edges):
                edge = edges[tried[node]]
                if self._room[edge] > 0 and self._is_shortest(edge, node, potential, level):
                    path.append(edge)
                    node = self._head[edge]
                    advanced = True
                    break
                tried[node] += 1
            if advanced:
                continue
            if not path:
                return total
            edge = path.pop()
            node = self._head[edge ^ 1]
            tried[node] += 1

    def _is_shortest(self, edge: int, node: int, potential: list[int | None], level: list[int]) -> bool:
        head = self._head[edge]
        here, there = potential[node], potential[head]
        return there is not None and here is not None and here + self._cost[edge] == there and level[node] < level[head]

    def _levels(self, potential: list[int | None]) -> list[int]:
        """Steps from the source over edges on shortest paths, so that a search never runs in a circle of cost zero."""
        level = [-1] * len(self._edges)
        level[0] = 0
        row = [0]
        while row:
            row = list(self._next_row(row, potential, level))
        return level

    def _next_row(self, row: list[int], potential: list[int | None], level: list[int]) -> Iterator[int]:
        for node in row:
            here = potential[node]
            assert here is not None
            for edge in self._edges[node]:
                head = self._head[edge]
                if level[head] < 0 and self._room[edge] > 0 and here + self._cost[edge] == potential[head]:
                    level[head] = level[node] + 1
                    yield head
