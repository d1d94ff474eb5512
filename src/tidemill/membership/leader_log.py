"""Log lines of the leader on a rebalance, in Kafka Streams' own sentences, so that tools that parse them keep working.

Decides wording and order of words; ``tidemill.membership.leader`` decides which sentences are logged, and the
shell adds time, level and thread. Sets of tasks are printed in the order in which Kafka 2.7's hash sets print them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from tidemill.assignment.model import ApplicationState, Assignment, ClientAssignment
from tidemill.ids import TaskId
from tidemill.java_collections.hash_table import hash_order, task_hash_2_7
from tidemill.printable import printable

NAMED_VIOLATIONS = 5
"""Number of faults of an invalid answer that are logged; the others are only counted."""
_LONGEST_VIOLATION = 500


class LogLevel(Enum):
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class LogLine:
    """``said`` is the sentence, or makes it when it is read: some name every task of the group."""

    said: str | Callable[[], str]
    level: LogLevel = LogLevel.INFO

    @property
    def text(self) -> str:
        return self.said if isinstance(self.said, str) else self.said()


NO_LAGS = LogLine(
    "Failed to fetch end offsets for changelogs, will return previous assignment to clients and trigger another "
    "rebalance to retry."
)
STABLE = LogLine("Finished stable assignment of tasks, no followup rebalances required.")
UNSTABLE = LogLine("Finished unstable assignment of tasks, a followup rebalance will be scheduled.")


def invalid_answer(assignor: str, violations: Sequence[str]) -> LogLine:
    named = "; ".join(printable(violation, longest=_LONGEST_VIOLATION) for violation in violations[:NAMED_VIOLATIONS])
    more = f"; and {len(violations) - NAMED_VIOLATIONS} more" if len(violations) > NAMED_VIOLATIONS else ""
    return LogLine(
        f"The answer of {assignor} is refused ({named}{more}); the previous assignment is returned to clients and another "
        "rebalance will try again.",
        LogLevel.ERROR,
    )


def assigned(state: ApplicationState, assignment: Assignment) -> LogLine:
    """All tasks and who gets which, clients in the order of their ids."""

    def said() -> str:
        clients = "\n".join(
            f"{client}={_client_text(assignment.clients.get(client, ClientAssignment()))}"
            for client in sorted(client.process_id for client in state.clients)
        )
        return (
            f"Assigned tasks {_hash_set_text(state.tasks)} including stateful {_hash_set_text(state.stateful_tasks)} "
            f"to clients as: \n{clients}."
        )

    return LogLine(said)


def withheld(task: TaskId, member: str) -> LogLine:
    return LogLine(
        f"Removing task {task} from {printable(member)} active assignment until it is safely revoked in followup rebalance"
    )


def withheld_as_standby(task: TaskId, member: str) -> LogLine:
    return LogLine(
        f"Adding removed stateful active task {task} as a standby for {printable(member)} before it is revoked in followup "
        "rebalance"
    )


def immediate_followup(member: str) -> LogLine:
    return LogLine(
        f"Requesting followup rebalance be scheduled immediately by {printable(member)} due to tasks changing ownership."
    )


def probing_followup(member: str, at_ms: int) -> LogLine:
    return LogLine(
        f"Requesting followup rebalance be scheduled by {printable(member)} for {at_ms} ms to probe for caught-up replica tasks."
    )


def version_probing(future_version: int, sent_version: int) -> LogLine:
    return LogLine(
        f"Received a future (version probing) subscription (version: {future_version}). "
        f"Sending assignment back (with supported version {sent_version})."
    )


def downgraded(what: str, version: int, latest: int) -> LogLine:
    return LogLine(f"Downgrade {what} to version {version}. Latest supported version is {latest}.")


def _client_text(tasks: ClientAssignment) -> str:
    return f"[activeTasks: ({_list_text(sorted(tasks.active))}) standbyTasks: ({_list_text(sorted(tasks.standby))})]"


def _hash_set_text(tasks: Iterable[TaskId]) -> str:
    return _list_text(hash_order(sorted(tasks), task_hash_2_7))


def _list_text(tasks: Iterable[TaskId]) -> str:
    return f"[{', '.join(map(str, tasks))}]"
