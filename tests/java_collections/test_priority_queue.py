"""java.util.PriorityQueue's array after it is built, polled and relieved of an item, as Java 21 has it."""

from __future__ import annotations

import random

import pytest

from tidemill.java_collections.priority_queue import JavaPriorityQueue


def test_a_collection_becomes_a_heap_at_once() -> None:
    assert list(JavaPriorityQueue.of([5, 3, 8, 1, 4])) == [1, 3, 8, 5, 4]


def test_the_last_item_takes_the_place_of_a_removed_one_and_sinks() -> None:
    queue = JavaPriorityQueue.of([1, 3, 8, 5, 4])
    queue.remove(1)
    assert list(queue) == [3, 4, 8, 5]


def test_the_last_item_rises_where_it_is_less_than_the_parent() -> None:
    queue = JavaPriorityQueue.of([1, 10, 2, 11, 12, 3, 4])
    queue.remove(11)
    assert list(queue) == [1, 4, 2, 10, 12, 3]


def test_an_item_that_was_polled_or_removed_is_not_in_the_queue() -> None:
    queue = JavaPriorityQueue.of([2, 1, 3])
    assert queue.poll() == 1
    queue.remove(3)
    assert [item for item in (1, 2, 3) if item in queue] == [2]
    with pytest.raises(KeyError):
        queue.remove(3)


def test_items_leave_in_the_order_of_their_keys_wherever_others_are_removed() -> None:
    choose = random.Random(7)
    for _ in range(200):
        items = choose.sample(range(100), 30)
        queue, removed = JavaPriorityQueue.of(items), choose.sample(items, 10)
        for item in removed:
            queue.remove(item)
        assert list(queue.drain()) == sorted(set(items) - set(removed))


def test_equal_keys_leave_in_javas_order() -> None:
    queue: JavaPriorityQueue[str] = JavaPriorityQueue()
    for item in "abcd":
        queue.add(0, item)
    assert list(queue.drain()) == ["a", "d", "c", "b"]
