"""``java.util.TreeSet``, whose comparison may change while it is being filled.

``TopologyDescription`` fills such sets, which decides what ``describe()`` prints: the shape of the red-black tree decides which
comparisons are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tidemill.java_collections.red_black_tree import Entry, RedBlackTree

Element = TypeVar("Element")


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
