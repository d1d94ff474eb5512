"""The red-black tree of ``java.util.TreeMap`` and of crowded buckets of ``java.util.HashMap``: its shape is Java's.

Decides how the tree is balanced after an insertion and a removal (Cormen et al., as both classes do it). Where an entry belongs
is the caller's: it walks from ``root`` and says below which entry, on which side. The shape shows: in which comparisons a later
insertion makes, and in what is the root.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Entry(Generic[T]):
    """An element with its place in the tree."""

    __slots__ = ("element", "left", "parent", "red", "right")

    def __init__(self, element: T) -> None:
        self.element = element
        self.parent: Entry[T] | None = None
        self.left: Entry[T] | None = None
        self.right: Entry[T] | None = None
        self.red = True


class RedBlackTree(Generic[T]):
    """No red entry has a red child, and all paths from the root have equally many black entries."""

    __slots__ = ("root",)

    def __init__(self) -> None:
        self.root: Entry[T] | None = None

    def insert(self, entry: Entry[T], parent: Entry[T] | None, *, to_left: bool) -> None:
        """Puts a new entry below ``parent``, where nothing is on that side; None: it is the first."""
        entry.parent = parent
        if parent is None:
            self.root = entry
        elif to_left:
            parent.left = entry
        else:
            parent.right = entry
        self._balance_after_insertion(entry)

    def delete(self, entry: Entry[T]) -> None:
        """Takes an entry out; an entry with two children changes places with its successor first."""
        if entry.left is not None and entry.right is not None:
            successor = entry.right
            while successor.left is not None:
                successor = successor.left
            self._swap_places(entry, successor)
        child = entry.left if entry.left is not None else entry.right
        if child is not None:
            self._put_in_place_of(entry, child)
            if entry.parent is None:
                child.red = False
            if not entry.red:
                self._balance_after_deletion(child)
        else:
            if not entry.red:
                self._balance_after_deletion(entry)
            self._put_in_place_of(entry, None)

    def _balance_after_insertion(self, entry: Entry[T]) -> None:
        while (parent := entry.parent) is not None and parent.red and (grand := parent.parent) is not None:
            parent_is_left = grand.left is parent
            uncle = grand.right if parent_is_left else grand.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                entry = grand
                continue
            if entry is (parent.right if parent_is_left else parent.left):
                self._rotate(parent, to_left=parent_is_left)
                entry, parent = parent, entry
            parent.red = False
            grand.red = True
            self._rotate(grand, to_left=not parent_is_left)
        assert self.root is not None
        self.root.red = False

    def _swap_places(self, upper: Entry[T], lower: Entry[T]) -> None:
        """Exchanges an entry with a descendant that has no left child: links and colours, not elements."""
        upper.red, lower.red = lower.red, upper.red
        left, right, lower_right, lower_parent = upper.left, upper.right, lower.right, lower.parent
        self._put_in_place_of(upper, lower)
        lower.left = left
        if left is not None:
            left.parent = lower
        if lower_parent is upper:
            lower.right = upper
            upper.parent = lower
        else:
            lower.right = right
            assert right is not None
            assert lower_parent is not None
            right.parent = lower
            lower_parent.left = upper
            upper.parent = lower_parent
        upper.left = None
        upper.right = lower_right
        if lower_right is not None:
            lower_right.parent = upper

    def _put_in_place_of(self, entry: Entry[T], other: Entry[T] | None) -> None:
        parent = entry.parent
        if parent is None:
            self.root = other
        elif parent.left is entry:
            parent.left = other
        else:
            parent.right = other
        if other is not None:
            other.parent = parent

    def _balance_after_deletion(self, entry: Entry[T]) -> None:
        while (parent := entry.parent) is not None and not entry.red:
            is_left = parent.left is entry
            sibling = parent.right if is_left else parent.left
            if sibling is not None and sibling.red:
                sibling.red, parent.red = False, True
                self._rotate(parent, to_left=is_left)
                sibling = parent.right if is_left else parent.left
            if sibling is None:
                entry = parent
                continue
            near, far = (sibling.left, sibling.right) if is_left else (sibling.right, sibling.left)
            if not _is_red(near) and not _is_red(far):
                sibling.red = True
                entry = parent
                continue
            if not _is_red(far):
                assert near is not None
                near.red, sibling.red = False, True
                self._rotate(sibling, to_left=not is_left)
                sibling, far = near, sibling
            sibling.red, parent.red = parent.red, False
            assert far is not None
            far.red = False
            self._rotate(parent, to_left=is_left)
            break
        else:
            entry.red = False
        assert self.root is not None
        self.root.red = False

    def _rotate(self, entry: Entry[T], *, to_left: bool) -> None:
        """Moves the child of one side above ``entry``, which becomes its child of the other side."""
        child = entry.right if to_left else entry.left
        assert child is not None
        inner = child.left if to_left else child.right
        self._put_in_place_of(entry, child)
        if to_left:
            child.left, entry.right = entry, inner
        else:
            child.right, entry.left = entry, inner
        entry.parent = child
        if inner is not None:
            inner.parent = entry


def _is_red(entry: Entry[T] | None) -> bool:
    return entry is not None and entry.red
