"""A flow network with Kafka's answers among equally cheap ones: maximum flow, then minimum cost by cancelling cycles.

Decides which of several optimal flows is found, and so the order of every step. Nodes and edges go by number. Shortest
augmenting paths are found breadth first, negative cycles by Bellman-Ford from a virtual node before all others: the
cycle is the one that the last round's first relaxation leads to. ``aware`` knows what nodes and costs mean;
``relaxation`` makes Bellman-Ford faster with the same answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidemill.assignment.rack.relaxation import OpenEdge, Relaxation


class FlowGraph:
    """Directed edges between nodes 0 .. n-1, no two of them antiparallel; kept with their reverses as a residual graph.

    Edge ``e`` and ``e ^ 1`` are each other's reverse. An edge is open while something more fits through it.
    """

    __slots__ = ("_adjacent", "_cost", "_head", "_open", "_residual", "_stale")

    def __init__(self, nodes: int) -> None:
        self._adjacent: list[list[int]] = [[] for _ in range(nodes)]
        self._head: list[int] = []
        self._cost: list[int] = []
        self._residual: list[int] = []
        self._open: list[list[OpenEdge]] = [[] for _ in range(nodes)]
        self._stale: set[int] = set()

    def add_edge(self, tail: int, head: int, *, capacity: int, cost: int = 0, flow: int = 0) -> None:
        edge = len(self._head)
        self._head += (head, tail)
        self._cost += (cost, -cost)
        self._residual += (capacity - flow, flow)
        self._adjacent[tail].append(edge)
        self._adjacent[head].append(edge + 1)
        self._stale.update((tail, head))

    def heads_with_flow(self, tail: int) -> list[int]:
        """Heads of the edges with flow from ``tail``, by node number."""
        return sorted(self._head[edge] for edge in self._adjacent[tail] if edge % 2 == 0 and self._residual[edge + 1] > 0)

    def maximize_flow(self, source: int, sink: int) -> int:
        """Augment along shortest paths until there is none; the flow that leaves ``source``."""
        while (path := self._shortest_path(source, sink)) is not None:
            self._push(path)
        return sum(self._residual[edge + 1] for edge in self._adjacent[source] if edge % 2 == 0)

    def minimize_cost(self) -> None:
        """Cancel negative cycles until there is none; the amount of flow stays."""
        while (cycle := self._negative_cycle()) is not None:
            self._push(cycle)

    def _open_edges(self) -> list[list[OpenEdge]]:
        """The open edges of each node, by the number of the node that they lead to."""
        for node in self._stale:
            self._open[node] = sorted(
                (self._head[edge], self._cost[edge], edge) for edge in self._adjacent[node] if self._residual[edge] > 0
            )
        self._stale.clear()
        return self._open

    def _push(self, edges: Iterable[int]) -> None:
        """Pushes as much flow as fits along these edges."""
        residual = self._residual
        amount = min(residual[edge] for edge in edges)
        for edge in edges:
            residual[edge] -= amount
            residual[edge ^ 1] += amount
            self._stale.update((self._head[edge], self._head[edge ^ 1]))

    def _shortest_path(self, source: int, sink: int) -> list[int] | None:
        """The edges of the path, last one first; None if the sink can't be reached."""
        open_edges = self._open_edges()
        into: dict[int, int] = {source: -1}
        queue = deque((source,))
        while queue and sink not in into:
            for node, _, edge in open_edges[queue.popleft()]:
                if node not in into:
                    into[node] = edge
                    queue.append(node)
        if sink not in into:
            return None
        path = []
        node = sink
        while node != source:
            path.append(into[node])
            node = self._head[into[node] ^ 1]
        return path

    def _negative_cycle(self) -> list[int] | None:
        """The edges of the cycle that Bellman-Ford's last round leads to."""
        search = Relaxation(self._open_edges())
        node = search.first_node_of_last_round()
        if node is None:
            return None
        edge_into = search.edge_into
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
