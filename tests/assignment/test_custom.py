"""A user's assignor is found by name, called with the state alone, and its wrong answers are refused."""

import sys
import types

import pytest

from tests.assignment.groups import client, group, process, tasks
from tidemill.assignment.balanced.assignor import BalancedTaskAssignor
from tidemill.assignment.choice import choose_assignor
from tidemill.assignment.custom import CheckedAssignor, InvalidAssignmentError, custom_assignor
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import Assignment, ClientAssignment
from tidemill.assignment.sticky.assignor import FallbackPriorTaskAssignor, PublicStickyTaskAssignor, StickyTaskAssignor
from tidemill.errors import ConfigError

STATE = group([client(1), client(2)], "1_0 1_1", "0_0")


class EverythingOnTheFirst:
    def assign(self, state):
        first, *others = sorted(one.process_id for one in state.clients)
        clients = {first: ClientAssignment(active=frozenset(state.tasks))}
        return Assignment(
            clients=clients | dict.fromkeys(others, ClientAssignment()), followup_needed=False
        )


class EverythingEverywhere:
    def assign(self, state):
        held = ClientAssignment(active=frozenset(state.tasks), standby=state.stateful_tasks)
        return Assignment(clients={one.process_id: held for one in state.clients}, followup_needed=False)


class ReturnsADict:
    def assign(self, state):
        return dict(state.task_info)


class NeedsArguments:
    def __init__(self, mandatory):
        self.mandatory = mandatory

    def assign(self, state):
        raise AssertionError(state)


class HasNoMethod:
    pass


@pytest.fixture(autouse=True)
def module(monkeypatch):
    made = types.ModuleType("shop_assignors")
    for found in (EverythingOnTheFirst, EverythingEverywhere, ReturnsADict, NeedsArguments, HasNoMethod):
        setattr(made, found.__name__, found)
    monkeypatch.setitem(sys.modules, "shop_assignors", made)


def test_a_valid_answer_is_the_answer():
    answer = custom_assignor("shop_assignors.EverythingOnTheFirst").assign(STATE)
    assert answer.clients[process(1)].active == tasks("0_0 1_0 1_1")


def test_an_invalid_answer_is_refused_with_everything_that_is_wrong():
    with pytest.raises(InvalidAssignmentError) as refused:
        custom_assignor("shop_assignors.EverythingEverywhere").assign(STATE)
    assert "shop_assignors.EverythingEverywhere is invalid: task 0_0 is active on 2 clients" in str(refused.value)
    assert str(refused.value).endswith("and 2 more. Correct its assign method")
    assert len(refused.value.violations) == 7


def test_an_answer_of_another_kind_is_refused():
    with pytest.raises(InvalidAssignmentError, match="assign returned a dict"):
        custom_assignor("shop_assignors.ReturnsADict").assign(STATE)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Alone", r"expected package\.module:Class"),
        ("shop assignors.Thing", r"expected package\.module:Class"),
        ("no_such_shop.Thing", "module no_such_shop can't be imported"),
        ("shop_assignors.Thing", "has no class Thing; it has EverythingEverywhere, EverythingOnTheFirst, HasNoMethod"),
        ("shop_assignors.HasNoMethod", "HasNoMethod has no method assign"),
        ("shop_assignors.NeedsArguments", "can't be made without arguments .*mandatory"),
    ],
)
def test_a_name_that_is_no_assignor_is_refused_at_start(name, sentence):
    with pytest.raises(ConfigError, match=sentence):
        custom_assignor(name)


@pytest.mark.parametrize(
    ("name", "kind", "needs_lags"),
    [
        ("HighAvailabilityTaskAssignor", HighAvailabilityTaskAssignor, True),
        ("balanced", BalancedTaskAssignor, True),
        ("StickyTaskAssignor", StickyTaskAssignor, False),
        ("org.apache.kafka.streams.processor.internals.assignment.StickyTaskAssignor", StickyTaskAssignor, False),
        (
            "org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor",
            PublicStickyTaskAssignor,
            True,
        ),
        ("FallbackPriorTaskAssignor", FallbackPriorTaskAssignor, False),
        ("shop_assignors.EverythingOnTheFirst", CheckedAssignor, True),
    ],
)
def test_names_mean_assignors(name, kind, needs_lags):
    chosen = choose_assignor(name)
    assert (type(chosen.assignor), chosen.needs_lags) == (kind, needs_lags)


def test_the_default_is_kafkas_and_takes_a_version():
    assert choose_assignor().assignor == HighAvailabilityTaskAssignor()
    assert choose_assignor(compatibility="2.7").assignor == HighAvailabilityTaskAssignor(compatibility="2.7")


def test_an_unknown_name_is_refused_with_those_that_exist():
    with pytest.raises(ConfigError, match="no assignor is named 'Balanced'; there are HighAvailabilityTaskAssignor, "):
        choose_assignor("Balanced")
