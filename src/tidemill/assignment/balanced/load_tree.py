"""A tree of least loads over a row of clients: finds the least loaded client outside of ranges, and the first one below a load.

Decides ties by place: the leftmost of equal loads; a caller who wants another order among them makes the loads
different, as pairs of (load, order). The caller knows what a load is and whose place is which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

Load = TypeVar("Load", float, tuple[float, int])


class LoadTree(Generic[Load]):
    """A complete binary tree whose leaves are the loads, each inner node the least of its two; updates cost log n."""

    __slots__ = ("_length", "_size", "_tree")

    def __init__(self, loads: Sequence[Load], above_all: Load) -> None:
        self._length = len(loads)
        self._size = size = 1 << max(len(loads) - 1, 0).bit_length()
        tree: list[Load] = [above_all] * size
        tree += loads
        tree += [above_all] * (size - len(loads))
        for node in range(size - 1, 0, -1):
            tree[node] = min(tree[2 * node], tree[2 * node + 1])
        self._tree: list[Load] = tree

    def set(self, at: int, load: Load) -> None:
        tree = self._tree
        node = at + self._size
        tree[node] = load
        while node > 1:
            node >>= 1
            left, right = tree[2 * node], tree[2 * node + 1]
            least = left if left <= right else right
            if tree[node] == least:
                return
            tree[node] = least

    def first_at_most(self, limit: Load, start: int) -> int | None:
        """The first place from ``start`` on whose load is at most ``limit``."""
        tree = self._tree
        if start >= self._length or tree[1] > limit:
            return None
        node = start + self._size
        while tree[node] > limit:
            while node & 1:
                node >>= 1
            if node == 0:
                return None
            node += 1
        return self._leftmost(node, limit)

    def least_outside(self, excluded: Iterable[tuple[int, int]]) -> int | None:
        """The leftmost place of the least load that lies in none of the ranges [from, to)."""
        nodes: list[int] = []
        start = 0
        for low, high in sorted(excluded):
            if low > start:
                nodes += self._cover(start, low)
            start = max(start, high)
        if start < self._length:
            nodes += self._cover(start, self._length)
        if not nodes:
            return None
        best = min(nodes, key=self._tree.__getitem__)
        return self._leftmost(best, self._tree[best])

    def _cover(self, low: int, high: int) -> list[int]:
        """The nodes that make up [low, high), from left to right."""
        left, right = low + self._size, high + self._size
        first: list[int] = []
        last: list[int] = []
        while left < right:
            if left & 1:
                first.append(left)
                left += 1
            if right & 1:
                right -= 1
                last.append(right)
            left >>= 1
            right >>= 1
        return first + last[::-1]

    def _leftmost(self, node: int, limit: Load) -> int:
        while node < self._size:
            node = 2 * node if self._tree[2 * node] <= limit else 2 * node + 1
        return node - self._size
