"""Levels that noise does not change, and weights as dominant shares."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.assignment.task_load import COUNT_BOUND, HIGHEST_LEVEL, TaskLoad, count_bounds, level, value_of, weights
from tidemill.ids import TaskId

ONE, TWO, THREE = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)


def test_a_level_is_half_a_power_of_two_and_one_or_less_is_none():
    assert [level(value) for value in (0, 0.3, 1, 1.4, 2, 8, 1_000)] == [0, 0, 0, 1, 2, 6, 20]
    assert level(1e300) == HIGHEST_LEVEL


@settings(derandomize=True)
@given(first=st.floats(1, 1e9), noise=st.lists(st.floats(0.85, 1.18), max_size=20))
def test_noise_of_fifteen_percent_never_changes_a_level(first, noise):
    reached = level(first)
    assert all(level(first * factor, reached) == reached for factor in noise)


def test_a_level_changes_when_its_value_has_left_it_by_more_than_one():
    at = level(100.0)
    assert level(value_of(at) * 1.4, at) == at
    assert level(value_of(at) * 1.5, at) == at + 1
    assert level(value_of(at) / 4, at) == at - 4


def test_a_task_weighs_as_the_greater_of_its_shares_of_records_and_state():
    loads = {ONE: TaskLoad(records=6, state=0), TWO: TaskLoad(records=0, state=6), THREE: TaskLoad(records=0, state=0)}
    found = weights(loads, {ONE, TWO, THREE})
    assert round(found[ONE], 6) == round(found[TWO], 6) == 2.4  # 8 of 10, of three tasks
    assert round(found[THREE], 3) == 0.3
    assert weights(loads, ())[TWO] == weights(loads, ())[THREE]


def test_counts_are_bounded_around_the_share():
    assert count_bounds(12, 1, 3, 0.0) == (4, 4)
    assert count_bounds(13, 1, 3, 0.0) == (4, 5)
    assert count_bounds(12, 1, 3, COUNT_BOUND) == (2, 6)
    assert count_bounds(3, 1, 3, COUNT_BOUND) == (0, 2)
