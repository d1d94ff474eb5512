"""``java.util.PriorityQueue``: its array order and, among equal keys, its polling order; some answers depend on both.

Decides nothing else: what is queued, and whether the array is walked or polled, is left to the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class JavaPriorityQueue(Generic[T]):
    """Entries with a key each, least key first; iteration gives the heap's array, as Java's iterator does."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[Any, T]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[T]:
        return (item for _, item in self._heap)

    def add(self, key: Any, item: T) -> None:
        heap = self._heap
        at = len(heap)
        heap.append((key, item))
        while at > 0:
            parent = (at - 1) >> 1
            if key >= heap[parent][0]:
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = (key, item)

    def peek(self) -> T:
        """The least; IndexError when empty."""
        return self._heap[0][1]

    def poll(self) -> T:
        """Take the least; IndexError when empty."""
        heap = self._heap
        last = heap.pop()
        if not heap:
            return last[1]
        first, heap[0] = heap[0], last
        key, size, at = last[0], len(heap), 0
        half = size >> 1
        while at < half:
            child = 2 * at + 1
            if child + 1 < size and heap[child][0] > heap[child + 1][0]:
                child += 1
            if key <= heap[child][0]:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        return first[1]

    def drain(self) -> Iterator[T]:
        """Poll until empty."""
        while self._heap:
            yield self.poll()
