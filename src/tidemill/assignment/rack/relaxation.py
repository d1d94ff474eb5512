"""Bellman-Ford in a fixed order of nodes and edges, with as many rounds as there are nodes, most of them not walked.

Decides exactly what the plain algorithm decides. Distances start at 0. A round looks at all nodes by number and relaxes
their edges in order. With n nodes, the results are the node that is relaxed first in round n + 1 (there is none without a
negative cycle) and the edge by which each node was reached.

Two things are left out, and neither changes a relaxation:
- a node whose distance has not changed since it was last looked at: none of its edges can relax;
- repetitions. With a negative cycle the rounds soon repeat themselves: the same relaxations by the same amounts, period
  after period. They go on until an edge that did not relax begins to, because its tail falls faster than its head; as
  the distances fall evenly, the number of periods until then is known, and so many are taken at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

LONGEST_PERIOD = 24
"""Longest period of a repetition, in rounds, that is looked for; rounds of a longer one are walked."""

OpenEdge = tuple[int, int, int]
"""(head, cost, edge)."""
_Relaxed = list[tuple[int, int, int]]
"""The relaxations of a round in order: (edge, its head, by how much the head's distance fell)."""


class Relaxation:
    """One search over the open edges of each node, which are in the order of their heads."""

    __slots__ = ("_distance", "_open", "_pending", "_recent", "edge_into")

    def __init__(self, open_edges: Sequence[Sequence[OpenEdge]]) -> None:
        self._open = open_edges
        self._distance = [0] * len(open_edges)
        self._pending = list(range(len(open_edges)))
        self._recent: deque[_Relaxed] = deque(maxlen=2 * LONGEST_PERIOD)
        self.edge_into = [-1] * len(open_edges)

    def first_node_of_last_round(self) -> int | None:
        last = len(self._open)
        done = 0
        while done < last:
            self._recent.append(self._round())
            done += 1
            if not self._pending:
                return None
            period = self._period()
            if period:
                done += period * self._skip(period, (last - done) // period)
        return self._first_relaxed()

    def _first_relaxed(self) -> int | None:
        distance = self._distance
        for tail in sorted(self._pending):
            for node, cost, edge in self._open[tail]:
                if distance[node] > distance[tail] + cost:
                    self.edge_into[node] = edge
                    return node
        return None

    def _round(self) -> _Relaxed:
        """Look at the pending nodes in order; those relaxed behind the walk are pending in the next round."""
        distance, edge_into, pending, open_edges = self._distance, self.edge_into, self._pending, self._open
        is_pending = bytearray(len(distance))
        for node in pending:
            is_pending[node] = 1
        relaxed: _Relaxed = []
        later: list[int] = []
        while pending:
            tail = heappop(pending)
            is_pending[tail] = 0
            base = distance[tail]
            for node, cost, edge in open_edges[tail]:
                nearer = base + cost
                if nearer < distance[node]:
                    relaxed.append((edge, node, distance[node] - nearer))
                    distance[node] = nearer
                    edge_into[node] = edge
                    if not is_pending[node]:
                        is_pending[node] = 1
                        if node > tail:
                            heappush(pending, node)
                        else:
                            later.append(node)
        heapify(later)
        self._pending = later
        return relaxed

    def _period(self) -> int:
        """The least number of rounds that just happened twice, one time after the other; 0 if there is none."""
        recent = list(self._recent)
        for period in range(1, len(recent) // 2 + 1):
            if recent[-period:] == recent[-2 * period : -period]:
                return period
        return 0

    def _skip(self, period: int, most: int) -> int:
        """Take as many further periods at once as are sure to repeat the last one, and not more than ``most``.

        Two equal periods mean that head and tail of each relaxed edge fall equally. An edge that was not relaxed is sure
        not to be, as long as its tail's distance now is not below what it would take with the head's distance a period ago.
        """
        falls: dict[int, int] = {}
        for relaxed in list(self._recent)[-period:]:
            for _, node, fall in relaxed:
                falls[node] = falls.get(node, 0) + fall
        periods = most
        for tail, falling in falls.items():
            reached = self._distance[tail]
            for node, cost, _ in self._open[tail]:
                slower = falls.get(node, 0)
                if falling > slower:
                    short = reached + cost - self._distance[node] - slower
                    periods = min(periods, short // (falling - slower))
            if periods <= 0:
                return 0
        for node, fall in falls.items():
            self._distance[node] -= periods * fall
        self._recent.clear()
        return periods
