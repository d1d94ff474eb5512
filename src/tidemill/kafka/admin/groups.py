"""Consumer groups, asked of their coordinators: state and members, and the offsets that an empty group gets.

Not through librdkafka's admin client: if the connection to the coordinator breaks within a call, that one aborts the process (its
issue 4605). Decides how long a rebalancing group is waited for, and which groups are not of Kafka Streams' protocol. User data of
subscriptions and assignments are bytes here; their contents are ``tidemill.membership``'s.
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
from tidemill.errors import EnvironmentProblem, RetriableError, StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.client import ClientClosedError, Connection, GroupClient, UnreachableError
from tidemill.kafka.group.coordinator import (
    PROTOCOL_NAME,
    PROTOCOL_TYPE,
    GroupCoordinator,
    MembershipLostError,
    RebalancingError,
)
from tidemill.kafka.group.metadata import Membership, OffsetAndMetadata
from tidemill.kafka.group.protocol import MemberAssignment, MemberSubscription, decode_assignment, read_subscription
from tidemill.kafka.security.rights import Operation
from tidemill.printable import printable

_Answer = TypeVar("_Answer")
_PAUSE_S = 0.1
_CLIENT_ID = "tidemill-group-members"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberState:
    """A member of any consumer group. ``client_id`` and ``host`` as the coordinator sees them, in printable characters."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group; ``state`` in Kafka's words (Stable, Empty, PreparingRebalance ...), ``protocol``: the assignor's name."""

    group: str
    state: str
    protocol: str
    members: tuple[GroupMemberState, ...]


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
    return _in_time(settings, group, limit_s, f"describing group {group}", _hosts)


def describe_group(settings: GroupClientSettings, group: str, *, limit_s: float) -> GroupState | None:
    """The group, its members by member id; None if there is no such group. ``settings`` under kafka-python's names.

    RetriableError if no broker answers within the limit, StopError for a member whose assignment can't be read.
    """
    return _in_time(settings, group, limit_s, f"describing group {group}", _state)


def set_committed_offsets(
    settings: GroupClientSettings, group: str, offsets: Mapping[TopicPartition, int], *, limit_s: float
) -> None:
    """Commits in the name of the group, which has no members: all partitions or, if the brokers refuse one, perhaps some.

    StopError if it has members, RetriableError if it was not done within the limit.
    """
    positions = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    doing = f"setting the offsets of group {group}"

    def commit(client: GroupClient, group: str) -> None:
        coordinator = GroupCoordinator(
            client, group_id=group, group_instance_id=None, session_timeout_ms=0, rebalance_timeout_ms=0
        )
        try:
            coordinator.commit(Membership(), positions)
        except (MembershipLostError, RebalancingError) as error:
            raise StopError(f"{doing}: it has active members, expected none; stop them first") from error

    if positions:
        _in_time(settings, group, limit_s, doing, commit)


def _in_time(
    settings: GroupClientSettings, group: str, limit_s: float, doing: str, ask: Callable[[GroupClient, str], _Answer]
) -> _Answer:
    found = _asked(settings, group, limit_s, ask)
    if isinstance(found, str):
        raise RetriableError(f"{doing}: not done after {limit_s:g} s: {found}; check that the brokers run and can be reached")
    return found


def _asked(
    settings: GroupClientSettings, group: str, limit_s: float, ask: Callable[[GroupClient, str], _Answer | str]
) -> _Answer | str:
    """The first answer that is no text; a text: why there was none within the limit."""
    deadline = Deadline.after(limit_s)
    found: _Answer | str = "no broker has answered"
    with _client(settings, group, limit_s) as client:
        try:
            while not deadline.is_over:
                try:
                    found = ask(client, group)
                    if not isinstance(found, str):
                        return found
                except UnreachableError as error:
                    found = f"no broker has answered: {error}"
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
        said = f"describing group {group}: {error.__name__}"
        if issubclass(error, kafka_errors.AuthorizationError):
            raise client.not_allowed(error, said, on_group=Operation.DESCRIBE)
        raise EnvironmentProblem(f"{said}: {error.description}")
    return described


def _hosts(client: GroupClient, group: str) -> dict[str, str]:
    described = _answer(client, group)
    return {} if described is None else {member.member_id: member.client_host for member in described.members}


def _state(client: GroupClient, group: str) -> GroupState | None:
    described = _answer(client, group)
    if described is None:
        return None
    has_partitions = described.protocol_type == PROTOCOL_TYPE  # members of other kinds, as Kafka Connect's, are assigned others
    return GroupState(
        group=group,
        state=described.group_state,
        protocol=described.protocol_data,
        members=tuple(
            GroupMemberState(
                member_id=member.member_id,
                client_id=printable(member.client_id),
                host=printable(member.client_host),
                instance_id=member.group_instance_id,
                assignment=_partitions_of(member) if has_partitions else (),
            )
            for member in sorted(described.members, key=lambda member: str(member.member_id))
        ),
    )


def _partitions_of(member: DescribeGroupsResponse.DescribedGroup.DescribedGroupMember) -> tuple[TopicPartition, ...]:
    return tuple(sorted(decode_assignment(bytes(member.member_assignment)).partitions))


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
