"""One crowded bucket of ``java.util.HashMap``: a red-black tree by (hash, key), iterated in a list order of its own.

Decides that list order: a new key stands right after its parent in the tree, and the root is always brought to the
front. So the shape of the tree matters only through its root and the place of each insertion. When to make such a
bucket, and when to give it up while growing, is left to ``java_hash``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K")


class _Node(Generic[K]):
    __slots__ = ("key", "left", "parent", "rank", "red", "right")

    def __init__(self, key: K, spread: int) -> None:
        self.key = key
        self.rank: tuple[int, Any] = (spread, key.encode("utf-16-be", "surrogatepass") if isinstance(key, str) else key)
        self.parent: _Node[K] | None = None
        self.left: _Node[K] | None = None
        self.right: _Node[K] | None = None
        self.red = True


class TreeBin(Generic[K]):
    """Keys with their spread hashes; ``iter`` gives the JDK's order."""

    __slots__ = ("_order", "_root")

    def __init__(self, keys: Iterable[tuple[K, int]]) -> None:
        self._order: list[_Node[K]] = []
        self._root: _Node[K] | None = None
        for key, spread in keys:
            node = _Node(key, spread)
            self._insert(node)
            self._order.append(node)
        self._bring_root_to_front()

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[K]:
        return (node.key for node in list(self._order))

    def add(self, key: K, spread: int) -> None:
        node = _Node(key, spread)
        parent = self._insert(node)
        self._order.insert(0 if parent is None else self._order.index(parent) + 1, node)
        self._bring_root_to_front()

    def remove(self, key: K, *, moves_root: bool) -> bool:
        """Whether this is still a tree; one that became too small keeps its order as a plain list."""
        node = next(node for node in self._order if node.key == key)
        self._order.remove(node)
        if not self._order:
            return True
        root = self._root
        assert root is not None
        if moves_root and (root.right is None or root.left is None or root.left.left is None):
            return False
        self._delete(node)
        if moves_root:
            self._bring_root_to_front()
        return True

    def _bring_root_to_front(self) -> None:
        if self._root is not None and self._order[0] is not self._root:
            self._order.remove(self._root)
            self._order.insert(0, self._root)

    def _insert(self, node: _Node[K]) -> _Node[K] | None:
        """Put the node below the parent that is returned, then restore the balance."""
        parent: _Node[K] | None = None
        at = self._root
        while at is not None:
            parent = at
            at = at.left if node.rank < at.rank else at.right
        node.parent = parent
        if parent is None:
            self._root = node
        elif node.rank < parent.rank:
            parent.left = node
        else:
            parent.right = node
        self._balance_after_insertion(node)
        return parent

    def _balance_after_insertion(self, node: _Node[K]) -> None:
        while (parent := node.parent) is not None and parent.red and (grand := parent.parent) is not None:
            parent_is_left = grand.left is parent
            uncle = grand.right if parent_is_left else grand.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                node = grand
                continue
            if node is (parent.right if parent_is_left else parent.left):
                self._rotate(parent, to_left=parent_is_left)
                node, parent = parent, node
            parent.red = False
            grand.red = True
            self._rotate(grand, to_left=not parent_is_left)
        assert self._root is not None
        self._root.red = False

    def _delete(self, node: _Node[K]) -> None:
        if node.left is not None and node.right is not None:
            successor = node.right
            while successor.left is not None:
                successor = successor.left
            self._swap_places(node, successor)
        child = node.left if node.left is not None else node.right
        if child is not None:
            self._put_in_place_of(node, child)
            if node.parent is None:
                child.red = False
            if not node.red:
                self._balance_after_deletion(child)
        else:
            if not node.red:
                self._balance_after_deletion(node)
            self._put_in_place_of(node, None)

    def _swap_places(self, upper: _Node[K], lower: _Node[K]) -> None:
        """Exchange a node with a descendant that has no left child: links and colours, not keys."""
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

    def _put_in_place_of(self, node: _Node[K], other: _Node[K] | None) -> None:
        parent = node.parent
        if parent is None:
            self._root = other
        elif parent.left is node:
            parent.left = other
        else:
            parent.right = other
        if other is not None:
            other.parent = parent

    def _balance_after_deletion(self, node: _Node[K]) -> None:
        while (parent := node.parent) is not None and not node.red:
            is_left = parent.left is node
            sibling = parent.right if is_left else parent.left
            if sibling is not None and sibling.red:
                sibling.red, parent.red = False, True
                self._rotate(parent, to_left=is_left)
                sibling = parent.right if is_left else parent.left
            if sibling is None:
                node = parent
                continue
            near, far = (sibling.left, sibling.right) if is_left else (sibling.right, sibling.left)
            if not _is_red(near) and not _is_red(far):
                sibling.red = True
                node = parent
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
            node.red = False
        assert self._root is not None
        self._root.red = False

    def _rotate(self, node: _Node[K], *, to_left: bool) -> None:
        child = node.right if to_left else node.left
        assert child is not None
        inner = child.left if to_left else child.right
        self._put_in_place_of(node, child)
        if to_left:
            child.left, node.right = node, inner
        else:
            child.right, node.left = node, inner
        node.parent = child
        if inner is not None:
            inner.parent = node


def _is_red(node: _Node[Any] | None) -> bool:
    return node is not None and node.red
