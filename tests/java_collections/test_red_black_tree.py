"""The red-black tree against its own rules, whatever is put in and taken out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.java_collections.red_black_tree import Entry, RedBlackTree


def put(tree: RedBlackTree[int], number: int) -> Entry[int]:
    entry, parent, at = Entry(number), None, tree.root
    while at is not None:
        parent, at = at, at.left if number < at.element else at.right
    tree.insert(entry, parent, to_left=parent is not None and number < parent.element)
    return entry


def in_order(entry: Entry[int] | None) -> list[int]:
    return [] if entry is None else [*in_order(entry.left), entry.element, *in_order(entry.right)]


def black_height(entry: Entry[int] | None, parent: Entry[int] | None = None) -> int:
    """AssertionError where links, colours or heights are not those of a red-black tree."""
    if entry is None:
        return 0
    assert entry.parent is parent
    assert not (entry.red and parent is not None and parent.red)
    left, right = black_height(entry.left, entry), black_height(entry.right, entry)
    assert left == right
    return left + (not entry.red)


@given(st.lists(st.integers(0, 40), unique=True, max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_it_stays_sorted_and_balanced_while_entries_come_and_go(numbers: list[int], chance: object) -> None:
    tree: RedBlackTree[int] = RedBlackTree()
    entries = {number: put(tree, number) for number in numbers}
    assert in_order(tree.root) == sorted(numbers)
    black_height(tree.root)
    for number in sorted(numbers, key=lambda _: chance.random()):  # type: ignore[attr-defined]
        tree.delete(entries.pop(number))
        assert in_order(tree.root) == sorted(entries)
        black_height(tree.root)
        assert tree.root is None or not tree.root.red
    assert tree.root is None


def test_a_rotation_changes_the_root_as_in_java() -> None:
    tree: RedBlackTree[int] = RedBlackTree()
    for number in (1, 2, 3):
        put(tree, number)
    assert tree.root is not None
    assert (tree.root.element, tree.root.red) == (2, False)
