"""A flow network with Kafka's answers among equally cheap ones: maximum flow, then minimum cost by cancelling cycles.

Decides which of several optimal flows is found, and so the order of every step: nodes and edges by number; shortest
augmenting paths breadth first; negative cycles by Bellman-Ford from a virtual node before all others, the cycle being
the one that the last round's first relaxation leads to. What nodes and costs mean is left to ``rack``.

Bellman-Ford looks only at nodes whose distance changed since they were last looked at: no other node can relax an
edge, so the sequence of relaxations stays the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush


class FlowGraph:
    """Directed edges between nodes 0 .. n-1, no two of them antiparallel; kept with their reverses as a residual graph.

    Edge ``e`` and ``e ^ 1`` are each other's reverse.
    """

    __slots__ = ("_adjacent", "_cost", "_head", "_residual", "_sorted")

    def __init__(self, nodes: int) -> None:
        self._adjacent: list[list[int]] = [[] for _ in range(nodes)]
        self._head: list[int] = []
        self._cost: list[int] = []
        self._residual: list[int] = []
        self._sorted = True

    def add_edge(self, tail: int, head: int, *, capacity: int, cost: int = 0, flow: int = 0) -> None:
        edge = len(self._head)
        self._head += (head, tail)
        self._cost += (cost, -cost)
        self._residual += (capacity - flow, flow)
        self._adjacent[tail].append(edge)
        self._adjacent[head].append(edge + 1)
        self._sorted = False

    def heads_with_flow(self, tail: int) -> list[int]:
        """Where flow goes from ``tail``, by node number."""
        edges = self._edges()[tail]
        return [self._head[edge] for edge in edges if edge % 2 == 0 and self._residual[edge + 1] > 0]

    def maximize_flow(self, source: int, sink: int) -> int:
        """Augment along shortest paths until there is none; the flow that leaves ``source``."""
        residual, head = self._residual, self._head
        adjacent = self._edges()
        while (into := self._shortest_path(source, sink)) is not None:
            path = []
            node = sink
            while node != source:
                path.append(into[node])
                node = head[into[node] ^ 1]
            self._push(path)
        return sum(residual[edge + 1] for edge in adjacent[source] if edge % 2 == 0)

    def minimize_cost(self) -> None:
        """Cancel negative cycles until there is none; the amount of flow stays."""
        while (cycle := self._negative_cycle()) is not None:
            self._push(cycle)

    def _edges(self) -> list[list[int]]:
        if not self._sorted:
            for edges in self._adjacent:
                edges.sort(key=self._head.__getitem__)
            self._sorted = True
        return self._adjacent

    def _push(self, edges: Sequence[int]) -> None:
        """As much flow as fits along these edges."""
        residual = self._residual
        amount = min(residual[edge] for edge in edges)
        for edge in edges:
            residual[edge] -= amount
            residual[edge ^ 1] += amount

    def _shortest_path(self, source: int, sink: int) -> dict[int, int] | None:
        """For each node that was reached, the edge into it; None if the sink can't be reached."""
        residual, head = self._residual, self._head
        adjacent = self._edges()
        into: dict[int, int] = {source: -1}
        queue = deque((source,))
        while queue:
            for edge in adjacent[queue.popleft()]:
                node = head[edge]
                if residual[edge] > 0 and node not in into:
                    into[node] = edge
                    if node == sink:
                        return into
                    queue.append(node)
        return None

    def _negative_cycle(self) -> list[int] | None:
        into = self._relax_until_cycle()
        if into is None:
            return None
        node, edge_into = into
        visited = set()
        while node not in visited:
            visited.add(node)
            node = self._head[edge_into[node] ^ 1]
        cycle: list[int] = []
        last = node
        while not cycle or node != last:
            cycle.append(edge_into[node])
            node = self._head[edge_into[node] ^ 1]
        return cycle

    def _relax_until_cycle(self) -> tuple[int, list[int]] | None:
        """The first node that gets nearer in the last round, and the edge into each node; None without a cycle."""
        head, cost, residual, adjacent = self._head, self._cost, self._residual, self._edges()
        count = len(adjacent)
        distance = [0] * count
        edge_into = [-1] * count
        pending = list(range(count))
        is_pending = [True] * count
        for round_number in range(count + 1):
            later: list[int] = []
            while pending:
                tail = heappop(pending)
                is_pending[tail] = False
                base = distance[tail]
                for edge in adjacent[tail]:
                    if residual[edge]:
                        node = head[edge]
                        nearer = base + cost[edge]
                        if nearer < distance[node]:
                            distance[node] = nearer
                            edge_into[node] = edge
                            if round_number == count:
                                return node, edge_into
                            if not is_pending[node]:
                                is_pending[node] = True
                                if node > tail:
                                    heappush(pending, node)
                                else:
                                    later.append(node)
            if not later:
                return None
            heapify(later)
            pending = later
        raise AssertionError("the last round neither relaxed an edge nor found the distances settled")
