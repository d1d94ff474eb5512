"""``java.util.PriorityQueue``: its array order and, among equal keys, its polling order; some answers depend on both.

Decides nothing else: the caller knows what is queued, and walks or polls the array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class JavaPriorityQueue(Generic[T]):
    """Entries with a key each, least key first; iteration gives the heap's array, as Java's iterator does.

    Only a queue that was made by ``of`` has ``remove`` and ``in``: it keeps the index of each item.
    """

    __slots__ = ("_heap", "_index")

    def __init__(self) -> None:
        self._heap: list[tuple[Any, T]] = []
        self._index: dict[T, int] | None = None

    @classmethod
    def of(cls, items: Iterable[T]) -> JavaPriorityQueue[T]:
        """Different items which are their own keys, made a heap at once (``new PriorityQueue(collection)``)."""
        made = cls()
        made._heap = [(item, item) for item in items]
        made._index = {item: at for at, (item, _) in enumerate(made._heap)}
        for at in reversed(range(len(made._heap) // 2)):
            made._sift_down(at, made._heap[at])
        return made

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[T]:
        return (item for _, item in self._heap)

    def __contains__(self, item: object) -> bool:
        assert self._index is not None
        return item in self._index

    def add(self, key: Any, item: T) -> None:
        self._heap.append((key, item))
        self._sift_up(len(self._heap) - 1, (key, item))

    def peek(self) -> T:
        """The least; IndexError when empty."""
        return self._heap[0][1]

    def poll(self) -> T:
        """Removes and returns the least; IndexError when empty."""
        least = self._heap[0][1]
        self._remove_at(0)
        if self._index is not None:
            del self._index[least]
        return least

    def remove(self, item: T) -> None:
        """KeyError if it is not in the queue."""
        assert self._index is not None
        self._remove_at(self._index.pop(item))

    def drain(self) -> Iterator[T]:
        """Polls until the queue is empty."""
        while self._heap:
            yield self.poll()

    def _remove_at(self, at: int) -> None:
        """The last entry takes the place, and sinks or else rises from there."""
        last = self._heap.pop()
        if at < len(self._heap):
            self._sift_down(at, last)
            if self._heap[at] is last:
                self._sift_up(at, last)

    def _sift_up(self, at: int, entry: tuple[Any, T]) -> None:
        heap, key = self._heap, entry[0]
        while at > 0:
            parent = (at - 1) >> 1
            if key >= heap[parent][0]:
                break
            self._put(at, heap[parent])
            at = parent
        self._put(at, entry)

    def _sift_down(self, at: int, entry: tuple[Any, T]) -> None:
        heap, key, size = self._heap, entry[0], len(self._heap)
        half = size >> 1
        while at < half:
            child = 2 * at + 1
            if child + 1 < size and heap[child][0] > heap[child + 1][0]:
                child += 1
            if key <= heap[child][0]:
                break
            self._put(at, heap[child])
            at = child
        self._put(at, entry)

    def _put(self, at: int, entry: tuple[Any, T]) -> None:
        self._heap[at] = entry
        if self._index is not None:
            self._index[entry[1]] = at
