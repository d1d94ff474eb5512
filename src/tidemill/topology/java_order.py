"""The orders in which Java's hash sets and tree sets hold their elements, where Kafka's texts show them.

``TopologyDescription`` iterates hash maps of names, and fills tree sets whose comparison changes while they are being
filled. Both decide what ``describe()`` prints, so both are reproduced here: buckets of ``java.util.HashMap``, and the
insertion of ``java.util.TreeMap`` (the shape of the red-black tree decides which comparisons are made).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

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


@dataclass(slots=True, eq=False)
class _Entry(Generic[Element]):
    element: Element
    parent: _Entry[Element] | None
    left: _Entry[Element] | None = None
    right: _Entry[Element] | None = None
    red: bool = True


class TreeSet(Generic[Element]):
    """``java.util.TreeSet``: ``compare`` is asked at each insertion only, along the path from the root."""

    __slots__ = ("_compare", "_root")

    def __init__(self, compare: Callable[[Element, Element], int]) -> None:
        self._compare = compare
        self._root: _Entry[Element] | None = None

    def add(self, element: Element) -> None:
        """Adds an element, unless one on its path compares as equal."""
        if self._root is None:
            self._root = _Entry(element, None, red=False)
            return
        at = self._root
        while True:
            order = self._compare(element, at.element)
            if order == 0:
                return
            below = at.left if order < 0 else at.right
            if below is None:
                break
            at = below
        entry = _Entry(element, at)
        if order < 0:
            at.left = entry
        else:
            at.right = entry
        self._rebalance(entry)

    def __iter__(self) -> Iterator[Element]:
        stack: list[_Entry[Element]] = []
        at = self._root
        while stack or at is not None:
            while at is not None:
                stack.append(at)
                at = at.left
            entry = stack.pop()
            yield entry.element
            at = entry.right

    def _rebalance(self, entry: _Entry[Element]) -> None:
        at = entry
        while at.parent is not None and at.parent.red:
            parent, above = at.parent, at.parent.parent
            assert above is not None  # a red entry is never the root
            on_left = parent is above.left
            uncle = above.right if on_left else above.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red = True
                at = above
                continue
            if at is (parent.right if on_left else parent.left):
                at = parent
                self._rotate(at, left=on_left)
                parent = at.parent or parent
            parent.red, above.red = False, True
            self._rotate(above, left=not on_left)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, entry: _Entry[Element], *, left: bool) -> None:
        """Moves the child of one side above ``entry``, which becomes its child of the other side."""
        rising = entry.right if left else entry.left
        assert rising is not None
        inner = rising.left if left else rising.right
        if left:
            entry.right, rising.left = inner, entry
        else:
            entry.left, rising.right = inner, entry
        if inner is not None:
            inner.parent = entry
        above = entry.parent
        rising.parent, entry.parent = above, rising
        if above is None:
            self._root = rising
        elif above.left is entry:
            above.left = rising
        else:
            above.right = rising
