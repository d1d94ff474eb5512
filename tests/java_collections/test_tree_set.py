"""Java's hash and tree orders, against what Java itself prints and against the rules of red-black trees."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.java_collections.tree_set import TreeSet, copied_capacity, grown_capacity, hash_order, sized_set, string_hash


def ascending(one: int, other: int) -> int:
    return one - other


def test_string_hash_is_javas() -> None:
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    assert string_hash("polygenelubricants") == 0x80000000  # Integer.MIN_VALUE
    assert string_hash("\N{GRINNING FACE}") == 31 * 0xD83D + 0xDE00  # two UTF-16 units


def test_capacities_are_those_of_a_grown_and_of_a_copied_set() -> None:
    assert [grown_capacity(n) for n in (0, 12, 13, 24, 25)] == [16, 16, 32, 32, 64]
    assert [copied_capacity(n) for n in (0, 11, 12, 23, 24)] == [16, 16, 32, 32, 64]


def test_a_set_that_is_made_for_what_it_gets_has_fewer_buckets() -> None:
    assert [sized_set(names) for names in (("a",), ("b", "a"), ("c", "b", "a"), ("st2", "st1", "st2"))] == [
        ("a",), ("a", "b"), ("a", "b", "c"), ("st2", "st1"),
    ]
    assert sized_set(("t1-STATE-STORE-0000000001", "st2")) == ("t1-STATE-STORE-0000000001", "st2")


def test_hash_order_is_by_bucket_then_by_insertion() -> None:
    assert hash_order(["in-b", "in-a", "in-c"]) == ("in-a", "in-c", "in-b")  # as Kafka prints these topics
    assert string_hash("Aa") == string_hash("BB")
    assert hash_order(["BB", "Aa"]) == ("BB", "Aa")
    assert hash_order(["Aa", "BB", "Aa"]) == ("Aa", "BB")


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
