"""Each scenario of examples/scenarios gives the result of the document that it is taken from."""

import pytest

from tests.sim.sim_runs import SCENARIOS, decided, run, shown, threads


@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("*.toml")))
def test_the_auditors_find_nothing_and_the_group_is_balanced(name):
    result = run(name)
    assert result.violations == ()
    assert result.time_to_balanced_ms is not None


def test_the_articles_three_rounds_to_the_task():
    result = run("article")
    assert [shown(result, round_) for round_ in decided(result)] == [
        {"bbb8": "0_0 0_1 0_2 0_3 | 1_0", "4b61": "0_4 1_0 1_2 1_4 |", "7156": "0_5 1_1 1_3 1_5 | 1_2"},
        {"bbb8": "0_0 0_2 0_4 1_0 | 1_3", "4b61": "0_1 0_3 0_5 1_4 | 1_1", "7156": "1_1 1_2 1_3 1_5 |"},
        {"bbb8": "0_0 0_3 1_0 1_3 |", "4b61": "0_1 0_4 1_1 1_4 |", "7156": "0_2 0_5 1_2 1_5 |"},
    ]


def test_the_articles_three_rounds_to_the_thread():
    result = run("article")
    assert [threads(result, round_) for round_ in decided(result)] == [
        {
            "bbb8 1": "0_0 0_2 | 1_0", "bbb8 2": "0_1 0_3 |",
            "4b61 1": "1_0 1_4 |", "4b61 2": "0_4 1_2 |",
            "7156 1": "0_5 1_3 | 1_2", "7156 2": "1_1 1_5 |",
        },
        {
            "bbb8 1": "0_2 1_0 | 1_3", "bbb8 2": "0_0 0_4 |",
            "4b61 1": "0_3 1_4 | 1_1", "4b61 2": "0_1 0_5 |",
            "7156 1": "1_2 1_3 |", "7156 2": "1_1 1_5 |",
        },
        {
            "bbb8 1": "0_0 1_0 |", "bbb8 2": "0_3 1_3 |",
            "4b61 1": "0_1 1_4 |", "4b61 2": "0_4 1_1 |",
            "7156 1": "0_2 1_2 |", "7156 2": "0_5 1_5 |",
        },
    ]  # fmt: skip


def test_the_articles_rounds_are_a_probing_interval_apart_and_each_hand_over_is_a_rebalance():
    result = run("article")
    first, second, third = (round_.time_ms for round_ in decided(result))
    assert 60_000 < second - first < 61_000
    assert 60_000 < third - second < 61_000
    moving = [round_ for round_ in result.rounds if round_.withheld]
    assert len(moving) >= 3
    for round_ in moving:
        assert result.rounds[round_.number].time_ms - round_.time_ms < 1_000
    assert result.rounds[-1].is_stable


def test_the_articles_experiment_with_todays_assignor():
    result = run("article", compatibility="4.3")
    assert [shown(result, round_) for round_ in decided(result)] == [
        {"bbb8": "0_0 0_1 0_2 0_3 | 1_0", "4b61": "0_4 1_0 1_2 1_4 | 1_1", "7156": "0_5 1_1 1_3 1_5 |"},
        {"bbb8": "0_0 0_1 0_3 1_0 | 1_3", "4b61": "0_4 1_1 1_2 1_4 |", "7156": "0_2 0_5 1_3 1_5 | 1_2"},
        {"bbb8": "0_0 0_3 1_0 1_3 |", "4b61": "0_1 0_4 1_1 1_4 |", "7156": "0_2 0_5 1_2 1_5 |"},
    ]
    assert result.most_loaded == 3
    assert run("article").most_loaded == 4


@pytest.mark.parametrize("compatibility", ["2.7", "4.3"])
def test_kip_441s_scale_out(compatibility):
    result = run("kip441-scale-out", compatibility=compatibility)
    assert shown(result, result.rounds[0]) == {"I1": "0_0 0_2 | 0_1 0_3", "I2": "0_1 0_3 | 0_0 0_2"}
    assert [shown(result, round_) for round_ in decided(result)] == [
        {"I1": "0_0 0_2 0_3 | 0_1", "I2": "0_1 | 0_0 0_2 0_3", "I3": "| 0_1 0_2"},
        {"I1": "0_0 0_3 | 0_2", "I2": "0_1 | 0_0 0_3", "I3": "0_2 | 0_1"},
    ]
    assert result.longest_outage.length_ms < 1_000


def test_replacing_c_by_d_moves_only_cs_tasks_in_one_round():
    result = run("replace-c-by-d")
    assert [shown(result, round_) for round_ in decided(result)] == [
        {"A": "1_0 1_3 |", "B": "1_1 1_4 |", "D": "1_2 1_5 |"}
    ]
    assert result.restored_records.keys() == {(1, 2), (1, 5)}


R1 = {"B": "1_0 1_1 1_3 1_4 |", "C": "1_2 1_5 | 1_1", "D": "| 1_2"}
END = {"B": "1_0 1_3 |", "C": "1_1 1_4 |", "D": "1_2 1_5 |"}


def test_replacing_a_by_d_changes_the_client_of_every_stateful_task():
    result = run("replace-a-by-d")
    assert [shown(result, round_) for round_ in decided(result)] == [
        R1,
        {"B": "1_0 1_3 1_4 |", "C": "1_1 1_5 | 1_4", "D": "1_2 | 1_5"},
        END,
    ]
    assert {task for r in result.rounds for m in r.moves for task in [m.task]} == set(result.rounds[0].state.tasks)


def test_replacing_a_by_d_under_2_7():
    result = run("replace-a-by-d", compatibility="2.7")
    assert [shown(result, round_) for round_ in decided(result)] == [
        {"B": "1_0 1_1 1_3 1_4 |", "C": "1_2 1_5 | 1_1 1_4", "D": "|"},
        {"B": "1_0 1_3 |", "C": "1_1 1_2 1_4 1_5 |", "D": "| 1_2 1_5"},
        END,
    ]


def test_replacing_a_by_d_with_a_budget_of_six_takes_two_rounds():
    assert len(decided(run("replace-a-by-d", max_warmup_replicas=6))) == 2


def test_a_transplanted_process_id_moves_nobody_elses_tasks():
    result = run("process-id-transplanted")
    assert [shown(result, round_) for round_ in decided(result)] == [
        {"D": "1_0 1_3 |", "B": "1_1 1_4 |", "C": "1_2 1_5 |"}
    ]
    assert result.restored_records.keys() == {(1, 0), (1, 3)}


def test_a_source_topic_as_changelog_replays_only_the_gap_after_a_crash_of_all():
    result = run("source-topic-as-changelog")
    before, *_, after = result.rounds
    lags = [lag for client in after.state.clients for lag in client.lags.values()]
    assert lags
    assert min(lags) > after.state.config.acceptable_recovery_lag, "nobody is caught up"
    assert {p: held.active for p, held in after.assignment.clients.items()} == {
        p: held.active for p, held in before.assignment.clients.items()
    }
    assert set(result.restored_records.values()) == {500_000 % 30_000}


def test_no_copy_caught_up_is_round_robin_in_2_7_and_the_least_lag_since():
    older, today = run("no-copy-caught-up", compatibility="2.7"), run("no-copy-caught-up")
    assert shown(older, older.rounds[0]) == {"A": "1_0 1_2 |", "B": "1_1 |"}
    assert not older.rounds[0].assignment.followup_needed
    assert shown(today, today.rounds[0]) == {"A": "1_0 1_1 1_2 |", "B": "| 1_1"}
    assert today.rounds[0].assignment.followup_needed
    assert older.longest_outage is None
    assert today.rounds[-1].is_stable


def test_a_rolling_bounce_ends_where_it_began_and_no_task_waits_for_its_whole_state():
    result = run("rolling-bounce")
    start = next(r for r in reversed(result.rounds) if r.time_ms < result.scenario.disturbed_ms)
    assert {p: held.active for p, held in result.rounds[-1].assignment.clients.items()} == {
        p: held.active for p, held in start.assignment.clients.items()
    }
    whole_ms = 200_000 / result.scenario.surroundings.restore_records_per_s * 1_000
    assert result.longest_outage.length_ms < whole_ms / 4
    assert {outage.task for outage in result.outages} == set(start.state.tasks)


def test_a_restart_that_loses_its_disk_comes_back_as_another_client_and_restores_by_warm_ups():
    result = run("restart-loses-disk")
    first, last = result.rounds[0].state.clients, result.rounds[-1].state.clients
    lost = {client.process_id for client in first} - {client.process_id for client in last}
    new = {client.process_id for client in last} - {client.process_id for client in first}
    assert [result.name(p) for p in (*lost, *new)] == ["B", "B"]
    assert lost != new
    assert result.longest_outage.length_ms < 1_000
    assert any(held.warmup for round_ in result.rounds for held in round_.assignment.clients.values())


def test_balanced_moves_only_the_newcomers_share_where_kafkas_target_moves_nearly_everything():
    kafkas, ours = run("one-more-than-ten"), run("one-more-than-ten", assignor="balanced")
    moved = [{m.task for r in result.rounds_after_start for m in r.moves} for result in (kafkas, ours)]
    assert len(moved[0]) > 80
    assert len(moved[1]) <= 10
    assert ours.time_to_balanced_ms < kafkas.time_to_balanced_ms
    assert ours.violations == ()


def test_a_hot_partitions_client_hands_other_tasks_over_by_warm_ups_and_kafkas_assignor_keeps_counts_even():
    ours, kafkas = run("hot-partition"), run("hot-partition", assignor="HighAvailabilityTaskAssignor")
    assert sorted(len(held.active) for held in ours.rounds[-1].assignment.clients.values()) == [2, 5, 5]
    assert [len(held.active) for held in kafkas.rounds[-1].assignment.clients.values()] == [4, 4, 4]
    assert round(ours.busiest, 2) == 1.42
    assert round(kafkas.busiest, 2) == 1.74
    assert {str(move.task) for round_ in ours.rounds_after_start for move in round_.moves} == {"0_1", "0_2"}
    assert ours.moved_tasks == 2, "a hand-over that takes two rebalances is one move"
    assert ours.longest_outage.length_ms < 1_000
    reasons = [one.reason for round_ in ours.rounds_after_start for one in round_.assignment.explain()]
    assert any("carries 1.50 times its share without such changes" in reason for reason in reasons)
