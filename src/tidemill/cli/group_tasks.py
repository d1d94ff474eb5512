"""`tidemill group members`: which tasks each member has, in which role, and how far behind its copies are.

Decides how that is laid out. Assignments are in the group's coordinator, how far they were is what their last joins
said, and whether a copy is a standby or a warm-up only the leader's own functions can say (``cli.assign_live_group``). Positions
are as old as the last join, ends of changelogs are of now; an instance that can be asked (``application.server``) has its own
lags as they are, and how fast they shrink, which gives the time that is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from tidemill.ids import TaskId

if TYPE_CHECKING:
    from tidemill.assignment.model import ApplicationState, Assignment, ClientState
    from tidemill.cli.assign_live_group import Question
    from tidemill.kafka.admin.groups import LiveMember
    from tidemill.membership.wire import HostInfo
    from tidemill.query.http_tls import HttpAccess
    from tidemill.task.progress import CopyProgress

COLUMNS = ("CLIENT-ID", "TASK", "ROLE", "LAG", "TIME-LEFT")
_NONE = "-"
_ASK_LIMIT_S = 2.0


def member_rows(question: Question) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """A row per task of each member, by client id, and remarks on them. EnvironmentProblem if the group can't
    be seen."""
    from tidemill.cli.assign_live_group import live_explanation
    from tidemill.config.slices import HttpConfig
    from tidemill.membership.wire import decode_assignment
    from tidemill.query.http_tls import http_access

    found = live_explanation(question)
    client_of = {consumer.member: client for client in found.state.clients for consumer in client.consumers}
    rows: list[tuple[str, ...]] = []
    under_way, silent = _under_way(found.members, http_access(found.config.slice(HttpConfig)))
    for name, member in sorted(found.members.items(), key=lambda item: (item[1].client_id, item[0])):
        assigned = decode_assignment(member.assignment.user_data) if member.assignment.user_data else None
        active = {task for task in assigned.active_tasks if isinstance(task, TaskId)} if assigned else set()
        standby = {task for task in assigned.standby_tasks if isinstance(task, TaskId)} if assigned else set()
        client = client_of.get(name)
        tasks = [] if client is None else list(task_rows(client, active, standby, found.state, found.assignment))
        measured = under_way.get(name, {})
        rows += [(member.client_id, *with_time_left(row, measured.get(row[0]))) for row in tasks or [(_NONE,) * 3]]
    return rows, (*found.remarks, *silent)


def with_time_left(row: tuple[str, str, str], measured: CopyProgress | None) -> tuple[str, ...]:
    """Task, role, lag, and the time that is left; an instance's own word on a lag is newer than its last join's."""
    task, role, lag = row
    if measured is None:
        return task, role, lag, _NONE
    left_s = measured.seconds_left
    return task, role, str(measured.lag), "unknown" if left_s is None else f"{left_s:.0f} s"


def _under_way(
    members: Mapping[str, LiveMember], access: HttpAccess
) -> tuple[dict[str, dict[str, CopyProgress]], tuple[str, ...]]:
    """Progress of tasks as the members' instances report it, by member; and the instances that could not be asked."""
    from tidemill.errors import RetriableError
    from tidemill.membership.wire import host_of, known_subscription
    from tidemill.query.http_forward import copies_at

    copies_of: dict[HostInfo, dict[str, CopyProgress]] = {}
    by_member: dict[str, dict[str, CopyProgress]] = {}
    silent: dict[str, None] = {}
    for name, member in sorted(members.items()):
        said = known_subscription(member.subscription.user_data)
        host = host_of(said.user_endpoint) if said is not None and said.user_endpoint else None
        if host is None:
            silent["Instances without application.server (tidemill.http.listen) can't be asked how fast they restore."] = None
            continue
        if host not in copies_of:
            try:
                copies = copies_at(host, token=access.token, timeout_s=_ASK_LIMIT_S, tls=access.client)
                copies_of[host] = {str(copy.task): copy for copy in copies}
            except RetriableError as problem:
                copies_of[host] = {}
                silent[f"How fast it restores is not known: {problem}."] = None
        by_member[name] = copies_of[host]
    return by_member, tuple(silent)


def task_rows(
    client: ClientState,
    active: Collection[TaskId],
    standby: Collection[TaskId],
    state: ApplicationState,
    assignment: Assignment,
) -> Iterator[tuple[str, str, str]]:
    """Task, role, lag of one member's tasks, actives first. A running active has no lag; one that is being restored has."""
    from tidemill.assignment.model import LATEST_OFFSET, ClientAssignment

    warmups = assignment.clients.get(client.process_id, ClientAssignment()).warmup
    for task, role in [
        *((task, "active") for task in sorted(active)),
        *((task, "warm-up" if task in warmups else "standby") for task in sorted(standby)),
    ]:
        lag = client.lags.get(task, state.end_offset_sums.get(task)) if task in state.stateful_tasks else None
        if lag is None or lag == LATEST_OFFSET:
            yield str(task), role, _NONE
        else:
            yield str(task), role if role != "active" else "restoring", "unknown" if lag < 0 else str(lag)
