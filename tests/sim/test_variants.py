"""Values on the command line, and all their combinations."""

import pytest

from tests.sim.sim_runs import ready_scenario
from tidemill.errors import ConfigError
from tidemill.sim.variants import combinations, parse_axis, with_value


@pytest.mark.parametrize(
    ("text", "values"),
    [("a=1..3", ["1", "2", "3"]), ("a=0..100..50", ["0", "50", "100"]), ("a=x,y", ["x", "y"]), ("a=1..2,9", ["1", "2", "9"])],
)
def test_an_axis_is_a_list_or_a_range(text, values):
    assert parse_axis(text) == ("a", values)


@pytest.mark.parametrize("text", ["a", "a=", "=1", "a=3..1", "a=1..x", "a=1..9..0", "a=1,1"])
def test_what_is_no_axis_is_refused(text):
    with pytest.raises(ConfigError):
        parse_axis(text)


def test_combinations_change_the_last_axis_fastest():
    found = [variant.values for variant in combinations([("a", ["1", "2"]), ("b", ["x", "y"])])]
    assert found == [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"}]


def test_settings_surroundings_and_threads_can_be_varied():
    scenario = ready_scenario("article")
    assert with_value(scenario, "max.warmup.replicas", "7").settings.max_warmup_replicas == 7
    assert with_value(scenario, "restore_records_per_s", "5").surroundings.restore_records_per_s == 5.0
    assert {client.threads for client in with_value(scenario, "threads", "3").clients} == {3}


@pytest.mark.parametrize(
    ("name", "value"), [("threads", "0"), ("max.warmup.replicas", "-1"), ("compatibility", "1.0"), ("colour", "red")]
)
def test_values_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ConfigError):
        with_value(ready_scenario("article"), name, value)
