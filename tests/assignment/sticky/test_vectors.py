"""The sticky assignors and the fallback, against recorded answers of Kafka's classes (4.3.0, 2.7.2)."""

import pytest

from tests.assignment.recorded import recorded
from tidemill.assignment.iteration_order import sorted_iteration
from tidemill.assignment.model import ApplicationState, AssignmentConfig, ClientState, CopyRole
from tidemill.assignment.sticky.assignor import FallbackPriorTaskAssignor, PublicStickyTaskAssignor, StickyTaskAssignor
from tidemill.errors import AssignmentError
from tidemill.ids import ProcessId, TaskId
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


def test_a_task_that_was_swapped_has_a_decision_for_where_it_was_placed_and_one_for_where_it_is():
    swaps = 0
    for line in recorded("rack_aware", every=18):
        if line["assignor"] == "sticky":
            assignment = StickyTaskAssignor().assign(application_state(line))
            decisions = assignment.explain()
            swaps += sum(decision.rule == "rack-aware swap" for decision in decisions)
            last = {decision.task: decision.chosen for decision in decisions if decision.role is CopyRole.ACTIVE}
            assert last == {task: client for client, tasks in assignment.clients.items() for task in tasks.active}, line["id"]
            copies = {(d.task, d.chosen) for d in decisions if d.role is CopyRole.STANDBY}
            placed = {(task, client) for client, tasks in assignment.clients.items() for task in tasks.standby}
            assert copies >= placed, line["id"]
    assert swaps


def test_the_candidates_of_a_decision_are_those_that_had_the_task_by_their_lags():
    ran, held, new = (ProcessId(number, 0) for number in (1, 2, 3))
    task, other = TaskId(0, 0), TaskId(0, 1)
    clients = (
        ClientState(process_id=new, capacity=1, lags={task: 0}),
        ClientState(process_id=ran, capacity=1, previous_active=frozenset({task}), lags={task: 5}),
        ClientState(process_id=held, capacity=1, previous_standby=frozenset({task, other}), lags={task: 2}),
    )
    tasks = (task, other, TaskId(0, 2))
    ends = dict.fromkeys(tasks, 9)
    state = ApplicationState(clients=clients, tasks=tasks, stateful_tasks=frozenset(tasks), end_offset_sums=ends)
    of_task, of_other, of_last = StickyTaskAssignor().assign(state).explain()
    assert (of_task.chosen, of_task.rule, of_task.candidates) == (ran, "kept", ((held, 2, 0), (ran, 5, 1)))
    assert (of_other.chosen, of_other.rule, of_other.candidates) == (held, "previous standby", ((held, 9, 0),))
    assert (of_last.chosen, of_last.rule, of_last.candidates) == (new, "least loaded", ())
    fallback = FallbackPriorTaskAssignor().assign(state).explain()
    assert fallback[0].reason == f"0_0 stays on {ran}, which ran it before, whatever its load."


def test_the_only_client_without_a_copy_gets_the_standby_though_it_never_had_the_task():
    """And nothing is said of it that is not so."""
    one, other = ProcessId(1, 0), ProcessId(2, 0)
    task = TaskId(0, 0)
    clients = (
        ClientState(process_id=one, capacity=1, previous_active=frozenset({task})),
        ClientState(process_id=other, capacity=1),
    )
    config = AssignmentConfig(num_standby_replicas=1)
    state = ApplicationState(clients=clients, tasks=(task,), stateful_tasks=frozenset({task}), config=config)
    active, standby = StickyTaskAssignor().assign(state).explain()
    assert (active.chosen, standby.chosen, standby.rule) == (one, other, "least loaded")


@pytest.mark.parametrize(("clients", "why"), [((), "no clients"), ((1, 0), "has 0 consumers; every client")])
def test_a_group_that_can_not_hold_a_task_is_refused(clients, why):
    states = tuple(ClientState(process_id=ProcessId(0, at), capacity=threads) for at, threads in enumerate(clients, 1))
    state = ApplicationState(clients=states, tasks=(TaskId(0, 0),), stateful_tasks=frozenset())
    with pytest.raises(AssignmentError, match=why):
        StickyTaskAssignor().assign(state)
