"""Each fault of an assignor's answer is found and named."""

import pytest

from tidemill.assignment.model import ApplicationState, Assignment, ClientAssignment, ClientState
from tidemill.ids import ProcessId, TaskId
from tidemill.replay.validation import FaultKind, first_fault

A, B, STRANGER = ProcessId(1, 0), ProcessId(2, 0), ProcessId(3, 0)
STATEFUL, STATELESS, UNKNOWN = TaskId(1, 0), TaskId(0, 0), TaskId(7, 7)
STATE = ApplicationState(
    clients=(ClientState(process_id=A, capacity=1), ClientState(process_id=B, capacity=1)),
    tasks=(STATELESS, STATEFUL),
    stateful_tasks=frozenset({STATEFUL}),
)


def answer(**tasks):
    ids = {"a": A, "b": B, "stranger": STRANGER}
    clients = {
        ids[name]: ClientAssignment(active=frozenset(active), standby=frozenset(standby))
        for name, (active, standby) in tasks.items()
    }
    return Assignment(clients=clients, followup_needed=False)


def test_a_valid_answer_has_no_fault():
    assert first_fault(STATE, answer(a=([STATEFUL, STATELESS], []), b=([], [STATEFUL]))) is None


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (answer(a=([UNKNOWN], []), b=([], [])), FaultKind.UNKNOWN_TASK_ID, "7_7"),
        (answer(a=([STATEFUL], []), b=([STATEFUL], [])), FaultKind.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES, "both"),
        (answer(a=([], [STATELESS]), b=([], [])), FaultKind.INVALID_STANDBY_TASK, "no state"),
        (answer(a=([STATEFUL], [])), FaultKind.MISSING_PROCESS_ID, str(B)),
        (answer(a=([], []), b=([], []), stranger=([], [])), FaultKind.UNKNOWN_PROCESS_ID, str(STRANGER)),
        (answer(a=([STATEFUL], [STATEFUL]), b=([], [])), FaultKind.STANDBY_NEXT_TO_ITS_ACTIVE, "1_0"),
    ],
)
def test_each_fault_is_named(given, kind, words):
    fault = first_fault(STATE, given)
    assert fault is not None
    assert fault.kind is kind
    assert words in fault.message
