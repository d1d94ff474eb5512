"""Whatever strikes a simulated group, the auditors find nothing and it is balanced again."""

from dataclasses import replace
from random import Random

import pytest

from tests.sim.faults import with_faults
from tests.sim.sim_runs import ready_scenario, run_of
from tidemill.sim.auditors import ContradictoryTasks
from tidemill.sim.cluster import Cluster
from tidemill.sim.scenario import Event, Happening


def struck(seed, **values):
    scenario = replace(ready_scenario("restart-loses-disk", **values), events=(), seed=seed)
    scenario = replace(scenario, clients=tuple(replace(client, threads=2) for client in scenario.clients))
    return with_faults(scenario, Random(seed), count=12, from_ms=60_000, until_ms=900_000)


@pytest.mark.parametrize("seed", range(12))
def test_under_random_faults_no_task_runs_twice_and_the_group_is_balanced_again(seed):
    result = run_of(struck(seed))
    assert result.violations == ()
    assert result.time_to_balanced_ms is not None
    held = [task for held in result.rounds[-1].assignment.clients.values() for task in held.active]
    assert sorted(held) == sorted(result.rounds[-1].state.tasks)


@pytest.mark.parametrize("seed", range(6))
def test_the_balanced_assignor_stands_the_same_faults(seed):
    result = run_of(struck(seed, assignor="balanced", num_standby_replicas=seed % 2))
    assert result.violations == ()
    assert result.time_to_balanced_ms is not None


def test_a_seed_gives_the_same_run_twice():
    first, again = run_of(struck(3)), run_of(struck(3))
    assert first == again
    assert len(first.rounds) > 10


def test_tasks_that_contradict_each_other_are_reported_with_their_thread():
    done = ready_scenario("restart-loses-disk")
    cluster = Cluster(done, Random(done.seed))
    for action, _ in cluster.agenda.due(60_000):
        action()
    contradictory = ContradictoryTasks()
    assert list(contradictory(cluster.clients.values())) == []
    thread = next(thread for client in cluster.clients.values() for thread in client.threads if thread.tasks.active)
    gone = min(thread.tasks.active)
    thread.tasks = replace(thread.tasks, active={task: had for task, had in thread.tasks.active.items() if task != gone})
    assert f"{thread.name}: {gone} is held only" in list(contradictory(cluster.clients.values()))
    assert list(contradictory(cluster.clients.values())) == [], "it is told once"


def one(what, **how):
    return replace(ready_scenario("restart-loses-disk"), events=(Event(at_ms=60_000, what=what, **how),))


def test_a_crash_is_noticed_after_the_session_timeout():
    result = run_of(one(Happening.CRASH, client="B"))
    assert result.longest_outage.from_ms == 60_000
    assert 45_000 <= result.longest_outage.length_ms < 47_000
    assert {result.name(p) for p in result.rounds[-1].assignment.clients} == {"A", "C"}


def test_a_short_pause_moves_nothing_and_a_long_one_moves_what_was_paused():
    short, long = (run_of(one(Happening.PAUSE, client="B", for_ms=for_ms)) for for_ms in (20_000, 90_000))
    assert short.moved_tasks == 0
    assert short.longest_outage.length_ms == 20_000
    assert long.moved_tasks > 0
    assert 45_000 <= long.longest_outage.length_ms < 47_000
    assert long.violations == ()


def test_a_lost_heartbeat_costs_one_hand_over_and_the_member_comes_again():
    result = run_of(one(Happening.LOST_HEARTBEAT, client="B"))
    assert result.longest_outage.length_ms < 1_000
    assert {result.name(p) for p in result.rounds[-1].assignment.clients} == {"A", "B", "C"}
    assert max(result.restored_records.values(), default=0) < 100, "only what was written meanwhile"


def test_a_change_of_leader_makes_another_member_lead():
    result = run_of(one(Happening.LEADER_CHANGE))
    assert len({round_.leader for round_ in result.rounds}) == 2


def test_slow_restore_makes_balance_take_longer():
    lost = Event(at_ms=60_000, what=Happening.RESTART, client="B", for_ms=1_000)
    scenario = ready_scenario("restart-loses-disk")
    slow = Event(at_ms=90_500, what=Happening.SLOW_RESTORE, client="B", records_per_s=1_000.0)
    assert lost.at_ms < slow.at_ms
    usual, slowed = run_of(scenario), run_of(replace(scenario, events=(*scenario.events, slow)))
    assert slowed.time_to_balanced_ms > usual.time_to_balanced_ms + 120_000
    assert slowed.violations == ()


def test_without_offsets_the_previous_assignment_is_kept_and_another_rebalance_asked_for():
    scenario = ready_scenario("kip441-scale-out")
    blind = Event(at_ms=59_000, what=Happening.OFFSETS_UNAVAILABLE, for_ms=30_000)
    result = run_of(replace(scenario, events=(blind,)))
    before = next(r for r in reversed(result.rounds) if r.time_ms < 59_000)
    during = next(r for r in result.rounds if 60_000 <= r.time_ms < 89_000)
    had = {p: held.active for p, held in before.assignment.clients.items()}
    assert {p: held.active for p, held in during.assignment.clients.items() if held.active} == had
    assert during.assignment.followup_needed
    assert result.rounds[-1].is_stable
