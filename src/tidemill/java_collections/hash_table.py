"""The order in which ``java.util.HashMap`` and ``HashSet`` iterate: some of Kafka's answers and texts depend on it.

Decides hash codes (of strings, task ids, process ids), buckets, growth, and what a removal does to the order. Equal insertions
and removals give the order of the JDK: by bucket, in a bucket by insertion; a bucket of more than eight keys becomes a tree
(``tree_bin``), or makes a table of fewer than 64 buckets grow. Values are kept nowhere, only keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

from tidemill.ids import ProcessId, TaskId
from tidemill.java_collections.tree_bin import TreeBin

K = TypeVar("K")

DEFAULT_CAPACITY = 16
_GREATEST_LIST = 8
_GREATEST_SHRUNK_TREE = 6
_LEAST_CAPACITY_WITH_TREES = 64


def int32(value: int) -> int:
    """Wrap to a Java int."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


@lru_cache(maxsize=4_096)
def string_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for at in range(0, len(units), 2):
        result = (31 * result + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return int32(result)


def string_order(text: str) -> bytes:
    """A key that sorts strings as ``String.compareTo`` does (by UTF-16 code units, not by code points)."""
    return text.encode("utf-16-be", "surrogatepass")


def process_hash(process_id: ProcessId) -> int:
    """``UUID.hashCode``, which is also that of Kafka's ProcessId."""
    halves = (process_id.most ^ process_id.least) & 0xFFFFFFFFFFFFFFFF
    return int32((halves >> 32) ^ halves)


def task_hash(task: TaskId) -> int:
    """``TaskId.hashCode`` since named topologies (3.0): of sub-topology, partition and no name."""
    return int32(31 * (31 * (31 + task.subtopology) + task.partition))


def task_hash_2_7(task: TaskId) -> int:
    """``TaskId.hashCode`` of 2.7: both numbers as one long, modulo 2^32 - 1; for small numbers their sum."""
    return int32((task.subtopology << 32 | task.partition) % 0xFFFFFFFF)


def capacity_of_copy(size: int) -> int:
    """The initial capacity that ``new HashSet<>(collection)`` asks for (up to JDK 18)."""
    return max(int(size / 0.75) + 1, DEFAULT_CAPACITY)


class HashTable(Generic[K]):
    """The keys of a HashMap or HashSet, in its order."""

    __slots__ = ("_bins", "_capacity", "_hash_of", "_spread")

    def __init__(
        self, hash_of: Callable[[K], int], keys: Iterable[K] = (), *, capacity: int = DEFAULT_CAPACITY
    ) -> None:
        self._hash_of = hash_of
        self._capacity = 1 << max(capacity - 1, 0).bit_length()
        self._spread: dict[K, int] = {}
        self._bins: dict[int, list[K] | TreeBin[K]] = {}
        for key in keys:
            self.add(key)

    @classmethod
    def copy_of(cls, hash_of: Callable[[K], int], keys: Collection[K]) -> HashTable[K]:
        """``new HashSet<>(keys)``: sized for the keys beforehand."""
        return cls(hash_of, keys, capacity=capacity_of_copy(len(keys)))

    def __len__(self) -> int:
        return len(self._spread)

    def __contains__(self, key: object) -> bool:
        return key in self._spread

    def __iter__(self) -> Iterator[K]:
        for index in sorted(self._bins):
            yield from self._bins[index]

    def add(self, key: K) -> None:
        """Put ``key``; one that is there keeps its place."""
        if key in self._spread:
            return
        spread = _spread(self._hash_of(key))
        self._spread[key] = spread
        index = spread & (self._capacity - 1)
        found = self._bins.get(index)
        if found is None:
            self._bins[index] = [key]
        elif isinstance(found, TreeBin):
            found.add(key, spread)
        else:
            found.append(key)
            if len(found) > _GREATEST_LIST:
                self._relieve(index, found)
        if len(self._spread) > self._capacity * 3 // 4:
            self._grow()

    def remove(self, key: K) -> None:
        """``remove(Object)``; an absent key is no error."""
        self._remove(key, moves_root=True)

    def remove_in_iteration(self, key: K) -> None:
        """``Iterator.remove``: the order of the others stays as it is."""
        self._remove(key, moves_root=False)

    def _remove(self, key: K, *, moves_root: bool) -> None:
        spread = self._spread.pop(key, None)
        if spread is None:
            return
        index = spread & (self._capacity - 1)
        found = self._bins[index]
        if isinstance(found, TreeBin):
            if not found.remove(key, moves_root=moves_root):
                self._bins[index] = list(found)
        else:
            found.remove(key)
        if not self._bins[index]:
            del self._bins[index]

    def _relieve(self, index: int, keys: list[K]) -> None:
        if self._capacity < _LEAST_CAPACITY_WITH_TREES:
            self._grow()
        else:
            self._bins[index] = TreeBin((key, self._spread[key]) for key in keys)

    def _grow(self) -> None:
        """Double the buckets; each splits in two by one more bit of the hash, its order kept."""
        bit = self._capacity
        self._capacity *= 2
        for index, found in list(self._bins.items()):
            low: list[K] = []
            high: list[K] = []
            for key in found:
                (high if self._spread[key] & bit else low).append(key)
            del self._bins[index]
            for at, half, other in ((index, low, high), (index + bit, high, low)):
                if half:
                    self._bins[at] = self._half(found, half, other) if isinstance(found, TreeBin) else half

    def _half(self, tree: TreeBin[K], half: list[K], other: list[K]) -> list[K] | TreeBin[K]:
        if len(half) <= _GREATEST_SHRUNK_TREE:
            return half
        return TreeBin((key, self._spread[key]) for key in half) if other else tree


def hash_order(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """The order of a new HashMap or HashSet after these insertions."""
    return list(HashTable(hash_of, keys))


def _spread(code: int) -> int:
    """HashMap's own mixing of a hash code, as a signed int (trees compare it so)."""
    return int32(code ^ ((code & 0xFFFFFFFF) >> 16))
