"""Warm-ups that are promoted when they have caught up: sooner than by probing, and with the same guarantees."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.sim.faults import with_faults
from tests.sim.sim_runs import ready_scenario, run, run_of


def test_a_group_is_balanced_as_soon_as_its_copies_are_there() -> None:
    probing, promoting = (run("article", compatibility="4.3", promotes_caught_up=asks) for asks in (0, 1))
    assert probing.time_to_balanced_ms is not None
    assert promoting.time_to_balanced_ms is not None
    assert promoting.time_to_balanced_ms * 10 < probing.time_to_balanced_ms
    assert len(promoting.rounds) <= len(probing.rounds)
    assert [round_.assignment.clients for round_ in promoting.rounds][-1] == probing.rounds[-1].assignment.clients
    assert promoting.violations == ()
    assert any("warm-ups have caught up" in round_.cause for round_ in promoting.rounds)


@pytest.mark.parametrize("seed", range(4))
def test_under_faults_nothing_else_changes(seed: int) -> None:
    scenario = replace(ready_scenario("restart-loses-disk", promotes_caught_up=1), events=(), seed=seed)
    result = run_of(with_faults(scenario, Random(seed), count=10, from_ms=60_000, until_ms=900_000))
    assert result.violations == ()
    assert result.time_to_balanced_ms is not None
