"""An autoscaler in virtual time: which number is wanted when, what is made of it, and what a scenario may ask for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.sim.sim_runs import ready_scenario, run_of
from tidemill.errors import ConfigError
from tidemill.sim.history import SimulatedRun
from tidemill.sim.report import as_json, lines
from tidemill.sim.scenario_file import scenario_of

SPEED_S = 15
"""Between two looks."""


@pytest.fixture(scope="module")
def followed() -> SimulatedRun:
    return run_of(ready_scenario("autoscale"))


def test_more_are_wanted_when_the_load_triples_and_fewer_one_at_a_time_when_it_falls(followed: SimulatedRun) -> None:
    decided = [(one.advice.present, one.advice.wanted) for one in followed.scale if not one.advice.waits]
    assert decided == [(2, 2), (2, 3), (3, 4), (4, 4), (4, 3), (3, 2), (2, 2)]
    at_s = [one.time_ms // 1000 for one in followed.scale if one.advice.wanted != one.advice.present]
    assert next(at for at in at_s if at < 900) == 120 + SPEED_S, "at the first look after the load has changed"
    assert min(at for at in at_s if at > 900) == 900 + SPEED_S


def test_while_tasks_warm_up_the_number_stays_what_it_is(followed: SimulatedRun) -> None:
    waiting = [one.advice for one in followed.scale if one.advice.waits]
    assert waiting
    for told in waiting:
        assert told.wanted == told.present
        assert "warm" in told.why or "restores" in told.why or "drains" in told.why
    for before, after in pairwise(followed.scale):
        if before.advice.waits and not after.advice.waits:
            rounds = [round_ for round_ in followed.rounds if round_.time_ms <= after.time_ms]
            assert not [held for held in rounds[-1].assignment.clients.values() if held.warmup], "a change is wanted too early"


def test_an_instance_more_would_be_wanted_at_once_if_nothing_waited(followed: SimulatedRun) -> None:
    """The load at 180 s needs four instances; the fourth comes when the third one's tasks have warmed up."""
    third = next(one.time_ms for one in followed.scale if one.advice.present == 3)
    fourth = next(one.time_ms for one in followed.scale if one.advice.present == 4)
    assert third < 180_000 < fourth
    assert not [one for one in followed.scale if third < one.time_ms < fourth - 60_000 and not one.advice.waits]


def test_without_clients_of_its_own_the_number_is_only_noted() -> None:
    scenario = ready_scenario("autoscale")
    assert scenario.scaling is not None
    noted = run_of(replace(scenario, scaling=replace(scenario.scaling, clients=())))
    assert {one.advice.present for one in noted.scale} == {2}
    assert max(one.advice.wanted for one in noted.scale) > 4, "what can't be processed waits, and has to be caught up with"
    assert max(one.advice.lag for one in noted.scale) > 500_000


def test_the_run_is_shown_with_the_wanted_number(followed: SimulatedRun) -> None:
    text = "\n".join(lines(followed))
    assert "135.000 s   2          3       6,000 records/s and 150/s to catch up, with 25% headroom" in text
    shown = as_json(followed)["scale"]
    assert isinstance(shown, list)
    assert shown[1]["wanted"] == 3
    assert "scale" not in as_json(run_of(ready_scenario("drain")))


@pytest.mark.parametrize(
    ("scale", "problem"),
    [
        ({}, "capacity_per_s is missing"),
        ({"capacity_per_s": 0}, r"\[scale\] says no capacity_per_s"),
        ({"capacity_per_s": 10, "clients": ["Z"]}, r"\[scale\] names 'Z'; the clients are A"),
        ({"capacity_per_s": 10, "every_s": 0}, "every_s is 0; expected at least 1"),
        ({"capacity_per_s": 10, "headrom": 3}, "headrom is not known"),
    ],
)
def test_what_an_autoscaler_can_not_do_is_refused(scale: dict[str, object], problem: str) -> None:
    table = {
        "subtopologies": [{"number": 0, "partitions": 1}],
        "clients": [{"name": "A", "process_id": "00000000-0000-4000-8000-00000000000a"}],
        "scale": scale,
    }
    with pytest.raises(ConfigError, match=problem):
        scenario_of(table, "t")
