"""The sticky assignors and the fallback, against recorded answers of Kafka's classes (4.3.0, 2.7.2)."""

import pytest

from tests.assignment.recorded import recorded
from tidemill.assignment.iteration_order import sorted_iteration
from tidemill.assignment.model import CopyRole
from tidemill.assignment.sticky.assignor import FallbackPriorTaskAssignor, PublicStickyTaskAssignor, StickyTaskAssignor
from tidemill.java_collections.hash_table import task_hash_2_7
from tidemill.replay.records import application_state, expected, texts


def differing(lines, assignor, key="expected"):
    wrong = []
    for line in lines:
        state = application_state(line)
        if expected(assignor.assign(state), state.stateful_tasks) != line[key]:
            wrong.append(line["id"])
    return wrong


@pytest.mark.parametrize(
    ("name", "assignor"), [("sticky_assignor", StickyTaskAssignor), ("fallback_prior", FallbackPriorTaskAssignor)]
)
def test_answers_in_hash_order_and_in_sorted_order_are_kafkas(name, assignor):
    lines = recorded(name, every=15)
    assert differing(lines, assignor()) == []
    assert differing(lines, assignor(iteration=sorted_iteration), "expected_sorted_containers") == []


def test_answers_with_the_task_hash_of_2_7_are_those_of_2_7():
    answers = {line["id"]: line["expected"] for line in recorded("kafka272_sticky_assignor")}
    lines = [line for line in recorded("sticky_assignor", every=15) if line["id"] in answers]
    joined = [line | {"expected": answers[line["id"]]} for line in lines]
    assert differing(joined, StickyTaskAssignor(task_hash=task_hash_2_7)) == []
    assert differing(joined, StickyTaskAssignor()) != []


def test_answers_of_the_kip_924_form_are_kafkas():
    wrong = []
    for line in recorded("public_sticky", every=15):
        preserves_active = line["must_preserve_active_task_assignment"]
        assignment = PublicStickyTaskAssignor(preserves_active=preserves_active).assign(application_state(line))
        got = {
            str(client): {
                "active": texts(tasks.active),
                "standby": texts(tasks.standby),
                "followup_deadline_ms": tasks.followup_deadline_ms,
            }
            for client, tasks in assignment.clients.items()
        }
        if got != line["expected"]["clients"] or assignment.followup_needed != preserves_active:
            wrong.append(line["id"])
    assert wrong == []


def test_every_copy_has_a_decision_that_names_its_client_and_says_why():
    for line in recorded("sticky_assignor", every=100):
        assignment = StickyTaskAssignor().assign(application_state(line))
        decisions = assignment.explain()
        explained = {(decision.task, decision.role, decision.chosen) for decision in decisions}
        placed = {(task, CopyRole.ACTIVE, client) for client, tasks in assignment.clients.items() for task in tasks.active}
        placed |= {(task, CopyRole.STANDBY, client) for client, tasks in assignment.clients.items() for task in tasks.standby}
        assert explained == placed
        assert all(f"{decision.task} " in decision.reason for decision in decisions)
        assert all(str(decision.chosen) in decision.reason for decision in decisions)
