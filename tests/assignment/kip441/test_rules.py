"""The high-availability assignor on worked examples of its sources: the Japanese article, KIP-441, and their rules."""

import pytest

from tests.assignment.groups import END, after, client, group, process, shown, tasks
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.lag import is_caught_up, lag_of, rank_of
from tidemill.assignment.model import LATEST_OFFSET, LONG_MAX, UNKNOWN_OFFSET_SUM
from tidemill.errors import AssignmentError
from tidemill.ids import ProcessId

KAFKA_4_3 = HighAvailabilityTaskAssignor()
KAFKA_2_7 = HighAvailabilityTaskAssignor(compatibility="2.7")
BOTH = pytest.mark.parametrize("assignor", [KAFKA_4_3, KAFKA_2_7], ids=["4.3", "2.7"])
SIX = "1_0 1_1 1_2 1_3 1_4 1_5"


def rounds_until_stable(state, assignor):
    rounds = []
    while True:
        assignment = assignor.assign(state)
        rounds.append(shown(assignment))
        if not assignment.followup_needed:
            return rounds
        assert len(rounds) < 50
        state = after(state, assignment)


@BOTH
def test_fresh_tasks_are_dealt_out_round_robin(assignor):
    answer = assignor.assign(group([client(1), client(2), client(3)], SIX))
    assert shown(answer) == {"A": ("1_0 1_3", ""), "B": ("1_1 1_4", ""), "C": ("1_2 1_5", "")}
    assert not answer.followup_needed


@BOTH
@pytest.mark.parametrize(
    ("threads", "wanted"),
    [
        ((2, 1), {"A": ("1_0 1_1 1_2 1_4", ""), "B": ("1_3 1_5", "")}),
        ((1, 2), {"A": ("1_2 1_4", ""), "B": ("1_0 1_1 1_3 1_5", "")}),
    ],
)
def test_a_client_with_more_threads_gets_more_tasks_but_no_more_than_evens_them_out(assignor, threads, wanted):
    clients = [client(at, capacity=threads[at - 1]) for at in (1, 2)]
    assert shown(assignor.assign(group(clients, SIX))) == wanted


def test_clients_stand_in_the_order_of_signed_uuids():
    texts = ["7156cef1-307e-49c0-a5bb-0f11d26a4933", "4b61083e-57d0-457d-951f-d06556c148ca",
             "bbb83e43-b1af-4b2d-a60a-94a7091684d0"]
    ordered = sorted(map(ProcessId.parse, texts))
    assert [str(process_id)[:4] for process_id in ordered] == ["bbb8", "4b61", "7156"]


def third_client_joins(budget):
    clients = [client(1, "1_0 1_2 1_4"), client(2, "1_1 1_3 1_5"), client(3)]
    return group(clients, SIX, max_warmup_replicas=budget)


@BOTH
def test_a_third_client_gets_its_tasks_after_two_rounds_if_the_budget_is_large(assignor):
    first, last = rounds_until_stable(third_client_joins(4), assignor)
    assert first == {"A": ("1_0 1_2 1_4", "1_3"), "B": ("1_1 1_3 1_5", "1_4"), "C": ("", "1_2 1_5")}
    assert last == {"A": ("1_0 1_3", ""), "B": ("1_1 1_4", ""), "C": ("1_2 1_5", "")}


def test_with_two_warm_ups_each_version_serves_movements_in_its_own_order():
    target = {"A": ("1_0 1_3", ""), "B": ("1_1 1_4", ""), "C": ("1_2 1_5", "")}
    assert rounds_until_stable(third_client_joins(2), KAFKA_2_7) == [
        {"A": ("1_0 1_2 1_4", ""), "B": ("1_1 1_3 1_5", "1_4"), "C": ("", "1_2")},
        {"A": ("1_0", "1_3"), "B": ("1_1 1_3 1_4 1_5", ""), "C": ("1_2", "1_5")},
        target,
    ]
    assert rounds_until_stable(third_client_joins(2), KAFKA_4_3) == [
        {"A": ("1_0 1_2 1_4", "1_3"), "B": ("1_1 1_3 1_5", ""), "C": ("", "1_2")},
        {"A": ("1_0 1_3 1_4", ""), "B": ("1_1 1_5", "1_4"), "C": ("1_2", "1_5")},
        target,
    ]


@BOTH
def test_a_replacement_that_sorts_into_the_same_place_takes_only_the_old_ones_tasks(assignor):
    state = group([client(1, "1_0 1_3"), client(2, "1_1 1_4"), client(4)], SIX)
    answer = assignor.assign(state)
    assert shown(answer) == {"A": ("1_0 1_3", ""), "B": ("1_1 1_4", ""), "C": ("1_2 1_5", "")}
    assert not answer.followup_needed


@pytest.mark.parametrize(
    ("assignor", "rounds"),
    [
        (KAFKA_2_7, [("1_0 1_1 1_3 1_4", ""), ("1_2 1_5", "1_1 1_4"), ("", ""),
                     ("1_0 1_3", ""), ("1_1 1_2 1_4 1_5", ""), ("", "1_2 1_5")]),
        (KAFKA_4_3, [("1_0 1_1 1_3 1_4", ""), ("1_2 1_5", "1_1"), ("", "1_2"),
                     ("1_0 1_3 1_4", ""), ("1_1 1_5", "1_4"), ("1_2", "1_5")]),
    ],
    ids=["2.7", "4.3"],
)
def test_a_replacement_that_sorts_last_makes_every_stateful_task_change_client(assignor, rounds):
    state = group([client(2, "1_1 1_4"), client(3, "1_2 1_5"), client(4)], SIX, max_warmup_replicas=2)
    first, second, last = rounds_until_stable(state, assignor)
    assert [*first.values(), *second.values()] == rounds
    assert last == {"A": ("1_0 1_3", ""), "B": ("1_1 1_4", ""), "C": ("1_2 1_5", "")}


def test_when_nobody_is_caught_up_2_7_lets_the_target_have_the_tasks_and_4_3_the_least_lagging_client():
    lagging = dict.fromkeys(["1_0", "1_1", "1_2"], 50), dict.fromkeys(["1_0", "1_1", "1_2"], 900)
    state = group(
        [client(1, lags=lagging[0]), client(2, lags=lagging[1])], "1_0 1_1 1_2", acceptable_recovery_lag=10
    )
    old, new = KAFKA_2_7.assign(state), KAFKA_4_3.assign(state)
    assert (shown(old), old.followup_needed) == ({"A": ("1_0 1_2", ""), "B": ("1_1", "")}, False)
    assert (shown(new), new.followup_needed) == ({"A": ("1_0 1_1 1_2", ""), "B": ("", "1_1")}, True)


@BOTH
def test_the_kips_fresh_start_with_a_standby_each(assignor):
    answer = assignor.assign(group([client(1), client(2)], "0_1 0_2 0_3", num_standby_replicas=1))
    assert shown(answer) == {"A": ("0_1 0_3", "0_2"), "B": ("0_2", "0_1 0_3")}


@BOTH
def test_the_kips_scale_out_with_standbys_takes_two_rounds(assignor):
    clients = [
        client(1, "0_1 0_3", {"0_2": 0, "0_4": 0}),
        client(2, "0_2 0_4", {"0_1": 0, "0_3": 0}),
        client(3),
    ]
    state = group(clients, "0_1 0_2 0_3 0_4", num_standby_replicas=1, max_warmup_replicas=2)
    assert rounds_until_stable(state, assignor) == [
        {"A": ("0_1 0_3 0_4", "0_2"), "B": ("0_2", "0_1 0_3 0_4"), "C": ("", "0_2 0_3")},
        {"A": ("0_1 0_4", "0_3"), "B": ("0_2", "0_1 0_4"), "C": ("0_3", "0_2")},
    ]


@BOTH
def test_standbys_that_lag_too_far_get_no_active_task(assignor):
    clients = [
        client(1, "0_1 0_3", {"0_2": END, "0_4": 20_000}),
        client(2, "0_2 0_4", {"0_1": 20_000, "0_3": 20_000}),
        client(3),
    ]
    answer = assignor.assign(group(clients, "0_1 0_2 0_3 0_4", num_standby_replicas=1))
    held = {process_id: assignment.active for process_id, assignment in answer.clients.items()}
    assert held == {process(1): tasks("0_1 0_3"), process(2): tasks("0_2 0_4"), process(3): frozenset()}


def test_warm_ups_are_told_apart_from_standbys():
    answer = KAFKA_4_3.assign(third_client_joins(1))
    warm = {process_id: held.warmup for process_id, held in answer.clients.items()}
    assert warm == {process(1): frozenset(), process(2): frozenset(), process(3): tasks("1_2")}


def test_a_probing_rebalance_is_wanted_although_no_warm_up_was_left_for_the_movement():
    clients = [client(1, "1_0 1_1 1_2"), client(2), client(3)]
    answer = KAFKA_4_3.assign(group(clients, "1_0 1_1 1_2", max_warmup_replicas=1))
    assert shown(answer)["C"] == ("", "")
    assert answer.followup_needed


def test_stateless_tasks_go_to_the_client_with_the_fewest_active_tasks_per_thread():
    clients = [client(1, "1_0 1_1"), client(2, capacity=2), client(3)]
    answer = KAFKA_4_3.assign(group(clients, "1_0 1_1", "0_0 0_1 0_2 0_3"))
    assert shown(answer) == {"A": ("1_0 1_1", ""), "B": ("0_0 0_2 0_3", "1_1"), "C": ("0_1", "")}


def zoned(number, zone, cluster, running=""):
    return client(number, running, tags={"zone": zone, "cluster": cluster})


def test_standbys_spread_over_tags_as_long_as_values_are_left():
    clients = [zoned(1, "a", "x"), zoned(2, "b", "x"), zoned(3, "c", "x"),
               zoned(4, "a", "y"), zoned(5, "b", "y"), zoned(6, "c", "y")]
    state = group(
        clients, "0_0", num_standby_replicas=2, rack_aware_assignment_tags=("zone", "cluster")
    )
    assert {letter: held for letter, held in shown(KAFKA_4_3.assign(state)).items() if held != ("", "")} == {
        "A": ("0_0", ""),
        "C": ("", "0_0"),
        "E": ("", "0_0"),
    }


def test_standbys_for_which_no_other_tag_is_left_are_placed_by_load():
    clients = [zoned(1, "a", "x"), zoned(2, "a", "x"), zoned(3, "b", "x")]
    state = group(clients, "0_0", num_standby_replicas=2, rack_aware_assignment_tags=("zone",))
    assert shown(KAFKA_4_3.assign(state)) == {"A": ("0_0", ""), "B": ("", "0_0"), "C": ("", "0_0")}


def test_tags_that_are_not_configured_do_not_matter():
    clients = [zoned(1, "a", "x"), zoned(2, "a", "y"), zoned(3, "b", "x")]
    by_zone = group(clients, "0_0", num_standby_replicas=1, rack_aware_assignment_tags=("zone",))
    untagged = group(clients, "0_0", num_standby_replicas=1)
    assert shown(KAFKA_4_3.assign(by_zone))["C"] == ("", "0_0")
    assert shown(KAFKA_4_3.assign(untagged))["B"] == ("", "0_0")


def test_lags_follow_from_offset_sums():
    assert [lag_of(offset, 100) for offset in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM, 0, 60, 100)] == [-2, -3, 100, 40, 0]
    assert lag_of(101, 100) == 100, "an offset beyond the end is a corrupted store"


def test_caught_up_means_running_or_at_most_the_acceptable_lag():
    assert [is_caught_up(lag, 10) for lag in (-3, -2, 0, 10, 11)] == [False, True, True, True, False]
    assert is_caught_up(-3, LONG_MAX)
    assert is_caught_up(LONG_MAX, LONG_MAX)
    assert [rank_of(lag, 500, 10) for lag in (-3, -2, 10, 11)] == [500, 0, 0, 11]


def test_a_task_without_any_lag_is_refused_by_name():
    state = group([client(1, "1_0"), client(2)], "1_0")
    broken = type(state)(clients=state.clients, tasks=state.tasks, stateful_tasks=state.stateful_tasks)
    with pytest.raises(AssignmentError, match=r"no lag of stateful task 1_0 for client 00000000-.*-000000000002"):
        KAFKA_4_3.assign(broken)


def test_a_group_without_clients_and_a_client_without_threads_are_refused():
    with pytest.raises(AssignmentError, match="at least one client"):
        KAFKA_4_3.assign(group([], "1_0"))
    with pytest.raises(AssignmentError, match="has 0 consumers"):
        KAFKA_4_3.assign(group([client(1, capacity=0)], "1_0"))
