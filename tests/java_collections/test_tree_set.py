"""Java's tree sets, against the rules of red-black trees."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.java_collections.tree_set import TreeSet


def ascending(one: int, other: int) -> int:
    return one - other


@given(st.lists(st.integers(0, 60)))
@settings(max_examples=200, deadline=None)
def test_a_tree_set_is_sorted_and_balanced_after_every_insertion(numbers: list[int]) -> None:
    tree = TreeSet(ascending)
    for count, number in enumerate(numbers, 1):
        tree.add(number)
        assert list(tree) == sorted(set(numbers[:count]))
        assert_red_black(tree)


def test_a_tree_set_asks_only_along_the_path_so_later_changes_of_order_stay_unseen() -> None:
    weight = {"a": 1, "b": 2, "c": 3}
    tree = TreeSet[str](lambda one, other: weight[one] - weight[other])
    tree.add("a")
    tree.add("b")
    weight["a"] = 9
    tree.add("c")  # smaller than a now, so to its left, though b stays to its right
    assert list(tree) == ["c", "a", "b"]


def assert_red_black(tree: TreeSet[Any]) -> None:
    """No red entry has a red child, and all paths have equally many black ones."""

    def black_height(entry: Any) -> int:
        if entry is None:
            return 0
        assert not (entry.red and any(child is not None and child.red for child in (entry.left, entry.right)))
        left, right = black_height(entry.left), black_height(entry.right)
        assert left == right
        return left + (not entry.red)

    root = tree._tree.root
    assert root is None or not root.red
    black_height(root)
