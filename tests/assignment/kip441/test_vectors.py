"""The high-availability assignor, against recorded answers of Kafka's classes (4.3.0, 2.7.2)."""

import gzip
import json

import pytest

from tests.assignment.recorded import VECTORS, recorded
from tidemill.assignment.kip441 import client_queue
from tidemill.assignment.kip441.high_availability import Compatibility, HighAvailabilityTaskAssignor
from tidemill.replay.records import application_state, expected

KAFKA_4_3 = HighAvailabilityTaskAssignor()
KAFKA_2_7 = HighAvailabilityTaskAssignor(compatibility="2.7")


def answer(assignor, state):
    return expected(assignor.assign(state), state.stateful_tasks)


def differing(lines, assignor):
    return [line["id"] for line in lines if answer(assignor, application_state(line)) != line["expected"]]


def test_one_round_answers_are_those_of_4_3():
    assert differing(recorded("ha_assignor", every=12), KAFKA_4_3) == []


def test_rounds_after_members_came_and_went_are_those_of_4_3():
    wrong = [
        (line["id"], number)
        for line in recorded("convergence", every=20)
        for number, round_ in enumerate(line["rounds"])
        if answer(KAFKA_4_3, application_state(line, round_)) != round_["expected"]
    ]
    assert wrong == []


def test_rack_aware_answers_are_those_of_4_3():
    lines = [line for line in recorded("rack_aware", every=12) if line["assignor"] == "ha"]
    assert differing(lines, KAFKA_4_3) == []


def test_answers_that_hang_on_kafkas_heap_being_out_of_order_are_those_of_4_3(monkeypatch):
    lines = recorded("ha_disordered_heap")
    assert len(lines) == 4
    assert differing(lines, KAFKA_4_3) == []
    monkeypatch.setattr(client_queue, "MOST_STEPS", 0)
    assert differing(lines, KAFKA_4_3) == [line["id"] for line in lines], "a minimum is not what Kafka takes here"


def test_one_round_answers_with_compatibility_2_7_are_those_of_2_7():
    answers = {line["id"]: line for line in recorded("kafka272_ha_assignor")}
    lines = [line for line in recorded("ha_assignor", every=12) if line["id"] in answers]
    joined = [line | {"expected": answers[line["id"]]["expected"]} for line in lines]
    assert differing(joined, KAFKA_2_7) == []
    assert set(differing(joined, KAFKA_4_3)) == {
        line["id"] for line in lines if not answers[line["id"]]["same_as_4.3.0"]
    }


@pytest.fixture(scope="module")
def experiment():
    with gzip.open(VECTORS / "seed_experiment.json.gz", "rt") as file:
        return json.load(file)


@pytest.mark.parametrize(("version", "assignor"), [("2.7.2", KAFKA_2_7), ("4.3.0", KAFKA_4_3)])
def test_the_wordcount_experiment_with_a_third_client_is_answered_as_by_each_version(experiment, version, assignor):
    own = experiment["own_trajectory"][f"kafka_{version}"]["rounds"]
    rounds = [(case["input"], case[f"kafka_{version}"]["result"]["expected"]) for case in experiment["same_inputs"]]
    rounds += [(round_["input"], round_["result"]["expected"]) for round_ in own]
    assert len(rounds) == 9
    assert [entry["id"] for entry, wanted in rounds if answer(assignor, application_state(entry)) != wanted] == []


def test_the_three_published_rounds_come_out_with_compatibility_2_7_and_not_with_4_3(experiment):
    cases = {case["id"]: case for case in experiment["same_inputs"]}
    published = {
        "round1-disk5": {"bbb83e43": ("0_0 0_1 0_2 0_3", "1_0"), "4b61083e": ("0_4 1_0 1_2 1_4", ""),
                         "7156cef1": ("0_5 1_1 1_3 1_5", "1_2")},
        "round2-disk5": {"bbb83e43": ("0_0 0_2 0_4 1_0", "1_3"), "4b61083e": ("0_1 0_3 0_5 1_4", "1_1"),
                         "7156cef1": ("1_1 1_2 1_3 1_5", "")},
        "round3": {"bbb83e43": ("0_0 0_3 1_0 1_3", ""), "4b61083e": ("0_1 0_4 1_1 1_4", ""),
                   "7156cef1": ("0_2 0_5 1_2 1_5", "")},
    }

    def lists(assignor, name):
        clients = answer(assignor, application_state(cases[name]["input"]))["clients"]
        return {key[:8]: (" ".join(held["active"]), " ".join(held["standby"])) for key, held in clients.items()}

    assert {name: lists(KAFKA_2_7, name) for name in published} == published
    assert lists(KAFKA_4_3, "round1-disk5") != published["round1-disk5"]
    assert lists(KAFKA_4_3, "round3") == published["round3"]


def test_an_unknown_compatibility_is_refused(experiment):
    state = application_state(experiment["same_inputs"][0]["input"])
    with pytest.raises(ValueError, match=r"3\.0"):
        HighAvailabilityTaskAssignor(compatibility="3.0").assign(state)
    assert HighAvailabilityTaskAssignor(compatibility=Compatibility.KAFKA_2_7).assign(state) == KAFKA_2_7.assign(state)
