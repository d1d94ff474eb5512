"""Messages between a group member and its application, and their bytes as members exchange them through the broker.

Decides the shapes of questions (GroupProtocol), answers (GroupAssignment) and events, the consumer protocol's bytes
(subscription v0-v3, assignment), and the one rule that every cooperative assignment must keep: no partition is handed
to a new owner while its old one still claims it. What is assigned to whom is the application's decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from tidemill.errors import ConfigError, StopError, TidemillError
from tidemill.ids import TopicPartition, why_no_topic
from tidemill.membership.member_state import Assigned, MembershipLost, RevokeAllRequested
from tidemill.printable import printable

_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """Subscription of one member, from its join. ``generation``: that in which it got ``owned_partitions``; ``unreadable``: why
    nothing of what it said could be read, in which case there is nothing else."""

    member_id: str
    topics: tuple[str, ...]
    user_data: bytes = b""
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """Assignment of one member."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes = b""


class MemberPart(Protocol):
    """Part of one member in the leader's answer: a MemberAssignment, or the application's own value."""

    @property
    def partitions(self) -> tuple[TopicPartition, ...]: ...
    @property
    def user_data(self) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAssignment:
    """The leader's answer. It has every member of the group, also those that get nothing.

    ``partition_counts``: the numbers of partitions that the assignment was computed with, those of topics that the leader has
    created included. If the brokers have other numbers later, the member requests a rebalance. Claims of members that are
    ``left_out`` are ignored.
    """

    members: Mapping[str, MemberPart]
    partition_counts: Mapping[str, int]
    left_out: frozenset[str] = frozenset()


class GroupProtocol(Protocol):
    """What a group member asks its application. Every method is called on the membership thread, never on the one that sends
    heartbeats, so none of them needs to be fast."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics to subscribe to, at each JoinGroup."""

    def wait_until_taken_up(self) -> None:
        """Returns when the last assignment has been carried out, its revoked partitions included, or after a time limit. A join
        that still claims partitions which are about to be given up would make another rebalance necessary."""

    def user_data(self) -> bytes:
        """The member's user data, at each JoinGroup."""

    def owned_partitions(self) -> Sequence[TopicPartition]:
        """Every partition that the application works on, those of tasks in a running batch included, at each JoinGroup.

        The partitions of the last assignment are claimed too. Not called after a loss of membership: partitions that
        were owned before may have another owner by now.
        """

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> GroupAssignment:
        """Called for the leader only; a topic that doesn't exist is missing from ``partition_counts``.

        A RetriableError leads to another rebalance after a pause; any other error is fatal for this member.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An error to be logged; unless it is ``fatal`` the member retries."""

    error: TidemillError
    fatal: bool


GroupEvent = Assigned | MembershipLost | RevokeAllRequested | Failed
"""Events of a member for its application. After MembershipLost it joins again by itself, unless a fatal Failed follows; after
RevokeAllRequested (eager members only) its join waits for ``revoked_all()``."""


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """The bytes of a subscription, in the order of Kafka's own client: topics sorted, partitions sorted."""
    encoded: bytes = ConsumerProtocolSubscription(
        version=_SUBSCRIPTION_VERSION,
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=_by_topic(subscription.owned_partitions),
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    ).encode()
    return encoded


def decode_subscription(member_id: str, instance_id: str | None, data: bytes) -> MemberSubscription:
    """Reads versions 0 to 3, and a later one as far as version 3 goes.

    Raises StopError if these are not the bytes of a subscription at all.
    """
    try:
        message = ConsumerProtocolSubscription.decode(data)
        return MemberSubscription(
            member_id=member_id,
            topics=tuple(map(_topic, message.topics)),
            user_data=bytes(message.user_data or b""),
            owned_partitions=_partitions(message.owned_partitions or ()),
            generation=message.generation_id,
            instance_id=instance_id,
            rack=message.rack_id,
        )
    except Exception as error:
        raise StopError(
            f"The subscription of group member {printable(member_id)} can't be read ({type(error).__name__}: {error}); expected "
            f"Kafka's consumer protocol. Does a foreign application use the same application.id?"
        ) from error


def read_subscription(
    member_id: str, instance_id: str | None, data: bytes, *, generation: int | None = None
) -> MemberSubscription:
    """``decode_subscription`` without an error, for the leader and for tools: bytes of one member must not hide the others.

    ``generation``, if known, is the one that is being made: what a member has, it got in one before. A later one would outdo
    every true claim to a partition, until the group is empty.
    """
    try:
        said = decode_subscription(member_id, instance_id, data)
    except StopError as error:
        return MemberSubscription(member_id=member_id, topics=(), instance_id=instance_id, unreadable=str(error))
    if generation is None or said.generation < generation:
        return said
    return MemberSubscription(
        member_id=member_id,
        topics=(),
        instance_id=instance_id,
        unreadable=f"it claims to own partitions since generation {said.generation}, expected one before {generation}",
    )


def encode_assignment(assignment: MemberPart) -> bytes:
    encoded: bytes = ConsumerProtocolAssignment(
        version=_ASSIGNMENT_VERSION,
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=entry.topic, partitions=entry.partitions)
            for entry in _by_topic(assignment.partitions)
        ],
        user_data=assignment.user_data,
    ).encode()
    return encoded


def decode_assignment(data: bytes) -> MemberAssignment:
    """Reads what the leader sent; nothing at all (a leader may leave a member out) is an empty assignment."""
    if not data:
        return MemberAssignment()
    try:
        message = ConsumerProtocolAssignment.decode(data)
        return MemberAssignment(
            partitions=_partitions(message.assigned_partitions), user_data=bytes(message.user_data or b"")
        )
    except Exception as error:
        raise StopError(
            f"The assignment of the group's leader can't be read ({type(error).__name__}: {error}); expected Kafka's "
            f"consumer protocol. Does a foreign application use the same application.id?"
        ) from error


def own_assignment(data: bytes) -> MemberAssignment:
    """The assignment that answers this member's join.

    Raises ConfigError if no leader has made it: a group with members of KIP-848 (``group.protocol=consumer``) takes this member
    in, but there the broker assigns, and nothing says which tasks.
    """
    assignment = decode_assignment(data)
    if data and ConsumerProtocolAssignment.decode(data).user_data is None:
        raise ConfigError(
            "The broker itself has assigned the group's partitions, not a member that leads it, so nothing says which tasks are "
            "meant: the group has members with group.protocol=consumer. Choose another application.id, or stop those members."
        )
    return assignment


def handed_over_too_early(
    members: Mapping[str, MemberSubscription], assignment: Mapping[str, MemberPart]
) -> tuple[TopicPartition, ...]:
    """The partitions, sorted, that one member gains in this assignment while another, which claims them, loses them."""
    gained: set[TopicPartition] = set()
    lost: set[TopicPartition] = set()
    for member_id, member in members.items():
        owned = set(member.owned_partitions)
        given = set(assignment[member_id].partitions)
        gained |= given - owned
        lost |= owned - given
    return tuple(sorted(gained & lost))


def _by_topic(partitions: Iterable[TopicPartition]) -> list[ConsumerProtocolSubscription.TopicPartition]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        topics.setdefault(topic, []).append(partition)
    return [
        ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in topics.items()
    ]


def _partitions(entries: Iterable[ConsumerProtocolSubscription.TopicPartition]) -> tuple[TopicPartition, ...]:
    found = tuple(TopicPartition(_topic(entry.topic), partition) for entry in entries for partition in entry.partitions)
    wrong = next((partition for partition in found if partition.partition < 0), None)
    if wrong is not None:
        raise ValueError(f"partition {wrong.partition} of topic {wrong.topic}, expected 0 or more")
    return found


def _topic(name: object) -> str:
    """ValueError for what can't be a topic's name: no broker knows it, and it would be looked up and logged."""
    if problem := why_no_topic(name):
        raise ValueError(f"{printable(name)!r} can't be the name of a topic: {problem}")
    return str(name)
