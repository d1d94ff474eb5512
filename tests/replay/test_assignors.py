"""Recorded lines: what they are about, what is read of them, how answers compare."""

import copy

import pytest

from tests.assignment.recorded import recorded
from tidemill.assignment.kip441.high_availability import Compatibility
from tidemill.errors import ConfigError
from tidemill.replay.assignors import ReplayOptions, replayed
from tidemill.replay.record_kinds import Kind, kind_of
from tidemill.replay.recorded_answers import first_difference, recorded_answer

FILES = {
    "ha_assignor": Kind.HIGH_AVAILABILITY,
    "convergence": Kind.CONVERGENCE,
    "sticky_assignor": Kind.STICKY,
    "public_sticky": Kind.PUBLIC_STICKY,
    "fallback_prior": Kind.FALLBACK,
    "rack_aware": Kind.RACK,
    "thread_assignment": Kind.THREAD,
    "e2e_assignor": Kind.E2E,
    "wire": Kind.WIRE,
}
ANSWERS = {"expected", "expected_sorted_containers", "assignment", "thread_load_after", "active_per_consumer", "error"}


def without_answers(value):
    if isinstance(value, dict):
        return {key: without_answers(entry) for key, entry in value.items() if key not in ANSWERS}
    return [without_answers(entry) for entry in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "kind"), FILES.items())
def test_lines_are_recognised_with_and_without_their_answers(name, kind):
    for line in recorded(name, every=50):
        assert kind_of(line) is kind
        assert kind_of(without_answers(line)) is kind


@pytest.mark.parametrize(("name", "kind"), [entry for entry in FILES.items() if entry[1] not in (Kind.E2E, Kind.WIRE)])
def test_results_are_the_recorded_answers_and_never_read_from_them(name, kind):
    options = ReplayOptions()
    for line in recorded(name, every=25):
        result = replayed(without_answers(line), kind, options)
        answer = recorded_answer(line, kind)
        assert answer is not None
        assert first_difference(answer, result) is None, line["id"]
        assert recorded_answer(without_answers(line), kind) is None


def test_results_in_sorted_order_differ_from_those_in_hash_order():
    lines = recorded("sticky_assignor", every=20)
    options = ReplayOptions(sorted_containers=True)
    answers = [recorded_answer(line, Kind.STICKY, sorted_containers=True) for line in lines]
    assert [replayed(line, Kind.STICKY, options) for line in lines] == answers
    assert [replayed(line, Kind.STICKY, ReplayOptions()) for line in lines] != answers


def test_a_recorded_iteration_order_is_an_input():
    differing = 0
    for line in recorded("sticky_assignor", every=20):
        reversed_line = copy.deepcopy(line)
        for order in reversed_line["iteration_order"].values():
            order.reverse()
        answers = [replayed(each, Kind.STICKY, ReplayOptions()) for each in (line, reversed_line)]
        differing += answers[0] != answers[1]
    assert differing > 0


def test_2_7_ignores_racks_and_the_recorded_order_of_todays_hash_codes():
    older = ReplayOptions(compatibility=Compatibility.KAFKA_2_7)
    lines = [line for line in recorded("rack_aware", every=40) if line["assignor"] == "sticky"]
    assert lines
    for line in lines:
        plain = copy.deepcopy(line)
        plain["configs"]["rack_aware_assignment_strategy"] = "none"
        plain["iteration_order"]["all_tasks"].reverse()
        assert replayed(line, Kind.RACK, older) == replayed(plain, Kind.RACK, older)


def test_an_id_decides_only_where_fields_do_not_and_a_given_kind_only_then():
    assert kind_of({"id": "stic-1"}) is Kind.STICKY
    assert kind_of({"id": "stic-1", "rounds": []}) is Kind.CONVERGENCE
    assert kind_of({"id": "mine"}, Kind.FALLBACK) is Kind.FALLBACK
    assert kind_of({"id": "stic-1"}, Kind.FALLBACK) is Kind.STICKY
    with pytest.raises(ConfigError, match="--kind"):
        kind_of({"id": "mine", "configs": {}, "tasks": {}, "clients": [], "iteration_order": {}})


def test_the_first_difference_says_where_and_what():
    said = {"clients": {"a": {"active": ["0_0"], "standby": []}}, "followup_needed": True}
    got = {"clients": {"a": {"active": ["0_1"], "standby": []}}, "followup_needed": True}
    assert first_difference(said, got) == "clients.a.active: recorded ['0_0'], result ['0_1']"
    assert first_difference(said, said) is None
    assert first_difference(said, {**said, "more": 1}) == "more: only in the result"
    assert first_difference({**said, "more": 1}, said) == "more: only in the recorded answer"
    assert first_difference({"rounds": [said]}, {"rounds": [got]}).startswith("rounds[0].clients.a.active")
    assert first_difference({"error": "a"}, {"error": "b"}) is None
    assert first_difference({"error": "a"}, said) is not None
