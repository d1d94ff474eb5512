"""Decisions say why each copy is where it is, from what the assignor itself recorded."""

import gzip
import json
from collections import Counter

import pytest
from hypothesis import given, settings

import tidemill.assignment.kip441.high_availability as high_availability
from tests.assignment.groups import after, application_states, client, group, process
from tests.assignment.recorded import VECTORS, examples
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import CopyRole
from tidemill.ids import ProcessId, TaskId
from tidemill.replay.records import application_state

BBB8 = ProcessId.parse("bbb83e43-b1af-4b2d-a60a-94a7091684d0")
B4B61 = ProcessId.parse("4b61083e-57d0-457d-951f-d06556c148ca")
C7156 = ProcessId.parse("7156cef1-307e-49c0-a5bb-0f11d26a4933")


def task(text):
    return TaskId.parse(text)


@pytest.fixture(scope="module")
def at_13_48_02():
    """The published round in which the third instance had just joined, as 2.7 decided it."""
    with gzip.open(VECTORS / "seed_experiment.json.gz", "rt") as file:
        cases = {case["id"]: case["input"] for case in json.load(file)["same_inputs"]}
    return HighAvailabilityTaskAssignor(compatibility="2.7").assign(application_state(cases["round1-disk5"])).explain()


def test_why_1_0_is_being_warmed_up_on_the_new_client(at_13_48_02):
    active, warm_up = at_13_48_02.of(task("1_0"))
    assert (active.role, active.chosen, active.target) == (CopyRole.ACTIVE, B4B61, BBB8)
    assert (warm_up.role, warm_up.chosen, warm_up.target, warm_up.rebalances_to_go) == (CopyRole.WARM_UP, BBB8, BBB8, 1)
    assert warm_up.reason == (
        "1_0 is being warmed up on bbb83e43: the target wants it there, but bbb83e43 has nothing of its 2 offsets, "
        "more than acceptable.recovery.lag = 0. It is movement 1 of 4 (2.7's order: the array of a heap filled client "
        "by client), which takes warm-up 1 of max.warmup.replicas = 2. It moves to bbb83e43 in the first rebalance "
        "that finds it at most 0 behind there; the next probing rebalance is due in 60 s "
        "(probing.rebalance.interval.ms)."
    )
    assert warm_up.candidates == ((B4B61, -2, 0), (BBB8, 2, 2), (C7156, 2, 2))
    assert "KIP-441" in warm_up.source


def test_why_1_3_is_not_being_warmed_up_yet_and_when_it_will_move(at_13_48_02):
    active, warm_up = at_13_48_02.of(task("1_3"))
    assert (active.chosen, active.target, active.rebalances_to_go) == (C7156, BBB8, 2)
    assert (warm_up.role, warm_up.chosen, warm_up.target, warm_up.rebalances_to_go) == (CopyRole.WARM_UP, None, BBB8, 2)
    assert warm_up.reason == (
        "1_3 is not being warmed up on bbb83e43 yet. The target wants it there, but bbb83e43 has nothing of its 6 "
        "offsets, more than acceptable.recovery.lag = 0. It is movement 4 of 4 (2.7's order: the array of a heap "
        "filled client by client), and max.warmup.replicas = 2 was used up before it: 1_0 on bbb83e43, 1_2 on "
        "7156cef1. It is number 2 of 2 that wait: expected to be warmed up from rebalance 1 after this one (in 60 s) "
        "and to move to bbb83e43 in rebalance 2 (in 120 s), if warm-ups catch up from one probing rebalance to the next."
    )
    assert active.candidates == ((C7156, -2, 0), (B4B61, 1, 1), (BBB8, 6, 6))


def test_why_a_task_stays_and_why_a_stateless_one_is_anywhere(at_13_48_02):
    (stays,) = at_13_48_02.of(task("1_4"))
    assert (stays.rule, stays.chosen, stays.rebalances_to_go) == ("round robin", B4B61, None)
    assert stays.reason.endswith("4b61083e runs it now, so it is caught up (acceptable.recovery.lag = 0).")
    (stateless,) = at_13_48_02.of(task("0_3"))
    assert (stateless.rule, stateless.chosen, stateless.candidates) == ("fewest active tasks", BBB8, ())


@pytest.mark.parametrize("version", ["4.3", "2.7"])
@pytest.mark.parametrize(("budget", "rounds"), [(2, {1: 2, 2: 2}), (1, {1: 1, 2: 1, 3: 1, 4: 1})])
def test_tasks_move_in_the_round_that_was_foretold(version, budget, rounds):
    assignor = HighAvailabilityTaskAssignor(compatibility=version)
    clients = [client(2, "1_1 1_4"), client(3, "1_2 1_5"), client(4)]
    state = group(clients, "1_0 1_1 1_2 1_3 1_4 1_5", max_warmup_replicas=budget)
    assignment = assignor.assign(state)
    foretold = {
        decision.task: (decision.rebalances_to_go, decision.target)
        for decision in assignment.explain()
        if decision.role is CopyRole.ACTIVE and decision.rebalances_to_go
    }
    assert Counter(go for go, _ in foretold.values()) == rounds
    happened = {}
    for number in range(1, len(rounds) + 1):
        state = after(state, assignment)
        assignment = assignor.assign(state)
        for moved, (_, target) in foretold.items():
            if moved in assignment.clients[target].active:
                happened.setdefault(moved, (number, target))
    assert happened == foretold


def test_a_swap_says_that_it_costs_no_warm_up():
    state = group([client(1), client(2, "1_0")], "1_0", num_standby_replicas=1)
    active, standby = HighAvailabilityTaskAssignor().assign(state).explain()
    assert (active.role, active.chosen, active.target) == (CopyRole.ACTIVE, process(2), process(1))
    assert (standby.role, standby.rule, standby.chosen) == (CopyRole.STANDBY, "swapped with a standby", process(1))
    assert "takes nothing from max.warmup.replicas" in standby.reason


def test_too_few_clients_for_the_standbys_is_said():
    state = group([client(1), client(2)], "0_0", num_standby_replicas=2)
    *_, shortfall = HighAvailabilityTaskAssignor().assign(state).explain()
    assert shortfall.rule == "too few clients"
    assert shortfall.reason == (
        "1 of 2 standby tasks of 0_0 could not be placed: every client has a copy already. "
        "num.standby.replicas = 2 needs at least 3 instances."
    )


def test_more_threads_are_the_rule_where_they_changed_the_target():
    state = group([client(1, capacity=2), client(2)], "1_0 1_1 1_2 1_3 1_4 1_5")
    rules = {str(one.task): one.rule for one in HighAvailabilityTaskAssignor().assign(state).explain()}
    assert rules["1_1"] == "balanced over threads"
    assert set(rules.values()) == {"round robin", "balanced over threads"}


def test_an_assignment_that_nobody_questions_builds_no_decision(monkeypatch):
    def refuse(_trace):
        raise AssertionError("decisions were built")

    monkeypatch.setattr(high_availability, "Decisions", refuse)
    assignment = HighAvailabilityTaskAssignor().assign(group([client(1), client(2)], "1_0 1_1"))
    with pytest.raises(AssertionError, match="decisions were built"):
        assignment.explain()


@pytest.mark.parametrize("version", ["4.3", "2.7"])
@settings(max_examples=examples(80), deadline=None, derandomize=True)
@given(state=application_states(tagged=True))
def test_every_copy_of_every_task_is_explained_once(version, state):
    assignment = HighAvailabilityTaskAssignor(compatibility=version).assign(state)
    explained = Counter(
        (one.chosen, one.task, one.role is CopyRole.ACTIVE) for one in assignment.explain() if one.chosen is not None
    )
    held = Counter(
        (process_id, copy, is_active)
        for process_id, tasks in assignment.clients.items()
        for is_active, copies in ((True, tasks.active), (False, tasks.standby))
        for copy in copies
    )
    assert explained == held
    warm = {(one.chosen, one.task) for one in assignment.explain() if one.role is CopyRole.WARM_UP and one.chosen}
    assert warm == {(process_id, copy) for process_id, tasks in assignment.clients.items() for copy in tasks.warmup}
    assert all(one.reason.endswith(".") for one in assignment.explain())


def test_clients_that_share_their_first_digits_are_named_in_full():
    reason = HighAvailabilityTaskAssignor().assign(group([client(1, "1_0"), client(2)], "1_0")).explain()[0].reason
    assert str(process(1)) in reason
