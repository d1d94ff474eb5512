"""The balanced assignor: KIP-441's guarantees, the least movement, and the figures that it was made for."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.assignment.groups import after, application_states, client, group, process, shown, tasks
from tests.assignment.recorded import examples
from tidemill.assignment.balanced.assignor import BalancedTaskAssignor
from tidemill.assignment.balanced.nearest_target import is_balanced
from tidemill.assignment.invariants import guarantee_violations, unbalanced, violations
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import LATEST_OFFSET, ApplicationState, AssignmentConfig, CopyRole
from tidemill.assignment.task_load import count_bounds
from tidemill.ids import TaskId

BALANCED = BalancedTaskAssignor()
KAFKA = HighAvailabilityTaskAssignor()


def owners(assignment):
    return {task: process_id for process_id, held in assignment.clients.items() for task in held.active}


def positions(state, assignment):
    order = {process_id: at for at, process_id in enumerate(sorted(one.process_id for one in state.clients))}
    return {task: order[process_id] for task, process_id in owners(assignment).items()}


def capacities(state):
    return [one.capacity for one in sorted(state.clients, key=lambda one: one.process_id)]


def is_balanced_answer(state, assignment):
    return is_balanced(positions(state, assignment), state.tasks, state.stateful_tasks, capacities(state))


def settle(state, assignor=BALANCED, limit=300):
    """Assign and restore until no probing rebalance is wanted; returns the state, the answer, the rounds."""
    for rounds in range(1, limit + 1):
        assignment = assignor.assign(state)
        assert violations(state, assignment) == []
        if not assignment.followup_needed:
            return state, assignment, rounds
        state = after(state, assignment)
    raise AssertionError(f"not stable after {limit} rounds")


def cluster(clients=10, partitions=100, **config):
    """Ten sub-topologies, everything stateful."""
    stateful = frozenset(TaskId(s, p) for s in range(10) for p in range(partitions))
    return ApplicationState(
        clients=tuple(client(number) for number in range(1, clients + 1)),
        tasks=tuple(sorted(stateful)),
        stateful_tasks=stateful,
        end_offset_sums=dict.fromkeys(stateful, 100_000),
        config=AssignmentConfig(max_warmup_replicas=50, **config),
    )


def share_that_moves(assignor, standbys, *, gone=(), joined=()):
    """The part of 1,000 tasks whose client is another after ten clients have become others."""
    state, before, _ = settle(cluster(num_standby_replicas=standbys), assignor)
    _, later, _ = settle(after(state, before, gone=map(process, gone), joined=map(client, joined)), assignor)
    was = owners(before)
    return sum(was[task] != process_id for task, process_id in owners(later).items()) / len(was)


@pytest.mark.parametrize("standbys", [0, 1])
def test_adding_one_client_to_ten_moves_no_more_tasks_than_it_gets(standbys):
    assert share_that_moves(BALANCED, standbys, joined=[11]) == 0.09


def test_adding_one_client_to_ten_moves_nine_tenths_of_the_tasks_in_kafkas_assignor():
    assert share_that_moves(KAFKA, 0, joined=[11]) >= 0.9


def test_replacing_one_client_of_ten_moves_only_its_tasks():
    assert share_that_moves(BALANCED, 0, gone=[1], joined=[11]) == 0.1
    assert share_that_moves(KAFKA, 0, gone=[1], joined=[11]) == 1.0


@pytest.mark.parametrize("standbys", [0, 1])
def test_removing_one_client_of_ten_moves_only_its_tasks(standbys):
    assert share_that_moves(BALANCED, standbys, gone=[4]) == 0.1


def test_the_target_after_a_replacement_differs_only_in_the_tasks_of_the_replaced_with_standbys_too():
    state, before, _ = settle(cluster(num_standby_replicas=1))
    state = after(state, before, gone=[process(1)], joined=[client(11)])
    target = {one.task: one.target for one in BALANCED.assign(state).explain() if one.role is CopyRole.ACTIVE}
    was = owners(before)
    assert {was[task] for task, process_id in target.items() if was[task] != process_id} == {process(1)}


def handovers(assignor, state, before):
    """Over all rounds until stable: how often a task that ran on a client of the group went to another one."""
    moved, was = 0, owners(before)
    for _ in range(100):
        answer = assignor.assign(state)
        present = {one.process_id for one in state.clients}
        moved += sum(was[task] in present and was[task] != process_id for task, process_id in owners(answer).items())
        if not answer.followup_needed:
            return moved
        was, state = owners(answer), after(state, answer)
    raise AssertionError("not stable after 100 rounds")


@pytest.mark.parametrize(("standbys", "expected"), [(0, 0), (1, 100), (2, 100)])
def test_replacing_one_client_of_ten_hands_over_no_more_of_1000_tasks_than_the_new_one_gets(standbys, expected):
    # Without standbys the new client takes the orphans themselves. With standbys those go on where their standbys were;
    # then the new client gets as many, those or others that wait there ready: the state does not tell them apart any more.
    state, before, _ = settle(cluster(num_standby_replicas=standbys))
    replaced = after(state, before, gone=[process(1)], joined=[client(11)])
    assert handovers(BALANCED, replaced, before) == expected


def test_replacing_one_client_of_ten_hands_over_most_tasks_in_kafkas_assignor():
    state, before, _ = settle(cluster(num_standby_replicas=1), KAFKA)
    assert handovers(KAFKA, after(state, before, gone=[process(1)], joined=[client(11)]), before) > 400


def test_removing_a_client_lets_the_caught_up_standbys_take_over_at_once():
    state, before, _ = settle(cluster(num_standby_replicas=1))
    orphans = before.clients[process(4)].active
    answer = BALANCED.assign(after(state, before, gone=[process(4)]))
    took_over = {process_id: held.active & orphans for process_id, held in answer.clients.items()}
    assert sum(map(len, took_over.values())) == 100
    assert all(copies <= before.clients[process_id].standby for process_id, copies in took_over.items())


def test_a_balanced_assignment_of_another_assignor_is_not_altered():
    state, answer, _ = settle(cluster(partitions=20, num_standby_replicas=1), KAFKA)
    assert is_balanced_answer(state, answer)
    again = BALANCED.assign(after(state, answer))
    assert owners(again) == owners(answer)
    assert not again.followup_needed


def test_the_new_client_is_warmed_up_within_the_budget_while_everybody_runs_on():
    clients = [client(1, "1_0 1_1 1_2"), client(2, "1_3 1_4 1_5"), client(3)]
    state = group(clients, "1_0 1_1 1_2 1_3 1_4 1_5", max_warmup_replicas=1)
    first = BALANCED.assign(state)
    assert (first.clients[process(1)].active, first.clients[process(2)].active) == (tasks("1_0 1_1 1_2"), tasks("1_3 1_4 1_5"))
    assert len(first.clients[process(3)].warmup) == 1
    _, last, rounds = settle(state)
    assert [len(held[0].split()) for held in shown(last).values()] == [2, 2, 2]
    assert rounds == 3


def test_a_task_runs_on_where_it_runs_rather_than_on_a_caught_up_standby_while_its_target_warms_up():
    clients = [client(1, "1_0 1_1", {"1_2": 0, "1_3": 0}), client(2, "1_2 1_3", {"1_0": 0, "1_1": 0}), client(3), client(4)]
    answer = BALANCED.assign(group(clients, "1_0 1_1 1_2 1_3", num_standby_replicas=1))
    assert owners(answer) == {
        **dict.fromkeys(tasks("1_0 1_1"), process(1)),
        **dict.fromkeys(tasks("1_2 1_3"), process(2)),
    }


def test_among_equally_near_targets_the_one_with_state_is_taken():
    clients = [client(1, "1_0 1_1 1_2 1_3"), client(2, lags={"1_1": 5_000, "1_3": 60_000}), client(3)]
    answer = BALANCED.assign(group(clients, "1_0 1_1 1_2 1_3"))
    assert answer.clients[process(2)].active == tasks("1_1")
    to_move = {str(one.task): one.target for one in answer.explain() if one.rebalances_to_go}
    assert set(to_move.values()) == {process(3)}
    both = [client(1, "1_0 1_1 1_2"), client(2, lags={"1_1": 60_000, "1_2": 5_000})]
    assert BALANCED.assign(group(both, "1_0 1_1 1_2")).clients[process(2)].active == tasks("1_2")
    partial = [client(1, "1_0 1_1 1_2"), client(2, lags={"1_2": 60_000})]
    warming = BALANCED.assign(group(partial, "1_0 1_1 1_2", max_warmup_replicas=1)).clients[process(2)].warmup
    assert warming == tasks("1_2")


def test_stateless_tasks_stay_where_they_are():
    clients = [client(1, "0_1 0_3 1_0"), client(2, "0_0 0_2 1_1")]
    answer = BALANCED.assign(group(clients, "1_0 1_1", "0_0 0_1 0_2 0_3"))
    assert shown(answer) == {"A": ("0_1 0_3 1_0", ""), "B": ("0_0 0_2 1_1", "")}
    moved_by_kafka = KAFKA.assign(group(clients, "1_0 1_1", "0_0 0_1 0_2 0_3"))
    assert owners(moved_by_kafka) != owners(answer)


def test_each_sub_topology_is_balanced_and_not_only_all_tasks_together():
    clients = [client(1, "1_0 1_1 1_2 1_3"), client(2, "2_0 2_1 2_2 2_3")]
    _, answer, _ = settle(group(clients, "1_0 1_1 1_2 1_3 2_0 2_1 2_2 2_3"))
    for held in answer.clients.values():
        assert Counter(task.subtopology for task in held.active) == {1: 2, 2: 2}


def test_threads_weigh():
    state = group([client(1, capacity=3), client(2, capacity=1)], "1_0 1_1 1_2 1_3 1_4 1_5")
    counts = {process_id: len(held.active) for process_id, held in BALANCED.assign(state).clients.items()}
    assert unbalanced(counts, state) == []
    assert counts[process(1)] in (4, 5)
    assert (count_bounds(6, 3, 4), count_bounds(6, 1, 4), count_bounds(4, 1, 4)) == ((4, 5), (1, 2), (1, 1))


def test_standbys_of_balanced_are_spread_over_tags():
    clients = [client(number, tags={"zone": "ab"[number % 2]}) for number in range(1, 5)]
    state = group(clients, "1_0 1_1 1_2 1_3", num_standby_replicas=1, rack_aware_assignment_tags=("zone",))
    answer = BALANCED.assign(state)
    zone = {one.process_id: one.tags["zone"] for one in clients}
    for task in state.tasks:
        zones = {zone[process_id] for process_id, held in answer.clients.items() if task in held.active | held.standby}
        assert zones == {"a", "b"}


def test_standbys_stay_where_state_is_and_are_evened_out_with_few_moves():
    state, before, _ = settle(cluster(partitions=20, num_standby_replicas=1))
    _, later, _ = settle(after(state, before, joined=[client(11)]))
    had = {(process_id, task) for process_id, held in before.clients.items() for task in held.standby}
    has = {(process_id, task) for process_id, held in later.clients.items() for task in held.standby}
    assert len(has - had) <= 40
    copies = [len(held.active) + len(held.standby) for held in later.clients.values()]
    assert max(copies) - min(copies) <= 1


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(state=application_states(tagged=True))
def test_no_state_makes_it_violate_anything(state):
    answer = BALANCED.assign(state)
    assert violations(state, answer) == []
    assert guarantee_violations(state, answer) == []
    if not any(one.role is CopyRole.ACTIVE and one.rebalances_to_go for one in answer.explain()):
        assert is_balanced_answer(state, answer)
    explained = Counter((one.chosen, one.task) for one in answer.explain() if one.chosen is not None)
    held = Counter((process_id, copy) for process_id, of in answer.clients.items() for copy in (*of.active, *of.standby))
    assert explained == held


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(state=application_states(tagged=True), order=st.randoms(use_true_random=False))
def test_the_order_in_which_clients_and_tasks_are_listed_changes_nothing(state, order):
    clients, listed = list(state.clients), list(state.tasks)
    order.shuffle(clients)
    order.shuffle(listed)
    assert BALANCED.assign(replace(state, clients=tuple(clients), tasks=tuple(listed))) == BALANCED.assign(state)


def least_moves(state):
    """By trying every assignment."""
    runs = {task: {one.process_id for one in state.clients if task in one.previous_active} for task in state.tasks}
    order = sorted(one.process_id for one in state.clients)
    return min(
        sum(bool(runs[task]) and order[at] not in runs[task] for task, at in zip(state.tasks, chosen, strict=True))
        for chosen in product(range(len(order)), repeat=len(state.tasks))
        if is_balanced(dict(zip(state.tasks, chosen, strict=True)), state.tasks, state.stateful_tasks, capacities(state))
    )


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(state=application_states(plausible=True))
def test_no_balanced_assignment_is_nearer_than_the_target(state):
    assume(len(state.clients) ** len(state.tasks) <= 3_000)
    stateful = replace(state, tasks=tuple(sorted(state.stateful_tasks)))
    assume(stateful.tasks)
    target = {one.task: one.target for one in BALANCED.assign(stateful).explain() if one.role is CopyRole.ACTIVE}
    running = {
        task: one.process_id for one in stateful.clients for task, lag in one.lags.items() if lag == LATEST_OFFSET
    }
    moves = sum(target[task] != process_id for task, process_id in running.items())
    assert moves == least_moves(stateful)


def targets(answer):
    return {one.task: one.target for one in answer.explain() if one.role is CopyRole.ACTIVE}


def assert_moves_the_least(state, before):
    """``state`` is what is left of ``before`` once clients have come or gone. Returns the settled state and its answer.

    The least that any assignor must move is what the nearest balanced target moves, which trying every assignment confirms
    (``test_no_balanced_assignment_is_nearer_than_the_target``). Tasks of which a standby is caught up go on there at once,
    however uneven that is, because a task runs on a caught-up client as long as there is one: what counts from then on is the
    distance of that.
    """
    present = {one.process_id for one in state.clients}
    was = {task: process_id for task, process_id in owners(before).items() if task in state.stateful_tasks}
    stayed = {task: process_id for task, process_id in was.items() if process_id in present}
    orphans = len(was) - len(stayed)
    answer = BALANCED.assign(state)
    target = targets(answer)
    least = sum(target[task] != process_id for task, process_id in stayed.items())
    has_ready_copies = any(lag == 0 for one in state.clients for task, lag in one.lags.items() if task not in stayed)
    runs = owners(answer)
    at_once = sum(runs[task] != process_id for task, process_id in stayed.items())
    state = after(state, answer)
    target = targets(BALANCED.assign(state))
    to_go = sum(target[task] != runs[task] for task in was)
    handed_over, rounds = 0, 0
    while answer.followup_needed:
        answer, rounds = BALANCED.assign(state), rounds + 1
        assert rounds <= 300
        now = owners(answer)
        handed_over += sum(now[task] != runs[task] for task in was)
        runs, state = now, after(state, answer)
    assert handed_over == to_go  # none twice, none in vain
    assert at_once + handed_over <= least + orphans
    if not has_ready_copies:
        assert at_once + handed_over == least
    changed = sum(runs[task] != process_id for task, process_id in was.items())
    assert changed <= least + 2 * orphans
    assert is_balanced_answer(state, answer)
    return state, answer


@pytest.mark.parametrize("assignor", [BALANCED, KAFKA], ids=["balanced", "kafka"])
@pytest.mark.parametrize(("gone", "joined"), [([4], [11]), ([4], []), ([], [11]), ([2, 4], [11])])
@pytest.mark.parametrize("standbys", [0, 1, 2])
def test_ten_clients_placed_by_either_assignor_hand_over_no_more_than_is_needed(assignor, standbys, gone, joined):
    state, before, _ = settle(cluster(partitions=7, num_standby_replicas=standbys), assignor)
    assert_moves_the_least(after(state, before, gone=map(process, gone), joined=map(client, joined)), before)


@st.composite
def histories(draw):
    """A fresh group and what happens to it: clients that join and leave."""
    threads = draw(st.lists(st.integers(1, 3), min_size=14, max_size=14))
    start = application_from(draw)
    clients = [client(number, capacity=threads[number - 1]) for number in range(1, draw(st.integers(1, 6)) + 1)]
    events = draw(st.lists(st.tuples(st.sets(st.integers(1, 14), max_size=2), st.integers(0, 2)), max_size=3))
    return replace(start, clients=tuple(clients)), threads, events


def application_from(draw):
    counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    stateful = " ".join(f"1{s}_{p}" for s, count in enumerate(counts) for p in range(count))
    stateless = " ".join(f"0_{p}" for p in range(draw(st.integers(0, 5))))
    return group(
        [], stateful, stateless,
        num_standby_replicas=draw(st.integers(0, 2)), max_warmup_replicas=draw(st.sampled_from([1, 2, 5, 100])),
    )


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(history=histories())
def test_after_whatever_happens_it_settles_balanced_within_the_bound_and_then_stays(history):
    state, threads, events = history
    number = len(state.clients)
    for gone, joining in [(set(), 0), *events]:
        present = {one.process_id for one in state.clients}
        leaving = {process(one) for one in gone} & present
        joined = [client(number + at, capacity=threads[number + at - 1]) for at in range(1, joining + 1) if number + at <= 14]
        number += len(joined)
        if leaving < present | {one.process_id for one in joined}:
            state = after(state, BALANCED.assign(state), gone=leaving, joined=joined)
        copies = len(state.stateful_tasks) * (1 + state.config.num_standby_replicas)
        bound = -(-copies // state.config.max_warmup_replicas) + 1 + bool(state.config.num_standby_replicas)
        state, answer, rounds = settle(state)
        assert rounds <= bound
        assert guarantee_violations(state, answer) == []
        assert is_balanced_answer(state, answer)
        state = after(state, answer)
        again = BALANCED.assign(state)
        assert again.clients == answer.clients
        assert not again.followup_needed


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(history=histories(), kafka_first=st.booleans())
def test_whoever_placed_them_and_whatever_happens_no_more_is_handed_over_than_is_needed(history, kafka_first):
    state, threads, events = history
    number = len(state.clients)
    state, answer, _ = settle(state, KAFKA if kafka_first else BALANCED)
    for gone, joining in events:
        present = {one.process_id for one in state.clients}
        leaving = {process(one) for one in gone} & present
        joined = [client(number + at, capacity=threads[number + at - 1]) for at in range(1, joining + 1) if number + at <= 14]
        number += len(joined)
        if leaving < present | {one.process_id for one in joined}:
            state, answer = assert_moves_the_least(after(state, answer, gone=leaving, joined=joined), answer)
