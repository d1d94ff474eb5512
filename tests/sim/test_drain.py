"""A drain in a simulated group: no task waits for its state, and the client that has drained holds nothing when it ends."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.sim.faults import with_faults
from tests.sim.sim_runs import ready_scenario, run_of
from tidemill.sim.scenario import Event, Happening, Scenario

DRAINED = "00000000-0000-4000-8000-00000000000b"
LONGEST_HAND_OVER_MS = 1_000
"""With what is left to restore within acceptable.recovery.lag."""


def draining(what: Happening = Happening.DRAIN, **values: object) -> Scenario:
    scenario = ready_scenario("drain", **values)
    return replace(scenario, events=tuple(replace(event, what=what) for event in scenario.events))


def test_no_task_is_down_longer_than_a_hand_over_until_the_client_is_gone() -> None:
    result = run_of(draining())
    [gone] = [round_ for round_ in result.rounds if "StreamThread-1-consumer" in round_.cause and " left" in round_.cause]
    assert max(outage.length_ms for outage in result.outages if outage.from_ms < gone.time_ms) < LONGEST_HAND_OVER_MS
    assert result.violations == ()


def test_a_plain_close_makes_its_tasks_wait_for_their_whole_state() -> None:
    result = run_of(draining(Happening.RESTART))
    assert result.longest_outage is not None
    assert result.longest_outage.length_ms > 10 * LONGEST_HAND_OVER_MS


def test_a_client_that_drains_ends_with_nothing_and_its_end_moves_nothing() -> None:
    result = run_of(draining())
    last = [round_ for round_ in result.rounds if any(str(one) == DRAINED for one in round_.assignment.clients)]
    before_the_end = next(a for a, b in zip(result.rounds, result.rounds[1:], strict=False) if a in last and b not in last)
    [held] = [held for process, held in before_the_end.assignment.clients.items() if str(process) == DRAINED]
    assert (held.active, held.standby) == (frozenset(), frozenset())
    after = result.rounds[before_the_end.number]
    assert {process: held.active for process, held in before_the_end.assignment.clients.items() if held.active} == {
        process: held.active for process, held in after.assignment.clients.items()
    }


@pytest.mark.parametrize("values", [{"num_standby_replicas": 1}, {"assignor": "balanced"}, {"max_warmup_replicas": 1}])
def test_with_standbys_another_assignor_or_one_warm_up_at_a_time(values: dict[str, object]) -> None:
    result = run_of(draining(**values))
    drained = [round_ for round_ in result.rounds if round_.time_ms > 60_000]
    gone_ms = next(round_.time_ms for round_ in drained if len(round_.assignment.clients) == 2)
    assert max(outage.length_ms for outage in result.outages if outage.from_ms < gone_ms) < LONGEST_HAND_OVER_MS
    assert result.violations == ()


def test_warm_ups_of_a_drain_stay_within_the_budget() -> None:
    result = run_of(draining(max_warmup_replicas=1))
    during = [round_ for round_ in result.rounds if any(client.is_draining for client in round_.state.clients)]
    assert {round_.extra_copies for round_ in during} == {1}


@pytest.mark.parametrize("seed", range(4))
def test_drains_among_faults_break_no_guarantee(seed: int) -> None:
    scenario = replace(draining(num_standby_replicas=seed % 2), seed=seed)
    drains = tuple(
        Event(at_ms=at_ms, what=Happening.DRAIN, client=client, for_ms=20_000)
        for at_ms, client in ((100_000, "B"), (300_000, "C"), (305_000, "B"), (600_000, "A"))
    )
    struck = with_faults(replace(scenario, events=drains), Random(seed), count=8, from_ms=60_000, until_ms=700_000)
    result = run_of(struck)
    assert result.violations == ()
    assert result.time_to_balanced_ms is not None
