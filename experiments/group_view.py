"""A group of Kafka Streams' kind as its coordinator knows it: what each member said at its last join and was told then.

Reads the bytes of any member, Java's as well as Tidemill's. Also takes a member out of its group in its stead, as an instance
does that says when it closes that it leaves.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from instances import ExperimentError, until
from java_streams import JavaStreams

from tidemill.errors import EnvironmentProblem
from tidemill.kafka.admin.groups import live_group
from tidemill.kafka.group.client import GroupClient, UnreachableError
from tidemill.kafka.group.coordinator import GroupCoordinator
from tidemill.kafka.group.metadata import Membership
from tidemill.membership.wire import SubscriptionInfo, decode_assignment, decode_subscription

_LOOK_LIMIT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """``owned``: partitions claimed at the join, assigned in ``generation``; ``active`` and ``standby``: what it was told."""

    member_id: str
    said: SubscriptionInfo
    owned: int
    generation: int
    told_version: int
    active: tuple[str, ...]
    standby: tuple[str, ...]

    def of_subtopology(self, number: int) -> int:
        """How many active tasks it has of it."""
        return sum(task.startswith(f"{number}_") for task in self.active)


def members_of(servers: str, application_id: str) -> dict[str, MemberView]:
    """By process id (instances with one thread); none while the group rebalances."""
    try:
        found = live_group({"bootstrap_servers": servers}, application_id, limit_s=_LOOK_LIMIT_S)
    except EnvironmentProblem:
        return {}
    members = {}
    for member_id, member in found.members.items():
        said = decode_subscription(member.subscription.user_data)
        told = decode_assignment(member.assignment.user_data)
        if not isinstance(said, SubscriptionInfo):
            raise ExperimentError(f"member {member_id} speaks the unknown version {said.version}")
        members[str(said.process_id)] = MemberView(
            member_id=member_id,
            said=said,
            owned=len(member.subscription.owned_partitions),
            generation=member.subscription.generation,
            told_version=told.version,
            active=tuple(sorted({str(task) for task in told.active_tasks})),
            standby=tuple(sorted(map(str, told.standby_tasks))),
        )
    return members


def member_id_of(servers: str, application_id: str, process_id: str) -> str:
    """Of an instance that is in the group."""
    found: dict[str, MemberView] = {}

    def is_there() -> bool:
        found.update(members_of(servers, application_id))
        return process_id in found

    until(is_there, f"{process_id} in the group", pause_s=0.2)
    return found[process_id].member_id


def stop_and_take_out(java: JavaStreams, servers: str, application_id: str, process_id: str) -> None:
    """Stops an instance whose session is long, and takes it out of the group, which would else wait for the session's end."""
    member_id = member_id_of(servers, application_id, process_id)
    java.stop()
    with contextlib.suppress(UnreachableError):  # then the session's end does it
        take_out(servers, application_id, member_id)


def take_out(servers: str, application_id: str, member_id: str) -> None:
    """LeaveGroup for a member that has ended."""
    client = GroupClient(
        {"bootstrap_servers": servers},
        group_id=application_id,
        client_id="leaves-for-another",
        report_unreachable_after_ms=60_000,
        report=lambda _error: None,
    )
    client.open()
    try:
        client.coordinator()
        coordinator = GroupCoordinator(
            client, group_id=application_id, group_instance_id=None, session_timeout_ms=6_000, rebalance_timeout_ms=6_000
        )
        coordinator.leave(Membership(member_id=member_id), "the instance was closed")
    finally:
        client.close()
