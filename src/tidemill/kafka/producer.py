"""Producers of a stream thread's last step: a transaction for each batch, or at least once with errors detected.

Decides a producer's settings, when it must be replaced, and what is known about a transaction after an error: nothing.
Any error of the commit itself leaves UNKNOWN, and only the committed offsets, read require-stable after ``init`` has
fenced whatever was under way, say whether the batch counts. Which records and offsets make a batch is decided by the
step. Imports confluent-kafka only, so a Spark Python worker needs nothing of the group client. Not thread-safe.

There is no callback for each record: the last record of each partition of a ``write`` has one, which is how the end of a
changelog partition is learnt. An error of librdkafka's commit says only *that* records failed; so after such a batch
every record of the next one has a callback, and the reason is known when it fails again.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tidemill.errors import BatchLostError, ConfigError, RetriableError, TidemillError
from tidemill.ids import TopicPartition
from tidemill.kafka.group_metadata import OffsetAndMetadata
from tidemill.kafka.producer_errors import meaning_of

log = logging.getLogger(__name__)

Write = Callable[..., None]
"""confluent-kafka's ``produce(topic, value, key, partition, on_delivery=..., timestamp=..., headers=...)``."""

_ANY_PARTITION = -1
_ROOM_POLL_S = 0.1
_DEFAULTS: Mapping[str, Any] = {
    "linger.ms": 2,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # places keys as the Java producer does
    "enable.idempotence": True,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 262_144,
    # A missing topic should be named before the transaction's time is over, and a new one gets a while to be known.
    "topic.metadata.propagation.max.ms": 8_000,
}
_TRANSACTIONAL: Mapping[str, Any] = {
    "transaction.timeout.ms": 10_000,
    # Just after a commit the coordinator answers "concurrent transactions"; the default pause would be a batch's cost.
    "retry.backoff.ms": 2,
}


class CommitOutcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Known not to count: the commit was never asked for."""
    UNKNOWN = "unknown"
    """Asked for, and not answered with success: fence by ``init``, then read the committed offsets."""


class _RecordProducer:
    """What both guarantees share: writing, the ends of partitions, and the replacement of a producer that failed."""

    def __init__(self, settings: Mapping[str, Any], *, timeout_ms: int) -> None:
        self._settings = settings
        self._timeout_s = timeout_ms / 1000
        self._producer: Producer | None = None
        self._is_open = False
        self._ends: dict[TopicPartition, int] = {}
        self._delivery_error: tuple[KafkaError, str] | None = None
        self._asks_for_reasons = False
        self.failure: TidemillError | None = None
        """Why the last batch is not COMMITTED."""

    @property
    def must_init(self) -> bool:
        """There is no producer, or the last one failed and was given up."""
        return self._producer is None

    @property
    def is_open(self) -> bool:
        """A batch was begun and has neither been committed nor aborted."""
        return self._is_open

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """The offset behind the last record of each partition that was written by number (it may hold others); complete
        after a commit."""
        return self._ends

    def init(self) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        """Begins a batch if none is open; makes a producer first if need be."""
        if self._is_open:
            return
        if self._producer is None:
            self.init()
        self._begin()
        self._is_open, self._ends, self._delivery_error, self.failure = True, {}, None, None

    def writer(self) -> Write:
        """Begins, and gives the client's own ``produce`` for a loop of one's own.

        On BufferError call ``make_room`` and write the record again; on KafkaException raise what ``refused`` gives.
        """
        self.begin()
        assert self._producer is not None
        if self._asks_for_reasons:
            return functools.partial(self._producer.produce, on_delivery=self.delivered)
        return self._producer.produce

    def write(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        partitions: Sequence[int] | None = None,
        headers: Sequence[Any] | None = None,
    ) -> None:
        """Writes columns of records; without ``partitions`` the partitioner places them by key.

        Raises StopError for a record or topic that is refused for good, otherwise BatchLostError or FencedError; the
        batch is aborted then.
        """
        self.begin()
        assert self._producer is not None
        produce = self._producer.produce
        count = len(keys)
        callbacks: Sequence[Any] = [self.delivered if self._asks_for_reasons else None] * count
        if partitions is not None:
            callbacks = list(callbacks)
            for at in {partition: at for at, partition in enumerate(partitions)}.values():
                callbacks[at] = self.delivered
        rows = zip(
            values,
            keys,
            [_ANY_PARTITION] * count if partitions is None else partitions,
            callbacks,
            timestamps,
            [None] * count if headers is None else headers,
            strict=True,
        )
        for value, key, partition, callback, timestamp, header in rows:
            while True:
                try:
                    produce(topic, value, key, partition, callback, None, timestamp, header)
                    break
                except BufferError:
                    self.make_room()
                except KafkaException as problem:
                    raise self.refused(problem, f"writing to {topic}") from problem
        self._producer.poll(0)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """The callback of a partition's last record; ``write`` sets it, a loop of one's own must."""
        partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
        if error is not None:
            first = self._delivery_error
            if first is None or _is_consequence(first[0]):
                self._delivery_error = (error, f"writing to {partition}")
        else:
            self._ends[partition] = max(self._ends.get(partition, 0), int(message.offset() or 0) + 1)

    def make_room(self) -> None:
        """Waits until records have left the full buffer; BatchLostError, and the batch aborted, if none do in time."""
        assert self._producer is not None
        deadline = time.monotonic() + self._timeout_s
        while self._producer.poll(_ROOM_POLL_S) == 0:
            if time.monotonic() > deadline:
                waiting = len(self._producer)
                self.abort()
                raise BatchLostError(
                    f"The producer's buffer is full: none of its {waiting} records was acknowledged for "
                    f"{self._timeout_s:.0f} s. Are the brokers reachable?"
                )

    def refused(self, problem: KafkaException, doing: str) -> TidemillError:
        """What an exception of the client means; aborts the batch."""
        error: KafkaError = problem.args[0]
        if error.fatal():
            self._give_up()
        else:
            self.abort()
        return meaning_of(error, doing)

    def abort(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Drops the producer; what was not committed is left to be fenced, or to the transaction's time-out."""
        self._give_up()

    def _begin(self) -> None:
        raise NotImplementedError

    def _make(self, settings: Mapping[str, Any]) -> Producer:
        self._give_up()
        try:
            return Producer({**_DEFAULTS, **settings, **self._settings})
        except (KafkaException, ValueError, TypeError) as problem:
            raise ConfigError(f"The producer can't be set up: {_text(problem)}") from problem

    def _give_up(self) -> None:
        self._producer = None
        self._is_open = False

    def _reason(self, problem: KafkaException | None, doing: str) -> TidemillError:
        """The failed record's own error where it is known: the commit's says only that there is one."""
        if self._delivery_error is not None:
            return meaning_of(*self._delivery_error)
        self._asks_for_reasons = True
        if problem is None:
            return BatchLostError(f"{doing}: not all records were acknowledged within {self._timeout_s:.0f} s")
        return meaning_of(problem.args[0], doing)

    def _succeeded(self) -> CommitOutcome:
        self._asks_for_reasons = False
        self._is_open = False
        return CommitOutcome.COMMITTED


class TransactionalProducer(_RecordProducer):
    """One transaction for each batch, begun at its first record.

    ``settings`` are librdkafka's names and win over the defaults here. A producer under a ``transactional_id`` fences
    its predecessor, in this process or any other.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        transactional_id: str,
        timeout_ms: int = 30_000,
        init_timeout_ms: int = 60_000,
    ) -> None:
        super().__init__({**settings, "transactional.id": transactional_id}, timeout_ms=timeout_ms)
        self._transactional_id = transactional_id
        self._init_timeout_s = init_timeout_ms / 1000

    def init(self) -> None:
        """Makes a new producer and ends what its predecessors left open.

        Raises RetriableError if no coordinator answered in time, FencedError if another one did the same meanwhile,
        ConfigError and StopError for what trying again can't change.
        """
        producer = self._make(_TRANSACTIONAL)
        doing = f"initialising transactions of {self._transactional_id}"
        try:
            _persist(producer.init_transactions, self._init_timeout_s)
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            if error.retriable():
                raise RetriableError(
                    f"{doing}: no answer within {self._init_timeout_s:.0f} s ({error.str()}). Check bootstrap.servers, "
                    f"and that the topic __transaction_state is available. The same call may work later."
                ) from problem
            raise meaning_of(error, doing) from problem
        self._producer = producer

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: bytes
    ) -> None:
        """Adds the input offsets (the next to read) to the transaction, in the name of a member of their group.

        Raises CommitRefusedError if the group doesn't accept the member's generation, FencedError, BatchLostError or
        StopError; the transaction is aborted then.
        """
        self.begin()
        assert self._producer is not None
        positions = [_client_position(partition, at) for partition, at in sorted(offsets.items())]
        try:
            _persist(
                functools.partial(self._producer.send_offsets_to_transaction, positions, group_metadata),
                self._timeout_s,
            )
        except KafkaException as problem:
            raise self.refused(problem, "sending the input offsets") from problem

    def commit(self) -> CommitOutcome:
        """Ends the transaction. Anything but COMMITTED leaves ``failure``; UNKNOWN also gives the producer up.

        Blocks for twice ``timeout_ms`` at most.
        """
        if not self._is_open:
            return CommitOutcome.COMMITTED
        if not self._all_acknowledged():
            return CommitOutcome.ABORTED
        assert self._producer is not None
        try:
            _persist(self._producer.commit_transaction, self._timeout_s)
        except KafkaException as problem:
            self.failure = self._reason(problem, "committing")
            log.warning("event=commit-unknown id=%s reason=%r", self._transactional_id, str(self.failure))
            self._give_up()
            return CommitOutcome.UNKNOWN
        return self._succeeded()

    def abort(self) -> None:
        """Ends the transaction without effect; a producer that can't is given up, and the next ``init`` does it."""
        if not self._is_open or self._producer is None:
            return
        self._is_open = False
        try:
            _persist(self._producer.abort_transaction, self._timeout_s)
        except KafkaException as problem:
            log.warning("event=abort-failed id=%s reason=%r", self._transactional_id, _text(problem))
            self._give_up()

    def _begin(self) -> None:
        assert self._producer is not None
        try:
            self._producer.begin_transaction()
        except KafkaException as problem:
            raise self.refused(problem, "beginning a transaction") from problem

    def _all_acknowledged(self) -> bool:
        """Flushes; what is missing after that aborts the transaction, whose commit has not been asked for yet."""
        assert self._producer is not None
        problem: KafkaException | None = None
        try:
            left = self._producer.flush(self._timeout_s)
        except KafkaException as caught:
            problem, left = caught, 1
        if left == 0 and self._delivery_error is None:
            return True
        self.failure = self._reason(problem, "writing the batch")
        self.abort()
        return False


class FlushingProducer(_RecordProducer):
    """At least once: a batch counts when every record is acknowledged; its offsets are committed after that, elsewhere.

    Every record has a callback here, since nothing else tells that one was refused.
    """

    def __init__(self, settings: Mapping[str, Any], *, timeout_ms: int = 30_000) -> None:
        super().__init__(settings, timeout_ms=timeout_ms)

    def init(self) -> None:
        """Makes a new producer. Raises ConfigError."""
        self._producer = self._make({"on_delivery": self._noticed})

    def commit(self) -> CommitOutcome:
        """COMMITTED when all is acknowledged, otherwise UNKNOWN: any part of the batch may have been written."""
        if not self._is_open:
            return CommitOutcome.COMMITTED
        assert self._producer is not None
        problem: KafkaException | None = None
        try:
            left = self._producer.flush(self._timeout_s)
        except KafkaException as caught:
            problem, left = caught, 1
        if left == 0 and self._delivery_error is None:
            return self._succeeded()
        self.failure = self._reason(problem, "writing the batch")
        self._give_up()
        return CommitOutcome.UNKNOWN

    def abort(self) -> None:
        """Gives the producer up with all that it has not sent; what it has sent stays written."""
        if self._is_open:
            self._give_up()

    def _begin(self) -> None:
        return

    def _noticed(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.delivered(error, message)


def fence(settings: Mapping[str, Any], transactional_id: str, *, timeout_ms: int = 15_000) -> None:
    """Takes ``transactional_id`` over for a moment: its owner can commit no more, and what it left open is aborted.

    This frees the last stable offset of the partitions that a dead owner wrote to, long before its transaction times
    out. Raises as ``TransactionalProducer.init`` does.
    """
    producer = TransactionalProducer(settings, transactional_id=transactional_id, init_timeout_ms=timeout_ms)
    producer.init()
    producer.close()


def _persist(call: Callable[[float], None], limit_s: float) -> None:
    """Calls until it succeeds, fails for good, or the time is over: librdkafka resumes what a time-out interrupted."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return call(max(0.001, deadline - time.monotonic()))
        except KafkaException as problem:
            if not problem.args[0].retriable() or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def _client_position(partition: TopicPartition, at: OffsetAndMetadata | int) -> ClientPartition:
    if isinstance(at, int):
        return ClientPartition(partition.topic, partition.partition, at)
    return ClientPartition(partition.topic, partition.partition, at.offset, metadata=at.metadata)


def _is_consequence(error: KafkaError) -> bool:
    """Records that were dropped because others had failed."""
    return error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


def _text(problem: Exception) -> str:
    error = problem.args[0] if problem.args else problem
    return error.str() if isinstance(error, KafkaError) else str(error)
