"""Validation of an assignor's answer (TaskAssignmentUtils.validateTaskAssignment of KIP-924).

Decides what is wrong with an answer, first fault first, under Kafka's names of the faults. The caller decides
what happens to an invalid answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidemill.assignment.model import ApplicationState, Assignment
from tidemill.ids import ProcessId, TaskId


class FaultKind(Enum):
    """Kafka's AssignmentError, and one fault that its classes can't express (the last)."""

    UNKNOWN_TASK_ID = "UNKNOWN_TASK_ID"
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    INVALID_STANDBY_TASK = "INVALID_STANDBY_TASK"
    MISSING_PROCESS_ID = "MISSING_PROCESS_ID"
    UNKNOWN_PROCESS_ID = "UNKNOWN_PROCESS_ID"
    STANDBY_NEXT_TO_ITS_ACTIVE = "STANDBY_NEXT_TO_ITS_ACTIVE"


@dataclass(frozen=True, slots=True)
class AssignmentFault:
    """A fault, in a sentence, with the ids that it is about."""

    kind: FaultKind
    message: str


def first_fault(state: ApplicationState, assignment: Assignment) -> AssignmentFault | None:
    """None if the answer is valid. As in Kafka a task without an active is no fault: it is not run."""
    return _fault_of_tasks(state, assignment) or _fault_of_clients(state, assignment)


def _fault_of_tasks(state: ApplicationState, assignment: Assignment) -> AssignmentFault | None:
    known = set(state.tasks)
    owner: dict[TaskId, ProcessId] = {}
    for client, tasks in assignment.clients.items():
        for task in sorted(tasks.active | tasks.standby):
            if task not in known:
                return AssignmentFault(
                    FaultKind.UNKNOWN_TASK_ID,
                    f"{client} was given task {task}, which is not a task of this application "
                    f"({len(known)} tasks are known)",
                )
            if task in tasks.active and task in tasks.standby:
                return AssignmentFault(
                    FaultKind.STANDBY_NEXT_TO_ITS_ACTIVE,
                    f"{client} was given task {task} both as active and as standby; expected one of them",
                )
            if task in tasks.active and owner.setdefault(task, client) != client:
                return AssignmentFault(
                    FaultKind.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
                    f"task {task} was given as active to both {owner[task]} and {client}; expected one client",
                )
    for client, tasks in assignment.clients.items():
        stateless = sorted(tasks.standby - state.stateful_tasks)
        if stateless:
            return AssignmentFault(
                FaultKind.INVALID_STANDBY_TASK,
                f"{client} was given a standby of task {stateless[0]}, which has no state to keep a copy of",
            )
    return None


def _fault_of_clients(state: ApplicationState, assignment: Assignment) -> AssignmentFault | None:
    known = {client.process_id for client in state.clients}
    missing = sorted(known - assignment.clients.keys())
    if missing:
        return AssignmentFault(
            FaultKind.MISSING_PROCESS_ID,
            f"client {missing[0]} got no assignment; every client must be named, if only with no tasks",
        )
    unknown = sorted(assignment.clients.keys() - known)
    if unknown:
        return AssignmentFault(
            FaultKind.UNKNOWN_PROCESS_ID,
            f"client {unknown[0]} was given tasks but is not in the group ({len(known)} clients are)",
        )
    return None
