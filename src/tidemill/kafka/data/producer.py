"""Producers of a stream thread's last step: a transaction for each batch, or at least once with errors detected.

Decides what is known about a batch after an error: of a transaction, nothing. Any error of the commit itself leaves
UNKNOWN, and only the committed offsets, read require-stable after ``init`` has fenced whatever was under way, say whether
the batch counts. An epoch ends with the first connection that was lost with requests under way (``connection_notes``): one of
them may still reach the coordinator, which would take it for the next transaction's. Which records and offsets make a batch is
decided by the step; how records are written is ``record_producer``'s. Imports confluent-kafka only, so a Spark Python worker
needs nothing of the group client. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from tidemill.config.values import DataClientSettings
from tidemill.deadline import Deadline
from tidemill.errors import BatchLostError, FencedError, RetriableError, TidemillError
from tidemill.ids import TopicPartition
from tidemill.kafka.data.record_producer import KNOWN_LIMIT_MS, CommitOutcome, RecordProducer
from tidemill.kafka.group.metadata import OffsetAndMetadata, group_of
from tidemill.kafka.security.clients import error_text
from tidemill.kafka.security.connection_notes import ConnectionNotes
from tidemill.log_format import LogEvent
from tidemill.task.raw_records import RecordColumns

__all__ = ["CommitOutcome", "FlushingProducer", "TransactionalProducer", "fence"]

log = logging.getLogger("tidemill.producer")

_TRANSACTIONAL: DataClientSettings = {
    "transaction.timeout.ms": 10_000,
    # Just after a commit the coordinator answers "concurrent transactions"; the default pause would be a batch's cost.
    "retry.backoff.ms": 2,
    # Records are on their way while the offsets are sent; at 5 ms, the client's own, only the flush would send them.
    "linger.ms": 1,
    # Else the client forgets brokers that are all away, and its request for the offsets, the group's coordinator once known,
    # waits ten minutes for one that it has forgotten. A producer that fails is replaced by a new one, from bootstrap.servers.
    "metadata.recovery.strategy": "none",
}
_FENCE_LIMIT_MS = 15_000
"""Longest that taking a transactional id over may take."""
_FIRST_BROKER_LIMIT_S = 1.0
_GRACE_S = 0.5
"""Extra time for the client's own time-out to be reported."""


class TransactionalProducer(RecordProducer):
    """One transaction for each batch, begun at its first record.

    ``settings`` are librdkafka's names and win over the defaults here. A producer under a ``transactional_id`` fences
    its predecessor, in this process or any other. No call waits for longer than ``transaction.timeout.ms``, after which the
    broker has aborted the transaction; ``timeout_ms`` may be less.
    """

    _stops_at_first_error = True

    def __init__(
        self,
        settings: DataClientSettings,
        *,
        transactional_id: str,
        timeout_ms: int = 30_000,
        init_timeout_ms: int = 60_000,
        leaves_out: bool = False,
    ) -> None:
        most_ms = int(settings.get("transaction.timeout.ms", _TRANSACTIONAL["transaction.timeout.ms"]))
        all_settings = {**settings, "transactional.id": transactional_id}
        super().__init__(all_settings, timeout_ms=min(timeout_ms, most_ms), leaves_out=leaves_out)
        self._transactional_id = transactional_id
        self._most_ms = most_ms
        self._began_s = math.inf
        """The begin of the open or last transaction; infinite while a new producer has begun none."""
        self._init_timeout_s = init_timeout_ms / 1000
        self._notes = ConnectionNotes(self._settings)

    def init(self) -> None:
        """Makes a new producer and ends what its predecessors left open.

        Raises RetriableError if no coordinator answered in time, FencedError if another one did the same meanwhile,
        ConfigError and StopError for what trying again can't change.
        """
        self._notes, self._began_s = ConnectionNotes(self._settings), math.inf
        producer = self._make(_TRANSACTIONAL, self._notes.settings)
        doing = f"initialising transactions of {self._transactional_id}"
        with contextlib.suppress(KafkaException):
            # A client that knows no broker yet looks for the coordinator only every half a second; it says what is wrong below.
            producer.list_topics(timeout=min(_FIRST_BROKER_LIMIT_S, self._init_timeout_s))
        try:
            _persist(producer.init_transactions, self._init_timeout_s)
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            if error.retriable():
                raise RetriableError(
                    f"{doing}: no answer within {self._init_timeout_s:.0f} s ({error.str()}). Check bootstrap.servers, "
                    f"and that the topic __transaction_state is available. The same call may work later."
                ) from problem
            raise self._meaning(error, doing) from problem
        self._producer = producer

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: bytes
    ) -> None:
        """Adds the input offsets (the next to read) to the transaction, in the name of a member of their group.

        Raises CommitRefusedError if the group doesn't accept the member's generation, FencedError, BatchLostError or
        StopError; the transaction is aborted then, or its producer given up.
        """
        self.begin()
        assert self._producer is not None
        positions = [_client_position(partition, at) for partition, at in sorted(offsets.items())]
        send = functools.partial(self._producer.send_offsets_to_transaction, positions, group_metadata)
        try:
            _limited(functools.partial(_persist, send, self._timeout_s), self._timeout_s + _GRACE_S)
        except TimeoutError:
            self._give_up()
            raise BatchLostError(
                f"sending the input offsets: no answer within {self._timeout_s:.0f} s. Is the coordinator of the group "
                f"{group_of(group_metadata)} there, and the topic __consumer_offsets available?"
            ) from None
        except KafkaException as problem:
            read = sorted({partition.topic for partition in offsets})
            reader = group_of(group_metadata)
            raise self.refused(problem, "sending the input offsets", read, reader=reader) from problem

    def begin(self) -> None:
        """Begins a transaction; first with a new client, hence a new epoch, if this one has lost requests.

        ``EndTxn`` names only the producer's id and epoch, and librdkafka sends it again after a lost connection: the first one,
        late, would end the next transaction of the same epoch wherever that is then.
        """
        if not self._is_open and self._producer is not None:
            self._began_s = math.inf
            self._served()  # which may note a lost request
            if self._notes.lost:
                log.info(LogEvent("new-epoch", id=self._transactional_id, reason=self._notes.lost))
                self._give_up()
        super().begin()

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
            log.warning(LogEvent("commit-unknown", id=self._transactional_id, reason=str(self.failure)))
            self._give_up()
            return CommitOutcome.UNKNOWN
        return self._succeeded()

    def abort(self) -> None:
        """Ends the transaction without effect; a producer that can't is given up, and the next ``init`` does it.

        One that has written is given up in any case: librdkafka counts the records on that it has thrown away unsent, and the
        broker would refuse the next transaction's (OUT_OF_ORDER_SEQUENCE_NUMBER).
        """
        if not self._is_open or self._producer is None:
            return
        self._is_open = False
        has_written = self._has_written
        try:
            _persist(self._producer.abort_transaction, self._timeout_s)
        except KafkaException as problem:
            log.warning(LogEvent("abort-failed", id=self._transactional_id, reason=error_text(problem)))
            has_written = True
        if has_written:
            self._give_up()

    def _replace(self, reason: str) -> None:
        if self._has_written:
            self.abort()
            raise BatchLostError(f"{reason}, which takes another producer; run the batch again.")
        self._give_up()
        self.begin()

    def _begin(self) -> None:
        assert self._producer is not None
        self._began_s = time.monotonic()
        try:
            self._producer.begin_transaction()
        except KafkaException as problem:
            raise self.refused(problem, "beginning a transaction") from problem

    def _meaning(
        self, error: KafkaError, doing: str, topics: Sequence[str] | None = None, *, reader: str = ""
    ) -> TidemillError:
        """Also says whether the transaction was open for so long that the broker has ended it, which fences its producer."""
        problem = super()._meaning(error, doing, topics, reader=reader)
        took_ms = (time.monotonic() - self._began_s) * 1e3
        if not isinstance(problem, FencedError) or took_ms <= self._most_ms:
            return problem
        return FencedError(
            f"{doing}: {error.str()} ({error.name()}): the transaction was open for {took_ms / 1e3:.1f} s, and the broker ends "
            f"it after transaction.timeout.ms={self._most_ms}. The batch is run again; if this process and its machine were not "
            "paused, raise transaction.timeout.ms."
        )

    def _all_acknowledged(self) -> bool:
        """Flushes; what is missing after that aborts the transaction, whose commit has not been asked for yet."""
        if self._has_flushed():
            return True
        self.abort()
        return False


class FlushingProducer(RecordProducer):
    """At least once: a batch counts when every record is acknowledged; its offsets are committed after that, elsewhere.

    Every record has a callback here, since nothing else shows that one was refused. One request is under way at a time: a broker
    to which a partition is new may refuse the first batch and take the second; it calls the first a duplicate when it is sent
    again. In a transaction the broker sees that a batch is missing.
    """

    _stops_at_first_error = False
    _written: Counter[TopicPartition]

    def init(self) -> None:
        """Makes a new producer. Raises ConfigError."""
        # Records that have waited for too long say nothing of a missing topic: it is to be named before.
        known_ms = int(self._settings.get("delivery.timeout.ms", 2 * KNOWN_LIMIT_MS)) // 2
        defaults = {"on_delivery": self._noticed, "topic.metadata.propagation.max.ms": min(KNOWN_LIMIT_MS, known_ms)}
        self._producer = self._make(defaults, {"max.in.flight.requests.per.connection": 1})

    def commit(self) -> CommitOutcome:
        """COMMITTED when all is acknowledged, otherwise UNKNOWN: any part of the batch may have been written."""
        if not self._is_open:
            return CommitOutcome.COMMITTED
        if self._has_flushed():
            return self._succeeded()
        self._give_up()
        return CommitOutcome.UNKNOWN

    def abort(self) -> None:
        """Gives the producer up with all that it has not sent; what it has sent stays written."""
        if self._is_open:
            self._give_up()

    def write(self, topic: str, records: RecordColumns) -> None:
        super().write(topic, records)
        for number, count in Counter(records.partitions or ()).items():
            self._written[TopicPartition(topic, number)] += count

    def fills(self, partition: TopicPartition, start: int) -> bool:
        """True if the batch's records alone lie between ``start`` and the partition's end; known after a commit."""
        return start + self._written[partition] == self._ends[partition]

    def _begin(self) -> None:
        self._written = Counter()

    def _replace(self, reason: str) -> None:
        """Flushes what was written; the batch continues."""
        self.flush(reason)
        self.init()
        self._is_open = True

    def _noticed(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._delivered(error, message)


def fence(settings: DataClientSettings, transactional_id: str) -> None:
    """Takes ``transactional_id`` over for a moment: its owner can commit no more, and what it left open is aborted.

    This frees the last stable offset of the partitions that a dead owner wrote to, long before its transaction times
    out. Raises as ``TransactionalProducer.init`` does.
    """
    producer = TransactionalProducer(settings, transactional_id=transactional_id, init_timeout_ms=_FENCE_LIMIT_MS)
    producer.init()
    producer.close()


def _persist(call: Callable[[float], None], limit_s: float) -> None:
    """Calls until it succeeds, fails for good, or the time is over: librdkafka resumes what a time-out interrupted."""
    deadline = Deadline.after(limit_s)
    while True:
        try:
            return call(max(0.001, deadline.left_s))
        except KafkaException as problem:
            if not problem.args[0].retriable() or deadline.is_over:
                raise
            time.sleep(0.01)


def _limited(call: Callable[[], None], limit_s: float) -> None:
    """Raises TimeoutError and leaves the call to itself when it does not end.

    For librdkafka's search for a group's coordinator: it asks three times, and again only when a connection comes or goes,
    whatever time-out the caller gave.
    """
    problems: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as problem:  # raised where it is waited for
            problems.append(problem)

    thread = threading.Thread(target=run, name="send-offsets", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise TimeoutError
    if problems:
        raise problems[0]


def _client_position(partition: TopicPartition, at: OffsetAndMetadata | int) -> ClientPartition:
    if isinstance(at, int):
        return ClientPartition(partition.topic, partition.partition, at)
    return ClientPartition(partition.topic, partition.partition, at.offset, metadata=at.metadata)
