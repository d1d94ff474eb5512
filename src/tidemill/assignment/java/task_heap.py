"""``java.util.PriorityQueue`` of task ids, built from a collection: its array order decides who gets left-over tasks.

Decides how the heap looks after being built at once, polled, and relieved of tasks in its middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.ids import TaskId


class TaskHeap:
    """Iteration gives the array, as Java's iterator does."""

    __slots__ = ("_array", "_place")

    def __init__(self, tasks: Iterable[TaskId]) -> None:
        self._array = list(tasks)
        self._place = {task: at for at, task in enumerate(self._array)}
        for at in reversed(range(len(self._array) // 2)):
            self._sink(at, self._array[at])

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[TaskId]:
        return iter(tuple(self._array))

    def __contains__(self, task: object) -> bool:
        return task in self._place

    def poll(self) -> TaskId:
        """Take the least; IndexError when empty."""
        least = self._array[0]
        self.remove(least)
        return least

    def remove(self, task: TaskId) -> None:
        """Take this one out; KeyError if it is not there."""
        at = self._place.pop(task)
        moved = self._array.pop()
        if at < len(self._array):
            self._sink(at, moved)
            if self._array[at] == moved:
                self._rise(at, moved)

    def _put(self, at: int, task: TaskId) -> None:
        self._array[at] = task
        self._place[task] = at

    def _sink(self, at: int, task: TaskId) -> None:
        array = self._array
        while (child := 2 * at + 1) < len(array):
            if child + 1 < len(array) and array[child + 1] < array[child]:
                child += 1
            if task <= array[child]:
                break
            self._put(at, array[child])
            at = child
        self._put(at, task)

    def _rise(self, at: int, task: TaskId) -> None:
        array = self._array
        while at > 0 and task < array[parent := (at - 1) // 2]:
            self._put(at, array[parent])
            at = parent
        self._put(at, task)
