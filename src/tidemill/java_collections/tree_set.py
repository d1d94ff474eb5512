"""Iteration orders of Java's hash sets and tree sets, where Kafka's texts show them.

``TopologyDescription`` iterates hash maps of names, and fills tree sets whose comparison changes while they are being
filled. Both decide what ``describe()`` prints, so both are reproduced here: buckets of ``java.util.HashMap``, and the
insertion of ``java.util.TreeMap`` (the shape of the red-black tree decides which comparisons are made).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from tidemill.java_collections.red_black_tree import Entry, RedBlackTree

Element = TypeVar("Element")

_LEAST_CAPACITY = 16


def string_hash(text: str) -> int:
    """``String.hashCode()``, as an unsigned number of 32 bits."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code


def grown_capacity(size: int) -> int:
    """The buckets of a ``HashMap`` that was filled one by one: doubled whenever three quarters are passed."""
    capacity = _LEAST_CAPACITY
    while size > capacity * 3 // 4:
        capacity *= 2
    return capacity


def copied_capacity(size: int) -> int:
    """The buckets of ``new HashSet<>(collection)``: the power of two above size / 0.75 + 1."""
    wanted = max(int(size / 0.75) + 1, _LEAST_CAPACITY)
    return 1 << (wanted - 1).bit_length()


def sized_set(names: Iterable[str]) -> tuple[str, ...]:
    """Names in the order of a hash set that was made for just as many as are given, and filled with them."""
    given = tuple(names)
    least = 1 << max(0, len(given) - 1).bit_length()

    def capacity(size: int) -> int:
        buckets = least
        while size > buckets * 3 // 4:
            buckets *= 2
        return buckets

    return hash_order(given, capacity)


def hash_order(names: Iterable[str], capacity: Callable[[int], int] = grown_capacity) -> tuple[str, ...]:
    """Different names in the order of a hash map that they were put into in this order."""
    given = tuple(dict.fromkeys(names))
    mask = capacity(len(given)) - 1

    def bucket(name: str) -> int:
        code = string_hash(name)
        return (code ^ code >> 16) & mask

    return tuple(sorted(given, key=bucket))


class TreeSet(Generic[Element]):
    """``java.util.TreeSet``: ``compare`` is asked at each insertion only, along the path from the root."""

    __slots__ = ("_compare", "_tree")

    def __init__(self, compare: Callable[[Element, Element], int]) -> None:
        self._compare = compare
        self._tree: RedBlackTree[Element] = RedBlackTree()

    def add(self, element: Element) -> None:
        """Adds an element, unless one on its path compares as equal."""
        parent, order = None, 0
        at = self._tree.root
        while at is not None:
            order = self._compare(element, at.element)
            if order == 0:
                return
            parent, at = at, at.left if order < 0 else at.right
        self._tree.insert(Entry(element), parent, to_left=order < 0)

    def __iter__(self) -> Iterator[Element]:
        stack: list[Entry[Element]] = []
        at = self._tree.root
        while stack or at is not None:
            while at is not None:
                stack.append(at)
                at = at.left
            entry = stack.pop()
            yield entry.element
            at = entry.right
