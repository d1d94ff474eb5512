"""Where a stream thread's results go: one Kafka transaction a batch, or, at least once, one flush.

Decides the producer's settings, what an error of a commit means, and how a changelog's new end is learnt without a callback
per record (only a partition's last record has one). Which records and offsets belong together is the last step's matter.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tidemill.errors import BatchLostError, FencedError, StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.group_metadata import group_metadata_bytes
from tidemill.task.batch import Membership, Positions

_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
}
_SETTINGS = {
    "linger.ms": 2,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 262_144,
    # The broker answers "concurrent transactions" just after a commit; waiting the default 100 ms would be the batch's cost.
    "retry.backoff.ms": 2,
    "partitioner": "murmur2_random",
}
_LIMIT_S = 60.0


class _KafkaOutput:
    """What both guarantees share: producing, and where the last record of each partition went."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None
        self._last: dict[TopicPartition, int] = {}

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = Producer({**_SETTINGS, **self._settings})
        return self._producer

    def produce(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        partitions: Sequence[int] | None = None,
        headers: Sequence[Any] | None = None,
    ) -> None:
        producer = self._open()
        produce = producer.produce
        last_of = {} if partitions is None else {partition: at for at, partition in enumerate(partitions)}
        for at in range(len(keys)):
            kwargs: dict[str, Any] = {"timestamp": max(timestamps[at], 0)}
            if partitions is not None:
                kwargs["partition"] = partitions[at]
                if last_of[partitions[at]] == at:
                    kwargs["on_delivery"] = self._delivered
            if headers is not None and headers[at]:
                kwargs["headers"] = headers[at]
            try:
                produce(topic, values[at], keys[at], **kwargs)
            except BufferError:
                producer.poll(_LIMIT_S)
                produce(topic, values[at], keys[at], **kwargs)
            except KafkaException as problem:
                raise self._outcome(problem) from problem
        producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failed = error
        else:
            self._last[TopicPartition(message.topic(), message.partition())] = message.offset() + 1

    def _outcome(self, problem: KafkaException) -> Exception:
        """What an error means for the batch; the producer is given up, a new one begins by aborting what this one left."""
        error: KafkaError = problem.args[0]
        self._producer = None
        if error.code() in _FENCED:
            return FencedError(f"the broker refused the commit: {error.str()}")
        if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
            return StopError(f"writing was refused: {error.str()}: give the application the right to write")
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return StopError(f"a record is too large for its topic: {error.str()}: raise max.message.bytes and max.request.size")
        return BatchLostError(f"the commit failed: {error.str()}")


class ExactlyOnceOutput(_KafkaOutput):
    """A transactional producer; its transaction holds outputs, changelog records and the input offsets."""

    def __init__(self, settings: Mapping[str, Any], group_id: str) -> None:
        super().__init__(settings)
        self._group_id = group_id
        self._in_transaction = False

    def prepare(self) -> None:
        """Fences the predecessor under the same transactional id, aborting what it left open (rule 7)."""
        if self._producer is None:
            self._guarded(lambda: self._open().init_transactions(_LIMIT_S))

    def begin(self) -> None:
        self.prepare()
        self._guarded(self._open().begin_transaction)
        self._in_transaction, self._failed, self._last = True, None, {}

    def commit(self, offsets: Positions, membership: Membership) -> Mapping[TopicPartition, int]:
        producer = self._open()
        if offsets:
            positions = [ClientPartition(tp.topic, tp.partition, at) for tp, at in offsets.items()]
            group = group_metadata_bytes(self._group_id, membership.generation, membership.member_id, membership.instance_id)
            self._guarded(functools.partial(producer.send_offsets_to_transaction, positions, group, _LIMIT_S))
        self._guarded(functools.partial(producer.commit_transaction, _LIMIT_S))
        self._in_transaction = False
        return dict(self._last)

    def abort(self) -> None:
        if self._producer is None or not self._in_transaction:
            return
        self._in_transaction = False
        try:
            self._producer.abort_transaction(_LIMIT_S)
        except KafkaException:
            self._producer = None  # the next one aborts it by fencing

    def _guarded(self, call: Any) -> None:
        try:
            call()
        except KafkaException as problem:
            outcome = self._outcome(problem)
            self._in_transaction = False
            raise outcome from problem


class AtLeastOnceOutput(_KafkaOutput):
    """A plain producer: the batch counts when everything is acknowledged; the driver commits the offsets afterwards."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__({"enable.idempotence": True, **settings})

    def prepare(self) -> None:
        self._open()

    def begin(self) -> None:
        self._failed, self._last = None, {}

    def commit(self, offsets: Positions, membership: Membership) -> Mapping[TopicPartition, int]:
        del offsets, membership
        left = self._open().flush(_LIMIT_S)
        if left or self._failed is not None:
            self._producer = None
            raise BatchLostError(f"{left} records were not acknowledged in {_LIMIT_S:.0f} s; last error: {self._failed}")
        return dict(self._last)

    def abort(self) -> None:
        self._producer = None


