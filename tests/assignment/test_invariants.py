"""The invariants name each kind of wrong answer, and the high-availability assignor's answers have none."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from tests.assignment.groups import application_states, client, group, process, tasks
from tests.assignment.recorded import examples
from tidemill.assignment.invariants import guarantee_violations, unbalanced, violations
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import Assignment, ClientAssignment

A, B, STRANGER = process(1), process(2), process(9)
STATE = group([client(1, "1_0"), client(2, "1_1")], "1_0 1_1", "0_0", num_standby_replicas=1)
RIGHT = {
    A: ClientAssignment(active=tasks("0_0 1_0"), standby=tasks("1_1")),
    B: ClientAssignment(active=tasks("1_1"), standby=tasks("1_0")),
}


def wrong(checks=violations, **changed):
    clients = RIGHT | {{"a": A, "b": B, "stranger": STRANGER}[name]: held for name, held in changed.items()}
    return checks(STATE, Assignment(clients=clients, followup_needed=False))


def test_a_right_answer_has_no_violation():
    assert wrong() == []
    assert wrong(guarantee_violations) == []


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"a": ClientAssignment(active=tasks("0_0"), standby=tasks("1_1"))}, "task 1_0 is active nowhere"),
        ({"b": ClientAssignment(active=tasks("1_0 1_1"))}, "task 1_0 is active on 2 clients"),
        ({"a": ClientAssignment(active=tasks("0_0 1_0 7_7"))}, "given 7_7 as active, which is no task"),
        ({"a": ClientAssignment(active=tasks("0_0 1_0"), standby=tasks("1_0"))}, "1_0 both as active and as standby"),
        ({"b": ClientAssignment(active=tasks("1_1"), standby=tasks("0_0"))}, "standby of 0_0, which has no state"),
        ({"b": ClientAssignment(active=tasks("1_1"), standby=tasks("7_7"))}, "standby of 7_7, which is no task"),
        ({"b": ClientAssignment(active=tasks("1_1"), warmup=tasks("1_0"))}, "warm-up of 1_0 that is not among"),
        ({"stranger": ClientAssignment()}, f"client {STRANGER} was given an assignment but is not in the group"),
    ],
)
def test_each_wrong_answer_is_named(changed, sentence):
    (found,) = wrong(**changed)
    assert sentence in found


def test_a_client_without_an_assignment_is_named():
    answer = Assignment(clients={A: replace(RIGHT[A], active=tasks("0_0 1_0 1_1"), standby=frozenset())}, followup_needed=False)
    assert violations(STATE, answer) == [
        f"client {B} got no assignment; every client must be named, if only with no tasks"
    ]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"a": ClientAssignment(active=tasks("0_0 1_1"), standby=tasks("1_0")),
             "b": ClientAssignment(active=tasks("1_0"), standby=tasks("1_1"))},
            f"task 1_0 is active on {B}, which lags by 100000, though a caught-up client exists",
        ),
        ({"b": ClientAssignment(active=tasks("1_1"))}, "task 1_0 has 0 standbys besides its warm-ups; expected 1"),
    ],
)
def test_each_broken_guarantee_is_named(changed, sentence):
    assert sentence in wrong(guarantee_violations, **changed)


def test_too_many_warm_ups_are_named():
    state = replace(STATE, config=replace(STATE.config, max_warmup_replicas=1))
    clients = {
        A: ClientAssignment(active=tasks("1_0"), standby=tasks("1_1"), warmup=tasks("1_1")),
        B: ClientAssignment(active=tasks("1_1"), standby=tasks("1_0"), warmup=tasks("1_0")),
    }
    found = guarantee_violations(state, Assignment(clients=clients, followup_needed=True))
    assert "2 warm-ups were handed out; max.warmup.replicas = 1" in found


def test_balance_is_counted_by_threads():
    state = group([client(1, capacity=2), client(2)], "1_0")
    assert unbalanced({A: 4, B: 2}, state) == []
    assert unbalanced({A: 5, B: 2}, state) == []
    assert unbalanced({A: 4, B: 3}, state) == []
    assert unbalanced({A: 3, B: 3}, state) == [
        f"{A} has 3 of 6 tasks; its 2 threads are worth 4.00",
        f"{B} has 3 of 6 tasks; its 1 threads are worth 2.00",
    ]


@pytest.mark.parametrize("version", ["4.3", "2.7"])
@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(state=application_states(tagged=True))
def test_the_high_availability_assignor_violates_nothing_in_any_state(version, state):
    assignment = HighAvailabilityTaskAssignor(compatibility=version).assign(state)
    assert violations(state, assignment) == []
    assert guarantee_violations(state, assignment) == []
