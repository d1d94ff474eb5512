"""One crowded bucket of ``java.util.HashMap``: a red-black tree by (hash, key), iterated in a list order of its own.

Decides that list order: a new key is right after its parent in the tree, and the root is always brought to the
front. So the shape of the tree matters only through its root and the place of each insertion. ``hash_table`` decides
when such a bucket is made, and when it is given up while growing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from tidemill.java_collections.red_black_tree import Entry, RedBlackTree

K = TypeVar("K")
_Ranked = tuple[tuple[int, Any], K]
"""Rank and key: the tree is ordered by hash, then by key."""


class TreeBin(Generic[K]):
    """Keys with their spread hashes; ``iter`` gives the JDK's order."""

    __slots__ = ("_order", "_tree")

    def __init__(self, keys: Iterable[tuple[K, int]]) -> None:
        self._order: list[Entry[_Ranked[K]]] = []
        self._tree: RedBlackTree[_Ranked[K]] = RedBlackTree()
        for key, spread in keys:
            entry = _entry(key, spread)
            self._insert(entry)
            self._order.append(entry)
        self._bring_root_to_front()

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[K]:
        return (entry.element[1] for entry in list(self._order))

    def add(self, key: K, spread: int) -> None:
        entry = _entry(key, spread)
        parent = self._insert(entry)
        self._order.insert(0 if parent is None else self._order.index(parent) + 1, entry)
        self._bring_root_to_front()

    def remove(self, key: K, *, moves_root: bool) -> bool:
        """True while this is still a tree; one that became too small keeps its order as a plain list."""
        entry = next(entry for entry in self._order if entry.element[1] == key)
        self._order.remove(entry)
        if not self._order:
            return True
        root = self._tree.root
        assert root is not None
        if moves_root and (root.right is None or root.left is None or root.left.left is None):
            return False
        self._tree.delete(entry)
        if moves_root:
            self._bring_root_to_front()
        return True

    def _bring_root_to_front(self) -> None:
        if self._tree.root is not None and self._order[0] is not self._tree.root:
            self._order.remove(self._tree.root)
            self._order.insert(0, self._tree.root)

    def _insert(self, entry: Entry[_Ranked[K]]) -> Entry[_Ranked[K]] | None:
        """The entry below which it was put, before the tree was balanced."""
        rank = entry.element[0]
        parent, at = None, self._tree.root
        while at is not None:
            parent = at
            at = at.left if rank < at.element[0] else at.right
        self._tree.insert(entry, parent, to_left=parent is not None and rank < parent.element[0])
        return parent


def _entry(key: K, spread: int) -> Entry[_Ranked[K]]:
    """Texts are ranked in the order of ``String.compareTo``."""
    order = key.encode("utf-16-be", "surrogatepass") if isinstance(key, str) else key
    return Entry(((spread, order), key))
