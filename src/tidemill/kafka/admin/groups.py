"""Members of a group as its coordinator describes them: their hosts, and their last subscriptions and assignments, as bytes.

Not through librdkafka's admin client: if the connection to the coordinator breaks while a group is described, that one aborts the
process (its issue 4605). Decides how long a rebalancing group is waited for, and which groups are not of Kafka Streams' protocol.
The contents of the bytes are ``tidemill.membership``'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest, DescribeGroupsResponse
from kafka.protocol.metadata import MetadataRequest

from tidemill.config.values import GroupClientSettings
from tidemill.deadline import Deadline
from tidemill.errors import EnvironmentProblem, RetriableError
from tidemill.kafka.group.client import ClientClosedError, Connection, GroupClient, UnreachableError
from tidemill.kafka.group.coordinator import PROTOCOL_NAME, PROTOCOL_TYPE
from tidemill.kafka.group.protocol import MemberAssignment, MemberSubscription, decode_assignment, read_subscription
from tidemill.printable import printable

_Answer = TypeVar("_Answer")
_PAUSE_S = 0.1
_CLIENT_ID = "tidemill-group-members"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMember:
    """``subscription`` is what its last join said, ``assignment`` what it was answered. ``client_id`` is in printable characters:
    members choose it."""

    client_id: str
    subscription: MemberSubscription
    assignment: MemberAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroup:
    """``partition_counts``: of all topics on the brokers."""

    members: Mapping[str, LiveMember]
    partition_counts: Mapping[str, int]


def live_group(settings: GroupClientSettings, group: str, *, limit_s: float = 15) -> LiveGroup:
    """The group once it is stable; ``settings`` under kafka-python's names.

    EnvironmentProblem if there is no such group, it is empty, its members don't speak Kafka Streams' protocol, or
    it is not stable, or no broker answers, within the limit.
    """
    found = _asked(settings, group, limit_s, _stable)
    if isinstance(found, LiveGroup):
        return found
    raise EnvironmentProblem(
        f"consumer group {group!r} was not found stable within {limit_s:g} s ({found}): a group shows its "
        "members between rebalances only. Check that the brokers can be reached, and ask again"
    )


def member_hosts(settings: GroupClientSettings, group: str, *, limit_s: float) -> dict[str, str]:
    """The hosts of the group's members by member id; none if there is no such group. ``settings`` under kafka-python's names.

    RetriableError if no broker answers within the limit.
    """
    found = _asked(settings, group, limit_s, _hosts)
    if isinstance(found, str):
        raise RetriableError(f"describing group {group}: not done after {limit_s:g} s: {found}")
    return found


def _asked(
    settings: GroupClientSettings, group: str, limit_s: float, ask: Callable[[GroupClient, str], _Answer | str]
) -> _Answer | str:
    """The answer as soon as there is one; a text: why there was none within the limit."""
    deadline = Deadline.after(limit_s)
    found: _Answer | str = "no broker describes it"
    with _client(settings, group, limit_s) as client:
        try:
            while not deadline.is_over:
                try:
                    found = ask(client, group)
                    if not isinstance(found, str):
                        return found
                except UnreachableError as error:
                    found = f"no broker describes it: {error}"
                time.sleep(min(_PAUSE_S, deadline.left_s))
        except ClientClosedError:
            found = f"{found}, and does not answer any more"
    return found


@contextmanager
def _client(settings: GroupClientSettings, group: str, limit_s: float) -> Iterator[GroupClient]:
    """Closed after the limit, which ends a request under way: its own time-out is of another kind, 30 s as Kafka has it."""
    client = GroupClient(
        settings, group_id=group, client_id=_CLIENT_ID, report_unreachable_after_ms=1 << 31, report=lambda _error: None
    )
    client.open()
    limit = threading.Timer(limit_s, client.close)
    limit.start()
    try:
        yield client
    finally:
        limit.cancel()
        client.close()


def _answer(client: GroupClient, group: str) -> DescribeGroupsResponse.DescribedGroup | None:
    """The coordinator's answer; None if there is no such group."""
    response = client.request(
        DescribeGroupsRequest(groups=[group], include_authorized_operations=False), Connection.PROMPT
    )
    (described,) = response.groups
    if described.error_code == kafka_errors.GroupIdNotFoundError.errno or described.group_state == "Dead":
        return None
    if described.error_code:
        error = kafka_errors.for_code(described.error_code)
        if error.retriable:
            client.forget_coordinator(error.__name__)
            raise UnreachableError(error.__name__)
        raise EnvironmentProblem(f"consumer group {group!r} can't be described: {error.__name__}: {error.description}")
    return described


def _hosts(client: GroupClient, group: str) -> dict[str, str]:
    described = _answer(client, group)
    return {} if described is None else {member.member_id: member.client_host for member in described.members}


def _stable(client: GroupClient, group: str) -> LiveGroup | str:
    described = _described(client, group)
    if described.group_state != "Stable":
        return f"it is {described.group_state}"
    return LiveGroup(members=_members(described), partition_counts=_partition_counts(client))


def _described(client: GroupClient, group: str) -> DescribeGroupsResponse.DescribedGroup:
    described = _answer(client, group)
    if described is None:
        raise EnvironmentProblem(f"consumer group {group!r} does not exist; is {group!r} the application.id?")
    if described.group_state == "Empty":
        raise EnvironmentProblem(f"consumer group {group!r} has no active members: start the application, then ask again")
    if described.protocol_type != PROTOCOL_TYPE or described.protocol_data not in (PROTOCOL_NAME, ""):
        raise EnvironmentProblem(
            f"the members of consumer group {group!r} are assigned by {described.protocol_data or described.protocol_type!r}, "
            f"expected {PROTOCOL_NAME!r}: it is no application of Kafka Streams' kind"
        )
    return described


def _members(described: DescribeGroupsResponse.DescribedGroup) -> dict[str, LiveMember]:
    return {
        member.member_id: LiveMember(
            client_id=printable(member.client_id),
            subscription=read_subscription(member.member_id, member.group_instance_id, bytes(member.member_metadata)),
            assignment=decode_assignment(bytes(member.member_assignment)),
        )
        for member in described.members
    }


def _partition_counts(client: GroupClient) -> dict[str, int]:
    response = client.request_any_broker(
        MetadataRequest(
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
    )
    return {topic.name: len(topic.partitions) for topic in response.topics if not topic.error_code}
