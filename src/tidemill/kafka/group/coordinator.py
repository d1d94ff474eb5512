"""The requests of the classic group protocol, one function each: join, sync, heartbeat, leave, commit, committed.

Decides how each error code is answered (the tables below); holds no membership: the caller hands in who it is and keeps
what it learns. When to join, what to own and what to do after an error is ``member``'s.

JoinGroup up to v9 (reason, skip_assignment), SyncGroup up to v5, commits up to v8 (topic names, not ids).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import kafka.errors as kafka_errors
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import MetadataRequest

from tidemill.deadline import Deadline
from tidemill.errors import ConfigError, EnvironmentProblem, RetriableError, StopError, TidemillError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.client import Connection, GroupClient, UnreachableError
from tidemill.kafka.group.metadata import Membership, OffsetAndMetadata

PROTOCOL_TYPE = "consumer"
PROTOCOL_NAME = "stream"

_LEAVE_TIMEOUT_MS = 3_000
_UNSTABLE_RETRY_MS = 50
_RETRY_MS = 100

_COORDINATOR_MOVED = (kafka_errors.NotCoordinatorError, kafka_errors.CoordinatorNotAvailableError)
_TRY_AGAIN = (kafka_errors.RetriableError, kafka_errors.UnknownError)


class RebalancingError(Exception):
    """The group has begun another rebalance: join again."""


class NotThereError(UnreachableError):
    """The coordinator's broker does not know a topic or partition: it is gone, or so new that the broker has not heard of it."""


class MembershipLostError(Exception):
    """The broker no longer knows this member, or not in this generation."""

    def __init__(self, reason: str, *, keeps_member_id: bool) -> None:
        super().__init__(reason)
        self.keeps_member_id = keeps_member_id


class MemberIdRequiredError(Exception):
    """The first JoinGroup of a dynamic member: join again under ``member_id``."""

    def __init__(self, member_id: str) -> None:
        super().__init__(member_id)
        self.member_id = member_id


class FencedInstanceError(Exception):
    """Another member has joined under the same group.instance.id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to JoinGroup. ``members`` (id, instance id, subscription bytes) only for the leader; a leader that
    need not assign is a static member that came back: the broker still has its last assignment."""

    generation: int
    member_id: str
    is_leader: bool
    must_assign: bool
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as the brokers know it. ``topic_id``: another one if it is deleted and created again; "" of brokers before 2.8."""

    partitions: int
    topic_id: str = ""


class GroupCoordinator:
    """One group's coordinator as one member sees it. Thread-safe; every call blocks.

    Raises UnreachableError and ClientClosedError (see ``client``), the exceptions above, and errors of the public
    tree where trying again can't help.
    """

    def __init__(
        self,
        client: GroupClient,
        *,
        group_id: str,
        group_instance_id: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._instance_id = group_instance_id
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms

    def join(self, member_id: str, subscription: bytes, reason: str) -> JoinAnswer:
        """Blocks until all members have joined, or the broker has given up on those that haven't."""
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=subscription)],
            reason=reason[:255],
            max_version=9,
        )
        timeout_ms = max(self._client.request_timeout_ms, self._rebalance_timeout_ms + 5_000)
        response = self._client.request(request, Connection.HELD, timeout_ms=timeout_ms)
        if response.error_code == kafka_errors.MemberIdRequiredError.errno:
            raise MemberIdRequiredError(response.member_id)
        self._judge(response.error_code, "JoinGroup")
        return JoinAnswer(
            generation=response.generation_id,
            member_id=response.member_id,
            is_leader=response.leader == response.member_id,
            must_assign=response.leader == response.member_id and not response.skip_assignment,
            members=tuple((m.member_id, m.group_instance_id, bytes(m.metadata)) for m in response.members),
        )

    def sync(self, membership: Membership, assignments: Mapping[str, bytes]) -> bytes:
        """Blocks until the leader has sent the assignments (empty here for all others)."""
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL_NAME,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in sorted(assignments.items())
            ],
            max_version=5,
        )
        timeout_ms = max(self._client.request_timeout_ms, self._rebalance_timeout_ms + 5_000)
        response = self._client.request(request, Connection.HELD, timeout_ms=timeout_ms)
        self._judge(response.error_code, "SyncGroup")
        return bytes(response.assignment)

    def heartbeat(self, membership: Membership) -> None:
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=self._instance_id,
        )
        response = self._client.request(request, Connection.PROMPT, timeout_ms=self._session_timeout_ms)
        self._judge(response.error_code, "Heartbeat")

    def leave(self, membership: Membership, reason: str) -> None:
        """One attempt, and only if the coordinator is known: the session timeout does the same, later."""
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=membership.member_id, group_instance_id=self._instance_id, reason=reason[:255]
        )
        request = LeaveGroupRequest(group_id=self._group_id, member_id=membership.member_id, members=[identity])
        response = self._client.request_known(request, Connection.PROMPT, timeout_ms=_LEAVE_TIMEOUT_MS)
        for code in (response.error_code, *(member.error_code for member in response.members)):
            self._judge(code, "LeaveGroup")

    def commit(self, membership: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """One attempt. Partitions are committed together or, if the broker refuses one, perhaps in part."""
        topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
        topics = [
            topic_class(
                name=topic,
                partitions=[
                    topic_class.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=position.offset,
                        committed_leader_epoch=position.leader_epoch,
                        committed_metadata=position.metadata,
                    )
                    for partition in partitions
                    for position in (offsets[TopicPartition(topic, partition)],)
                ],
            )
            for topic, partitions in _by_topic(offsets)
        ]
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=membership.generation,
            member_id=membership.member_id,
            group_instance_id=self._instance_id,
            topics=topics,
            max_version=8,
        )
        response = self._client.request(request, Connection.PROMPT)
        for topic in response.topics:
            for partition in topic.partitions:
                self._judge(partition.error_code, "OffsetCommit", f"{topic.name}-{partition.partition_index}", topic.name)

    def committed(
        self, partitions: Collection[TopicPartition], *, require_stable: bool, deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets; a partition without one is missing. Tries until ``deadline``.

        With ``require_stable``, waits while a transaction that commits offsets of these partitions is open.
        Raises RetriableError if that, or an outage, outlasts the deadline.
        """
        while True:
            try:
                return self._fetch_committed(partitions, require_stable)
            except UnreachableError as error:
                pause_ms = _UNSTABLE_RETRY_MS if isinstance(error, _UnstableError) else _RETRY_MS
                if deadline.left_s < pause_ms / 1000:
                    raise RetriableError(
                        f"The committed offsets of group {self._group_id} for {_listed(partitions)} could not be "
                        f"read in the time given: {error}. The same call may work later."
                    ) from error
            time.sleep(pause_ms / 1000)

    def _fetch_committed(
        self, partitions: Collection[TopicPartition], require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        group_class = OffsetFetchRequest.OffsetFetchRequestGroup
        by_topic = _by_topic(partitions)
        request = OffsetFetchRequest(
            group_id=self._group_id,
            topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=t, partition_indexes=ps) for t, ps in by_topic],
            groups=[
                group_class(
                    group_id=self._group_id,
                    topics=[group_class.OffsetFetchRequestTopics(name=t, partition_indexes=ps) for t, ps in by_topic],
                )
            ],
            require_stable=require_stable,
            min_version=7 if require_stable else 2,
            max_version=8,
        )
        response = self._client.request(request, Connection.PROMPT)
        result = response.groups[0] if response.API_VERSION >= 8 else response
        self._judge(result.error_code, "OffsetFetch")
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in result.topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                if entry.error_code == kafka_errors.UnstableOffsetCommitError.errno:
                    raise _UnstableError(f"a transaction that commits offsets of {partition} is still open")
                self._judge(entry.error_code, "OffsetFetch", str(partition), topic.name)
                if entry.committed_offset >= 0:
                    said = (entry.metadata or "").removesuffix("\0")  # confluent-kafka commits the end of its C string, too
                    offsets[partition] = OffsetAndMetadata(entry.committed_offset, said, entry.committed_leader_epoch)
        return offsets

    def found_topics(self, topics: Iterable[str], theirs: Collection[str] = ()) -> dict[str, FoundTopic]:
        """The topics by name; one that doesn't exist is missing (and is not created by asking).

        So is one of ``theirs``, which other members only have named, if the brokers refuse to describe it.

        Raises MissingRightError for a topic that this user may not see.
        """
        names = sorted(topics)
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response = self._client.request_any_broker(request)
        found: dict[str, FoundTopic] = {}
        for topic in response.topics:
            unknown = topic.error_code == kafka_errors.UnknownTopicOrPartitionError.errno
            if unknown or (topic.error_code and topic.name in theirs):
                continue
            self._judge(topic.error_code, "Metadata", f"topic {topic.name}", topic.name)
            has_id = topic.topic_id is not None and topic.topic_id.int != 0
            found[topic.name] = FoundTopic(len(topic.partitions), str(topic.topic_id) if has_id else "")
        return found

    def _judge(self, code: int, request: str, what: str = "", topic: str = "") -> None:
        """Returns if ``code`` is no error, otherwise raises what follows from it."""
        if code == 0:
            self._client.outage.ended()
            return
        error = kafka_errors.for_code(code)
        said = f"{request}{' of ' + what if what else ''} of group {self._group_id} was answered {error.__name__}"
        if error is kafka_errors.RebalanceInProgressError:
            raise RebalancingError(said)
        if error is kafka_errors.UnknownMemberIdError:
            raise MembershipLostError(f"{said}: the broker has removed this member", keeps_member_id=False)
        if error is kafka_errors.IllegalGenerationError:
            raise MembershipLostError(f"{said}: the group has rebalanced without this member", keeps_member_id=True)
        if error is kafka_errors.FencedInstanceIdError:
            raise FencedInstanceError(said)
        if issubclass(error, _TRY_AGAIN):
            if error in _COORDINATOR_MOVED:
                self._client.forget_coordinator(said)
            self._client.outage.goes_on(error(said), tried_at=time.monotonic(), broker_answered=True)
            raise NotThereError(said) if error is kafka_errors.UnknownTopicOrPartitionError else UnreachableError(said)
        raise self._final(error, said, topic)

    def _final(self, error: type[kafka_errors.KafkaError], said: str, topic: str) -> TidemillError:
        group = self._group_id
        if error is kafka_errors.InconsistentGroupProtocolError:
            return ConfigError(
                f"Group {group} has members of another kind: this one offers the protocol {PROTOCOL_NAME!r} of type "
                f"{PROTOCOL_TYPE!r}, as Kafka Streams does. Choose another application.id, or stop those members."
            )
        if error is kafka_errors.InvalidSessionTimeoutError:
            return ConfigError(
                f"The brokers refuse session.timeout.ms={self._session_timeout_ms} of group {group}: expected between "
                f"their group.min.session.timeout.ms and group.max.session.timeout.ms."
            )
        if error is kafka_errors.InvalidGroupIdError:
            return ConfigError(f"The brokers refuse {group!r} as a group id: choose another application.id.")
        if error is kafka_errors.GroupMaxSizeReachedError:
            return EnvironmentProblem(
                f"Group {group} is full: raise the brokers' group.max.size or use fewer stream threads."
            )
        if issubclass(error, kafka_errors.AuthorizationError):
            return self._client.not_allowed(error, said, topic)
        if error in (kafka_errors.OffsetMetadataTooLargeError, kafka_errors.InvalidCommitOffsetSizeError):
            return StopError(
                f"{said}: the text committed with the offsets is longer than the brokers allow; raise their "
                "offset.metadata.max.bytes."
            )
        return StopError(f"{said}, which this client can't handle: {error.description}")


class _UnstableError(UnreachableError):
    """A transaction with offsets of the group is still open."""


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions)) or "no partition"
