"""Java's hash codes and iteration orders, against orders that a JDK 17 has printed."""

import pytest

from tests.assignment.recorded import recorded
from tidemill.assignment.iteration_order import hash_iteration
from tidemill.ids import ProcessId, TaskId
from tidemill.java_collections.hash_table import (
    HashTable,
    hash_order,
    process_hash,
    string_hash,
    string_order,
    task_hash,
    task_hash_2_7,
)
from tidemill.java_collections.tree_bin import TreeBin
from tidemill.replay.records import application_state


def crowding_hash(task):
    """Keys that crowd few buckets and part again as the table grows, as no task ids of one application do."""
    return task.subtopology + 64 * (task.partition % 8)


HASHES = (task_hash, task_hash_2_7, crowding_hash)
ORDERS = recorded("java_hash_order")


def tasks(texts):
    return [TaskId.parse(text) for text in texts]


def test_string_hash_is_that_of_java():
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    assert string_hash("the quick brown fox jumps over the lazy dog") == -2082818701
    assert string_hash("𝄞") == 1772394


def test_names_are_in_the_order_in_which_kafka_prints_topics():
    assert hash_order(["in-b", "in-a", "in-c"], string_hash) == ["in-a", "in-c", "in-b"]
    assert string_hash("Aa") == string_hash("BB")
    assert hash_order(["BB", "Aa"], string_hash) == ["BB", "Aa"]
    assert hash_order(["Aa", "BB", "Aa"], string_hash) == ["Aa", "BB"]


def test_a_table_that_is_made_for_few_keys_has_fewer_buckets():
    def of(*names):
        return list(HashTable(string_hash, names, capacity=len(names)))

    assert [of("a"), of("b", "a"), of("c", "b", "a"), of("st2", "st1", "st2")] == [
        ["a"], ["a", "b"], ["a", "b", "c"], ["st2", "st1"],
    ]
    assert of("t1-STATE-STORE-0000000001", "st2") == ["t1-STATE-STORE-0000000001", "st2"]


def test_strings_sort_by_utf16_units_not_by_code_points():
    assert sorted(["\ufb01", "𝄞"], key=string_order) == ["𝄞", "\ufb01"]
    assert sorted(["\ufb01", "𝄞"]) == ["\ufb01", "𝄞"]


def test_task_hash_of_2_7_is_the_sum_and_the_later_one_is_not():
    assert task_hash_2_7(TaskId(3, 4)) == 7
    assert task_hash(TaskId(0, 0)) == 29791
    assert task_hash(TaskId(3, 4)) == 29791 + 3 * 961 + 4 * 31


def test_hash_codes_wrap_to_32_bits():
    assert task_hash(TaskId(2**31 - 1, 7)) == -2147454601
    assert process_hash(ProcessId.parse("ffffffff-0000-0000-0000-000000000000")) == -1


@pytest.mark.parametrize("name", ["sticky_assignor", "public_sticky", "fallback_prior", "rack_aware"])
def test_inputs_iterate_as_recorded(name):
    lines = [line for line in recorded(name, every=7) if "iteration_order" in line]
    assert lines
    for line in lines:
        order, said = hash_iteration(application_state(line)), line["iteration_order"]
        assert [str(client) for client in order.clients] == said["clients"], line["id"]
        assert [str(task) for task in order.tasks] == said["all_tasks"], line["id"]
        assert [str(task) for task in order.stateful_tasks] == said["stateful_tasks"], line["id"]


def test_growing_and_copied_sets_iterate_as_on_the_jdk():
    for line in ORDERS:
        inserted, hash_of = tasks(line["ins"]), HASHES[line["mode"]]
        assert hash_order(inserted, hash_of) == tasks(line["grown"])
        assert list(HashTable.copy_of(hash_of, inserted)) == tasks(line["copy"])


def test_removals_and_later_insertions_leave_the_order_of_the_jdk():
    for line in ORDERS:
        table = HashTable.copy_of(HASHES[line["mode"]], tasks(line["ins"]))
        for task in tasks(line["rem"]):
            table.remove(task)
        assert list(table) == tasks(line["left"])
        for task in tasks(line["back"]):
            table.add(task)
        assert list(table) == tasks(line["again"])


def test_removals_while_iterating_leave_the_order_of_the_jdk():
    for line in ORDERS:
        table = HashTable.copy_of(HASHES[line["mode"]], tasks(line["ins"]))
        removed = set(tasks(line["rem"]))
        for task in list(table):
            if task in removed:
                table.remove_in_iteration(task)
        for task in tasks(line["back"]):
            table.add(task)
        assert list(table) == tasks(line["it"])


def test_the_recorded_orders_have_crowded_buckets():
    crowded = 0
    for line in ORDERS:
        table = HashTable(HASHES[line["mode"]], tasks(line["ins"]))
        crowded += any(isinstance(found, TreeBin) for found in table._bins.values())
    assert crowded >= 5


def test_a_key_that_is_there_keeps_its_place_and_an_absent_one_is_no_error():
    table = HashTable(lambda _: 0, "abc")
    table.add("a")
    table.remove("z")
    assert list(table) == ["a", "b", "c"]
    assert len(table) == 3
    assert "b" in table
    assert "z" not in table
