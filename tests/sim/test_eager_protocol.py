"""Eager members in the simulator: everything stops at each rebalance, nothing is withheld, no task ever runs twice."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.sim.sim_runs import run
from tidemill.errors import ConfigError


@pytest.fixture(scope="module")
def runs():
    return {protocol: run("rolling-bounce", rebalance_protocol=protocol) for protocol in ("cooperative", "eager")}


def outages_at(found, time_ms):
    """The tasks that are down until a round is decided."""
    return {outage.task for outage in found.outages if outage.from_ms < time_ms <= outage.to_ms}


def test_an_eager_group_stops_every_task_at_every_rebalance_but_the_first(runs):
    found = runs["eager"]
    assert len(found.rounds) > 10
    assert all(outages_at(found, round_.time_ms) == set(found.scenario.tasks) for round_ in found.rounds[1:])


def test_a_cooperative_group_stops_only_what_moves(runs):
    """Or what its owner took with it when it left."""
    found = runs["cooperative"]
    assert len(found.rounds) > 10
    for before, round_ in pairwise(found.rounds):
        held = {task for client in before.assignment.clients.values() for task in client.active}
        moves = {move.task for one in (before, round_) for move in one.moves} | set(before.withheld)
        assert outages_at(found, round_.time_ms) <= moves
        assert len(held) == len(found.scenario.tasks)
    assert any(outages_at(found, round_.time_ms) for round_ in found.rounds[1:])
    assert all(len(outages_at(found, round_.time_ms)) < len(found.scenario.tasks) for round_ in found.rounds[1:])


def test_an_eager_group_needs_one_rebalance_for_each_coming_and_going(runs):
    found = runs["eager"]
    assert all(not round_.withheld for round_ in found.rounds)
    assert len(found.rounds) == 1 + 2 * len(found.scenario.clients)


def test_in_both_every_task_has_one_owner_at_a_time_and_all_run_in_the_end(runs):
    for found in runs.values():
        assert found.violations == ()
        assert found.balanced_ms is not None


def test_another_protocol_is_refused_by_name():
    with pytest.raises(ConfigError, match="rebalance_protocol"):
        run("rolling-bounce", rebalance_protocol="lazy")
