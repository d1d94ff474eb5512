"""Admin client: topics and offsets on the brokers; groups are ``groups``'.

Decides nothing about the topology: it creates the topics that it is given and reports what is there. Every call ends within its
timeout: with an answer, a RetriableError that names the resource, or an error that a retry would not resolve.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    ConfigResource,
    DeletedRecords,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from tidemill.config.values import DataClientSettings
from tidemill.deadline import Deadline
from tidemill.errors import PartitionCountError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.calls import AdminCalls, result_of
from tidemill.kafka.admin.group_offsets import GroupOffsets
from tidemill.kafka.security.rights import Operation, Resource, Right, allowed_on

_PAUSE_S = 0.05
_NO_LEADER = -1

Answer = TypeVar("Answer")
Otherwise = TypeVar("Otherwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as it should be created; replication factor -1 is the broker's default."""

    name: str
    partitions: int
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Leader of a partition (None: it has none now) and the racks of its replicas (those that are known)."""

    leader: int | None
    racks: frozenset[str]


class Admin:
    """Calls to the brokers; may be used from several threads. A method's ``timeout_s`` overrides the default."""

    def __init__(self, settings: DataClientSettings, *, timeout_s: float = 30) -> None:
        """``settings`` are librdkafka's: ``data_client_settings(clients, ClientRole.ADMIN)``."""
        self._calls = AdminCalls(settings)
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Ends the client's threads. Calls that come later raise StopError."""
        self._calls.close()

    # Topics

    def describe_topics(
        self, topics: Collection[str], *, timeout_s: float | None = None
    ) -> dict[str, tuple[PartitionState, ...] | None]:
        """The partitions of each topic by number; None for a topic that isn't there."""
        found = self._descriptions(topics, timeout_s)
        return {topic: None if described is None else _partition_states(described) for topic, described in found.items()}

    def topic_ids(self, topics: Collection[str], *, timeout_s: float | None = None) -> dict[str, str]:
        """The id of each topic in Kafka's own text: another one if the topic is deleted and created again. Topics that aren't
        there, or whose brokers have no ids (before 2.8), are left out."""
        answers = self._descriptions(topics, timeout_s)
        found = {topic: str(described.topic_id) for topic, described in answers.items() if described is not None}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id.strip("A")}  # only A: all bits are 0

    def _descriptions(self, topics: Collection[str], timeout_s: float | None) -> dict[str, TopicDescription | None]:
        def submit(names: list[str], left_s: float) -> dict[str, Future[TopicDescription]]:
            return self._calls.client.describe_topics(TopicCollection(names), request_timeout=left_s)

        answers = self._calls.each(
            "describing topics", topics, submit, self._limit(timeout_s), Operation.DESCRIBE, _none_if_missing
        )
        return {topic: answers[topic] for topic in topics}

    def partitions(self, topics: Collection[str], *, timeout_s: float | None = None) -> dict[str, int | None]:
        """The number of partitions of each topic; None for a topic that isn't there."""
        described = self.describe_topics(topics, timeout_s=timeout_s)
        return {topic: None if states is None else len(states) for topic, states in described.items()}

    def create_topics(self, specs: Iterable[TopicSpec], *, timeout_s: float | None = None) -> frozenset[str]:
        """Creates what isn't there yet, waits until all have leaders and returns the names of those it made.

        A topic that is there with as many partitions is left as it is; with another number: PartitionCountError.
        """
        limit_s = self._limit(timeout_s)
        deadline = Deadline.after(limit_s)
        by_name = {spec.name: spec for spec in specs}

        def submit(names: list[str], left_s: float) -> dict[str, Future[None]]:
            new = [
                NewTopic(
                    spec.name,
                    num_partitions=spec.partitions,
                    replication_factor=spec.replication_factor,
                    config=dict(spec.configs),
                )
                for spec in map(by_name.__getitem__, names)
            ]
            return self._calls.client.create_topics(new, request_timeout=left_s)

        was_made = self._calls.each("creating topics", by_name, submit, limit_s, Operation.CREATE, _false_if_there)
        found = self.wait_for_leaders(by_name, timeout_s=max(1.0, deadline.left_s))
        for name, spec in by_name.items():
            if found[name] != spec.partitions:
                raise PartitionCountError(name, found=found[name], expected=spec.partitions)
        return frozenset(name for name, made in was_made.items() if made)

    def wait_for_leaders(self, topics: Collection[str], *, timeout_s: float | None = None) -> dict[str, int]:
        """The number of partitions of each topic, once all have a leader: another broker that is asked after that may not have
        heard of a new topic yet."""
        limit_s = self._limit(timeout_s)
        deadline = Deadline.after(limit_s)
        while True:
            described = self.describe_topics(topics, timeout_s=max(1.0, deadline.left_s))
            waiting = [name for topic, states in described.items() for name in _leaderless(topic, states)]
            if not waiting:
                return {topic: len(states or ()) for topic, states in described.items()}
            if deadline.is_over:
                raise RetriableError(
                    f"no leader after {limit_s:g} s for {', '.join(waiting[:5])}"
                    f"{f' and {len(waiting) - 5} more' if len(waiting) > 5 else ''}; check that all brokers run"
                )
            time.sleep(_PAUSE_S)

    def delete_topics(self, topics: Collection[str]) -> None:
        """Deletes topics; one that isn't there is no error."""

        def submit(names: list[str], left_s: float) -> dict[str, Future[None]]:
            return self._calls.client.delete_topics(names, request_timeout=left_s, operation_timeout=left_s)

        self._calls.each("deleting topics", topics, submit, self._timeout_s, Operation.DELETE, _none_if_missing)

    def topics(self, *, timeout_s: float | None = None) -> frozenset[str]:
        """The names of all topics."""
        limit_s = self._limit(timeout_s)
        client = self._calls.client
        try:
            return frozenset(client.list_topics(timeout=limit_s).topics)
        except KafkaException as error:
            self._calls.replace(client)
            raise RetriableError(
                f"listing the topics: not done after {limit_s:g} s ({error.args[0].str()}); {self._calls.where_to_look()}"
            ) from error

    def topic_configs(self, topic: str) -> dict[str, str]:
        """A topic's configs, its own and those it has by default."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._calls.one(
            f"reading the configs of {topic}",
            lambda left_s: self._calls.client.describe_configs([resource], request_timeout=left_s)[resource],
            self._timeout_s,
            Operation.DESCRIBE_CONFIGS,
            result_of,
            about=topic,
        )
        return {name: str(entry.value) for name, entry in entries.items()}

    def require_rights(self, doing: str, needs: Mapping[str, Collection[Operation]]) -> None:
        """MissingRightError for all that is not allowed of ``needs``, operations by topic, as the brokers say (KIP-430). A topic
        that isn't there is skipped, and so are all where brokers don't tell."""

        def submit(names: list[str], left_s: float) -> dict[str, Future[TopicDescription]]:
            topics = TopicCollection(names)
            return self._calls.client.describe_topics(topics, include_authorized_operations=True, request_timeout=left_s)

        answers = self._calls.each(doing, needs, submit, self._timeout_s, Operation.DESCRIBE, _allowed)
        missing = [
            Right.of(Resource.TOPIC, topic, operation)
            for topic, operations in needs.items()
            for operation in operations
            if (allowed := answers[topic]) is not None and operation.value not in allowed
        ]
        if missing:
            raise self._calls.missing(doing, missing)

    # Offsets

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermarks: one past the last record, those of open and aborted transactions included."""
        return self._list_offsets("end", partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED, timeout_s)

    def stable_end_offsets(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The last stable offsets: where a read_committed consumer can get to now."""
        return self._list_offsets("stable end", partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED, timeout_s)

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets of the first records that are still there."""
        spec, isolation = OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED
        return self._list_offsets("beginning", partitions, spec, isolation)

    def offsets_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """The offsets of the first records that are as new; a partition without any is left out."""
        spec, isolation = OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_UNCOMMITTED
        found = self._list_offsets("first newer", partitions, spec, isolation)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def delete_records(self, before: Mapping[TopicPartition, int], *, timeout_s: float | None = None) -> None:
        """Deletes the records before these offsets."""

        def submit(partitions: list[TopicPartition], left_s: float) -> dict[TopicPartition, Future[DeletedRecords]]:
            asked = [ClientPartition(tp.topic, tp.partition, before[tp]) for tp in partitions]
            futures = self._calls.client.delete_records(asked, request_timeout=left_s, operation_timeout=left_s)
            return {_ours(partition): future for partition, future in futures.items()}

        self._calls.each("deleting records", before, submit, self._limit(timeout_s), Operation.DELETE, result_of)

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The group's committed offsets, for these partitions or all; a partition without one is left out.

        Waits while one of them is part of an open transaction (require-stable).
        """
        if partitions is not None and not partitions:
            return {}
        with GroupOffsets(self._calls.settings, group) as offsets:
            found = self._calls.one(
                f"fetching the committed offsets of group {group}",
                lambda left_s: offsets.fetch(partitions, left_s),
                self._limit(timeout_s),
                Operation.DESCRIBE,
                _first_error_or_all,
                about=group,
            )
        return {_ours(at): at.offset for at in found if at.offset >= 0}

    def _list_offsets(
        self,
        which: str,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int]:
        def submit(asked: list[TopicPartition], left_s: float) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
            request = {ClientPartition(tp.topic, tp.partition): spec for tp in asked}
            futures = self._calls.client.list_offsets(request, isolation_level=isolation, request_timeout=left_s)
            return {_ours(partition): future for partition, future in futures.items()}

        return self._calls.each(
            f"fetching the {which} offsets", partitions, submit, self._limit(timeout_s), Operation.DESCRIBE, _offset_of
        )

    def _limit(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s


def _ours(partition: ClientPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _partition_states(description: TopicDescription) -> tuple[PartitionState, ...]:
    return tuple(
        PartitionState(
            leader=None if partition.leader is None or partition.leader.id == _NO_LEADER else partition.leader.id,
            racks=frozenset(node.rack for node in partition.replicas if node.rack),
        )
        for partition in sorted(description.partitions, key=lambda partition: int(partition.id))
    )


def _leaderless(topic: str, states: tuple[PartitionState, ...] | None) -> list[str]:
    if states is None:
        return [f"{topic} (not there)"]
    return [f"{topic}-{number}" for number, state in enumerate(states) if state.leader is None]


def _allowed(done: Future[TopicDescription]) -> frozenset[str] | None:
    """None where nothing is known of them."""
    try:
        return allowed_on(done.result())
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return frozenset()
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _none_if_missing(done: Future[Answer]) -> Answer | None:
    return _result_but(done, KafkaError.UNKNOWN_TOPIC_OR_PART, None)


def _false_if_there(done: Future[None]) -> bool:
    """True if the topic was made by this call."""
    return _result_but(done, KafkaError.TOPIC_ALREADY_EXISTS, False) is None


def _result_but(done: Future[Answer], code: int, otherwise: Otherwise) -> Answer | Otherwise:
    try:
        return done.result()
    except KafkaException as error:
        if error.args[0].code() != code:
            raise
        return otherwise


def _offset_of(done: Future[ListOffsetsResultInfo]) -> int | KafkaError:
    """Where the leader's broker did not answer, the client gives no error but an offset that is none (seen with 2.16)."""
    offset = int(done.result().offset)
    return KafkaError(KafkaError._TRANSPORT, "the partition's leader did not answer") if offset == OFFSET_INVALID else offset


def _first_error_or_all(done: Future[list[ClientPartition]]) -> list[ClientPartition] | KafkaError:
    return next((at.error for at in done.result() if at.error is not None), done.result())
