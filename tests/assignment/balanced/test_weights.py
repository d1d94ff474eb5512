"""Weights in the balanced assignor: hot tasks are spread, within bounds of the counts, and what is even enough stays."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.assignment.balanced.test_assignor import (
    BALANCED,
    capacities,
    cluster,
    histories,
    is_balanced_answer,
    owners,
    settle,
    targets,
)
from tests.assignment.groups import after, application_states, client, group, process, tasks
from tests.assignment.recorded import examples
from tidemill.assignment.invariants import guarantee_violations, unbalanced, violations
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import CopyRole, TaskInfo
from tidemill.assignment.sticky.assignor import StickyTaskAssignor
from tidemill.assignment.task_load import COUNT_BOUND, count_bounds
from tidemill.ids import TaskId


def weighted(state, weights):
    return replace(state, task_info={TaskId.parse(task): TaskInfo(weight=weight) for task, weight in weights.items()})


def unweighted(state):
    return replace(state, task_info={})


def carried(state, owner_of):
    """The weight on each client, per thread; a task without one counts as the average."""
    known = [info.weight for info in state.task_info.values()]
    usual = sum(known) / len(known)
    totals = dict.fromkeys((one.process_id for one in state.clients), 0.0)
    for task, process_id in owner_of.items():
        totals[process_id] += state.task_info[task].weight if task in state.task_info else usual
    return [totals[one.process_id] / one.capacity for one in sorted(state.clients, key=lambda one: one.process_id)]


def loads(state, answer):
    return carried(state, owners(answer))


def moved(before, after_it):
    was = owners(before)
    return {task for task, process_id in owners(after_it).items() if was[task] != process_id}


def test_fresh_tasks_are_dealt_out_by_weight():
    fresh = weighted(
        group([client(1), client(2)], "1_0 1_1 1_2 1_3"), {"1_0": 100.0, "1_1": 100.0, "1_2": 1.0, "1_3": 1.0}
    )
    answer = BALANCED.assign(fresh)
    assert loads(fresh, answer) == [101.0, 101.0]
    assert is_balanced_answer(fresh, answer)


def test_a_client_that_joins_an_even_group_gets_as_many_tasks_as_without_weights_and_no_others_move():
    state = cluster(partitions=20)
    heavy = {task: TaskInfo(weight=float((1, 1, 2, 1, 8, 1, 1, 4, 1, 1)[(task.partition * 7 + task.subtopology) % 10]))
             for task in state.tasks}  # fmt: skip
    state, before, _ = settle(replace(state, task_info=heavy))
    grown = after(state, before, joined=[client(11)])
    _, plain, _ = settle(unweighted(grown))
    _, weighed, _ = settle(grown)
    assert len(moved(before, weighed)) == len(moved(before, plain)) == 18
    assert max(loads(grown, weighed)) <= max(loads(grown, plain))


def test_an_overloaded_client_trades_running_tasks_where_both_can_run_at_once():
    weights = {"1_0": 3.5, "1_1": 3.0, "1_2": 3.0, "1_3": 2.0}
    hot = [client(1, "1_0 1_1", {"1_2": 0, "1_3": 0}), client(2, "1_2 1_3", {"1_0": 0, "1_1": 0})]
    cold = [client(1, "1_0 1_1"), client(2, "1_2 1_3")]
    traded = weighted(group(hot, "1_0 1_1 1_2 1_3", num_standby_replicas=1), weights)
    left_alone = weighted(group(cold, "1_0 1_1 1_2 1_3"), weights)
    assert max(loads(traded, BALANCED.assign(traded))) == 6.0
    assert not BALANCED.assign(traded).followup_needed
    assert loads(left_alone, BALANCED.assign(left_alone)) == [6.5, 5.0]  # 13 % more than the average is not worth a restoration


def test_state_is_restored_for_a_client_that_carries_far_more_than_the_average_and_the_tasks_run_on_meanwhile():
    state = weighted(
        group([client(1, "1_0 1_1"), client(2, "1_2 1_3")], "1_0 1_1 1_2 1_3"), {"1_0": 10.0, "1_1": 10.0, "1_2": 1.0, "1_3": 1.0}
    )
    first = BALANCED.assign(state)
    assert loads(state, first) == [20.0, 2.0]
    assert sorted(len(held.warmup) for held in first.clients.values()) == [0, 1]
    _, last, _ = settle(state)
    assert loads(state, last) == [10.0, 12.0]


def test_the_client_with_a_hot_task_gets_fewer_others_within_the_bound():
    names = [f"1_{number}" for number in range(12)]
    clients = [client(1, "1_0 1_1 1_2 1_3"), client(2, "1_4 1_5 1_6 1_7"), client(3, "1_8 1_9 1_10 1_11")]
    state = weighted(group(clients, " ".join(names)), {**dict.fromkeys(names, 1.0), "1_0": 8.0})
    state, answer, _ = settle(state)
    assert sorted(len(held.active) for held in answer.clients.values()) == [2, 5, 5]
    assert "1_0" in map(str, answer.clients[process(1)].active)  # the hot task itself stays where it is
    assert max(loads(state, answer)) == 9.0
    assert count_bounds(12, 1, 3, COUNT_BOUND) == (2, 6)


@pytest.mark.parametrize("uneven", ["1_0", "1_1", "1_2", "1_3"])
def test_a_hot_task_between_its_owners_keeps_its_next_client_from_as_many_others(uneven):
    """Half of an exchange: the four on their way run nowhere, the hot one too; that was answered by even counts, for good."""
    weights = {"0_0": 0.4, "0_1": 0.4, "0_2": 0.4, "0_3": 0.4, "1_0": 0.9, "1_1": 0.9, "1_2": 0.9, "1_3": 5.8, uneven: 1.3}
    left = client(1, "0_0 0_1 1_0 1_1", {"1_2": 0, "1_3": 0})
    state = group([left, client(2)], "1_0 1_1 1_2 1_3", "0_0 0_1 0_2 0_3", acceptable_recovery_lag=2**63 - 1)
    state = weighted(state, {**weights, "1_3": 5.8})
    answer = BALANCED.assign(state)
    with_hot = next(held.active for held in answer.clients.values() if "1_3" in map(str, held.active))
    assert len(with_hot) == 2
    assert within_bounds(state, owners(answer))


def test_free_tasks_go_to_clients_that_would_else_have_too_few():
    names = [f"1_{number}" for number in range(12)]
    clients = [client(1, "1_1 1_2 1_3 1_4 1_5"), client(2, "1_6 1_7 1_8 1_9 1_10"), client(3)]
    lags = {TaskId.parse("1_0"): 0, TaskId.parse("1_11"): 0}
    clients[0] = replace(clients[0], previous_standby=frozenset(lags), lags={**lags, **clients[0].lags})
    state = weighted(group(clients, " ".join(names)), {**dict.fromkeys(names, 1.0), "1_0": 8.0})
    answer = BALANCED.assign(state)
    assert within_bounds(state, targets(answer))
    assert max(carried(state, targets(answer))) == 9.0  # the hot one and one other; even counts would be 11


def test_tasks_handed_over_for_a_hot_one_come_back_when_it_is_cold_again():
    names = [f"1_{number}" for number in range(12)]
    clients = [client(1, "1_0 1_1"), client(2, "1_2 1_4 1_5 1_6 1_7"), client(3, "1_3 1_8 1_9 1_10 1_11")]
    cold = weighted(group(clients, " ".join(names)), dict.fromkeys(names, 1.0))
    _, answer, _ = settle(cold)
    assert [len(held.active) for held in answer.clients.values()] == [4, 4, 4]


def test_a_restoration_that_was_begun_is_not_given_up_for_a_better_weight():
    weights = {"1_0": 2.0, "1_1": 3.0, "1_2": 3.0, "1_3": 3.0}
    running = client(1, "1_0 1_1 1_2 1_3")
    begun = group([running, client(2, lags={"1_0": 60_000, "1_3": 60_000})], "1_0 1_1 1_2 1_3")
    not_begun = group([running, client(2)], "1_0 1_1 1_2 1_3")
    assert BALANCED.assign(weighted(begun, weights)).clients[process(2)].warmup == tasks("1_0 1_3")
    assert "1_0" not in map(str, BALANCED.assign(weighted(not_begun, {**weights, "1_0": 0.5})).clients[process(2)].warmup)


def test_the_reason_names_the_weight_and_what_the_client_carries():
    weights = {"1_0": 10.0, "1_1": 10.0, "1_2": 1.0, "1_3": 1.0}
    state = weighted(group([client(1, "1_0 1_1"), client(2, "1_2 1_3")], "1_0 1_1 1_2 1_3"), weights)
    moving = [one for one in BALANCED.assign(state).explain() if one.role is CopyRole.ACTIVE and one.rebalances_to_go]
    assert {str(one.task) for one in moving} == {"1_0"}
    hot = next(one for one in moving if str(one.task) == "1_0")
    assert "weighs 1.82 times the average task" in hot.reason
    assert "carries 1.82 times its share without such changes and 0.91 times with them" in hot.reason


@pytest.mark.parametrize("kafka", [HighAvailabilityTaskAssignor(), StickyTaskAssignor()], ids=["ha", "sticky"])
@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(state=application_states(tagged=True), seed=st.integers(1, 9))
def test_kafkas_assignors_know_no_weights(kafka, state, seed):
    assert kafka.assign(with_weights(state, seed)) == kafka.assign(unweighted(state))


def with_weights(state, seed):
    """Powers of the square root of two, as measured ones; a few hot, a few unknown."""
    of_task = {}
    for at, task in enumerate(sorted(state.tasks)):
        draw = (at + 1) * 7919 * seed % 101
        if draw % 7:
            of_task[task] = TaskInfo(weight=2.0 ** ((draw % 5 if draw > 20 else 8 + draw % 4) / 2))
    return replace(state, task_info=of_task)


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(state=application_states(tagged=True), seed=st.integers(1, 9))
def test_no_weights_make_it_violate_anything_or_carry_more_than_without_them(state, seed):
    state = with_weights(state, seed)
    assume(state.task_info)
    answer, plain = BALANCED.assign(state), BALANCED.assign(unweighted(state))
    assert violations(state, answer) == []
    assert guarantee_violations(state, answer) == []
    assert max(carried(state, targets(answer))) <= max(carried(state, targets(plain))) + 1e-9
    assert within_bounds(state, targets(answer))


def within_bounds(state, owner_of):
    threads = sum(capacities(state))
    totals = Counter(task.subtopology for task in state.tasks)
    held = Counter((task.subtopology, process_id) for task, process_id in owner_of.items())
    counts = Counter(owner_of.values())
    return unbalanced(counts, state) == [] and all(
        least <= held[number, one.process_id] <= most
        for one in state.clients
        for number, total in totals.items()
        for least, most in [count_bounds(total, one.capacity, threads, COUNT_BOUND)]
    )


def settle_for_good(state, limit=12):
    """Until another rebalance changes nothing; each that moves something is followed by one, that of the hand-over."""
    before = None
    for _ in range(limit):
        state, answer, _ = settle(state)
        if answer == before:
            return state, answer
        state, before = after(state, answer), answer
    raise AssertionError(f"still moving after {limit} times")


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(history=histories(), seed=st.integers(1, 9))
def test_whatever_happens_a_group_with_weights_settles_and_then_nothing_moves(history, seed):
    state, threads, events = history
    number = len(state.clients)
    for gone, joining in [(set(), 0), *events]:
        present = {one.process_id for one in state.clients}
        leaving = {process(one) for one in gone} & present
        joined = [client(number + at, capacity=threads[number + at - 1]) for at in range(1, joining + 1) if number + at <= 14]
        number += len(joined)
        if leaving < present | {one.process_id for one in joined}:
            state = after(state, BALANCED.assign(with_weights(state, seed)), gone=leaving, joined=joined)
        state, answer = settle_for_good(with_weights(state, seed))
        assert guarantee_violations(state, answer) == []
        assert within_bounds(state, owners(answer))
        state = after(state, answer)
        again = BALANCED.assign(state)
        assert again.clients == answer.clients
        assert not again.followup_needed


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(history=histories(), seed=st.integers(1, 9), other=st.integers(1, 9))
def test_weights_that_change_move_tasks_until_it_settles(history, seed, other):
    state, _ = settle_for_good(with_weights(history[0], seed))
    state, before = settle_for_good(with_weights(state, other))
    _, again, _ = settle(after(state, before))
    assert moved(before, again) == set()


def test_equal_weights_are_no_weights():
    state, _, _ = settle(cluster(partitions=3))
    grown = after(state, BALANCED.assign(state), joined=[client(11)])
    same = replace(grown, task_info={task: TaskInfo(weight=3.0) for task in grown.tasks})
    assert BALANCED.assign(same).clients == BALANCED.assign(grown).clients
