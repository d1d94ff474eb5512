"""The fast assignor gives what the plain description of the algorithm gives, for states of any shape."""


import pytest
from benchmarks.ha_reference import SlowAssignor
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assignment.groups import application_states
from tests.assignment.recorded import examples
from tidemill.assignment.balanced.load_tree import LoadTree
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.java_collections.priority_queue import JavaPriorityQueue


def agree(state, version):
    assignment = HighAvailabilityTaskAssignor(compatibility=version).assign(state)
    clients = {client: (held.active, held.standby) for client, held in assignment.clients.items()}
    assert (clients, assignment.followup_needed) == SlowAssignor(state, version=version).run()


@pytest.mark.parametrize("version", ["4.3", "2.7"])
@settings(max_examples=examples(120), deadline=None, derandomize=True)
@given(state=application_states())
def test_any_state_is_answered_as_by_the_plain_algorithm(version, state):
    agree(state, version)


@settings(max_examples=examples(120), deadline=None, derandomize=True)
@given(state=application_states(tagged=True))
def test_any_state_with_tags_is_answered_as_by_the_plain_algorithm(state):
    agree(state, "4.3")


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(state=application_states(tagged=True), order=st.randoms(use_true_random=False))
def test_the_order_in_which_clients_and_tasks_are_listed_changes_nothing(state, order):
    clients, tasks = list(state.clients), list(state.tasks)
    order.shuffle(clients)
    order.shuffle(tasks)
    shuffled = type(state)(
        clients=tuple(clients),
        tasks=tuple(tasks),
        stateful_tasks=state.stateful_tasks,
        end_offset_sums=state.end_offset_sums,
        config=state.config,
    )
    assignor = HighAvailabilityTaskAssignor()
    assert assignor.assign(shuffled) == assignor.assign(state)


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(
    loads=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    changes=st.lists(st.tuples(st.integers(0, 19), st.integers(0, 5)), max_size=5),
    excluded=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=3),
    limit=st.integers(-1, 6),
    start=st.integers(0, 21),
)
def test_a_load_tree_finds_what_a_scan_finds(loads, changes, excluded, limit, start):
    tree = LoadTree(loads, 99)
    for at, load in changes:
        if at < len(loads):
            loads[at] = load
            tree.set(at, load)
    ranges = [(low, min(low + length, len(loads))) for low, length in excluded if low < len(loads)]
    free = [at for at in range(len(loads)) if not any(low <= at < high for low, high in ranges)]
    assert tree.least_outside(ranges) == min(free, key=lambda at: (loads[at], at), default=None)
    below = [at for at in range(start, len(loads)) if loads[at] <= limit]
    assert tree.first_at_most(limit, start) == (below[0] if below else None)


def test_equal_keys_stand_in_javas_array_and_leave_it_in_javas_order():
    queue = JavaPriorityQueue()
    for item, key in zip("abcdefgh", [2, 1, 1, 0, 2, 1, 0, 1], strict=True):
        queue.add(key, item)
    assert "".join(queue) == "dbghefca"  # as OpenJDK 17 prints them
    assert "".join(queue.drain()) == "dgcbhfae"
