"""Writing records through librdkafka: what a transactional and a plain producer have in common.

Decides a producer's settings, how columns of records are written, how the ends of partitions and the reasons of failures
are learnt, and when a producer is given up. Whether a batch counts is decided in ``producer``.

There is no callback for each record: the last record of each partition of a ``write`` has one, which is how the end of a
changelog partition is learnt. Some errors of librdkafka's commit say only *that* records failed; so after such a batch
every record of the next one has a callback, and the reason is known when it fails again.

With ``leaves_out`` a batch of which the broker has refused records for good is lost and run again, until it is known which ones
they are: then ``write`` refuses them by their place, as it does one that is too large for the client. An error of records
that were sent together need not hold for each, so they are sent singly then, and a transaction ends with the first one or few.

Timestamps: librdkafka writes the current time where it is given 0. The first record of time 0 costs the producer, whose successor
is of ``zero_timestamps`` and writes it as it is; so does each one after that.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import ClassVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidemill.config.values import DataClientSettings
from tidemill.deadline import Deadline
from tidemill.errors import BatchLostError, ConfigError, RecordRefusedError, RecordTooLargeError, StopError, TidemillError
from tidemill.ids import TopicPartition
from tidemill.kafka.data.absent_topics import HEARD_OF_LIMIT_S, absent_topics
from tidemill.kafka.data.producer_errors import is_consequence, is_not_valid, is_too_large, lacks_topic, meaning_of
from tidemill.kafka.data.zero_timestamps import PLACEHOLDER, producer_of_zeros, zeros_written
from tidemill.kafka.security.clients import error_text
from tidemill.kafka.security.rights import CLUSTER, Operation, Resource, Right, lacking, lacks, missing_right
from tidemill.operators.record import why_no_headers
from tidemill.task.raw_records import RecordColumns

Write = Callable[..., None]
"""confluent-kafka's ``produce(topic, value, key, partition, on_delivery=..., timestamp=..., headers=...)``."""

_Content = tuple[str, "bytes | None", "bytes | None", int]
"""Topic, key, value and timestamp: what a record is known by when its batch is run again."""
DeliveryCallback = Callable[["KafkaError | None", Message], None]
_ANY_PARTITION = -1
_ROOM_POLL_S = 0.1
_CAUSE_LIMIT_S = 1.0
_FLUSH_POLL_S = 0.1
_HEARD_OF_PAUSE_S = 0.1
_METADATA_AGE_MS = 300_000
"""Kafka's ``metadata.max.age.ms``."""
KNOWN_LIMIT_MS = 8_000
"""A missing topic should be named before the transaction's time is over, and a new one gets a while to be known."""
_DEFAULTS: DataClientSettings = {
    "linger.ms": 2,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # places keys as the Java producer does
    "enable.idempotence": True,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "topic.metadata.propagation.max.ms": KNOWN_LIMIT_MS,
}


class CommitOutcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Known not to count: the commit was never asked for."""
    UNKNOWN = "unknown"
    """The commit was requested, and no success was returned: fence by ``init``, then read the committed offsets."""


class RecordProducer(ABC):
    """Base of both producers: writing, the ends of partitions, and the replacement of a producer that failed."""

    _stops_at_first_error: ClassVar[bool]
    """Nothing more of a batch is sent once a record was refused, so that nothing is to be waited for."""

    def __init__(self, settings: DataClientSettings, *, timeout_ms: int = 30_000, leaves_out: bool = False) -> None:
        self._settings = settings
        self._leaves_out = leaves_out
        self._refused: dict[_Content, str] = {}
        self._writes_singly = self._is_single = False
        self._timeout_s = timeout_ms / 1000
        self._producer: Producer | None = None
        self._is_open = False
        self._ends: dict[TopicPartition, int] = {}
        self._partitions: dict[str, tuple[int, Deadline]] = {}
        self._topics: set[str] = set()
        self._delivery_error: tuple[KafkaError, TopicPartition] | None = None
        self._asks_for_reasons = False
        self._keeps_zeros = False
        self._has_written = False
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

    @abstractmethod
    def init(self) -> None:
        """Makes a new producer."""

    def begin(self) -> None:
        """Begins a batch if none is open; makes a producer first if need be."""
        if self._is_open:
            return
        if self._producer is None:
            self.init()
        self._begin()
        self._is_open, self._ends, self._delivery_error, self.failure = True, {}, None, None
        self._has_written = False

    def write(self, topic: str, records: RecordColumns) -> None:
        """Writes records of a topic.

        Raises StopError for a record or topic that is refused for good, otherwise BatchLostError or FencedError; the
        batch is aborted then. RecordTooLargeError leaves it open.
        """
        self.begin()
        produce = self._produce_of(topic, records.timestamps)
        assert self._producer is not None
        self._topics.add(topic)
        self._has_written = True
        count, partitions = len(records), records.partitions
        rows = zip(
            records.values,
            records.keys,
            [_ANY_PARTITION] * count if partitions is None else partitions,
            self._callbacks(records.timestamps, partitions),
            records.timestamps,
            [None] * count if records.headers is None else [self._sendable(topic, own) for own in records.headers],
            strict=True,
        )
        for at, (value, key, partition, callback, timestamp, header) in enumerate(rows):
            if self._refused:
                self._check(at, (topic, key, value, timestamp))
            while True:
                try:
                    produce(topic, value, key, partition, callback, None, timestamp, header)
                    break
                except BufferError:
                    self.make_room()
                except TypeError as problem:
                    self.abort()
                    raise StopError(
                        f"writing to {topic}: found a key of the type {type(key).__name__} and a value of the type"
                        f" {type(value).__name__}; expected bytes or None, which a serde's serialize returns."
                    ) from problem
                except KafkaException as problem:
                    if problem.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:  # not taken up: the others are not harmed
                        raise RecordTooLargeError(str(meaning_of(problem.args[0], f"writing to {topic}")), at=at) from problem
                    where = topic if partition == _ANY_PARTITION else TopicPartition(topic, partition)
                    raise self.refused(problem, f"writing to {where}", (topic,)) from problem
        self._served()

    def _callbacks(self, timestamps: Sequence[int], partitions: Sequence[int] | None) -> Sequence[DeliveryCallback | None]:
        """For each record what is called when it is written, or None: see the head of this module."""
        if self._is_single:
            return [functools.partial(self._delivered_at, timestamp) for timestamp in timestamps]
        callbacks: list[DeliveryCallback | None] = [self._delivered if self._asks_for_reasons else None] * len(timestamps)
        for last in {partition: at for at, partition in enumerate(partitions or ())}.values():
            callbacks[last] = self._delivered
        return callbacks

    def _check(self, at: int, content: _Content) -> None:
        said = self._refused.get(content)
        if said is not None:
            raise RecordRefusedError(said, at=at)

    def _sendable(
        self, topic: str, headers: Sequence[tuple[str, bytes | None]] | None
    ) -> list[tuple[str, str | bytes | None]] | None:
        """Headers in the form of librdkafka, which ends the process on some others (``why_no_headers``); none may reach it."""
        if not headers:
            return None
        problem = why_no_headers(headers)
        if problem:
            self.abort()
            raise StopError(f"writing to {topic}: {problem}")
        return list(headers)

    def _produce_of(self, topic: str, timestamps: Sequence[int]) -> Write:
        """The client's own where it writes these timestamps as they are."""
        if timestamps and min(timestamps) < 0:
            self.abort()
            raise StopError(
                f"writing to {topic}: a record has the timestamp {min(timestamps)}, and Kafka's are 0 or above; correct what "
                "gives it."
            )
        if 0 not in timestamps:
            assert self._producer is not None
            return self._producer.produce
        if not self._keeps_zeros:
            self._keeps_zeros = True
            self._replace(f"writing to {topic}: a record has the timestamp 0")
        return self._produce_zeros

    def _produce_zeros(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        callback: DeliveryCallback | None,
        alias: None,
        timestamp: int,
        headers: list[tuple[str, str | bytes | None]] | None,
    ) -> None:
        """``produce`` for batches that hold zeros: each is counted, so that none becomes the current time unseen."""
        assert self._producer is not None
        before = zeros_written()
        self._producer.produce(topic, value, key, partition, callback, alias, timestamp or PLACEHOLDER, headers)
        if timestamp == 0 and zeros_written() != before + 1:
            self.abort()
            raise StopError(f"writing to {topic}: the client can't be made to write the timestamp 0; please report this.")

    @abstractmethod
    def _replace(self, reason: str) -> None:
        """Another producer for the rest of the open batch; BatchLostError, and the batch aborted, where that can't be."""

    def partitions_of(self, topic: str) -> int:
        """Number of partitions of a topic, as old as the client's metadata may be: a topic may get more. Raises BatchLostError or
        StopError; the batch is aborted then."""
        count, due = self._partitions.get(topic, (0, None))
        if due is None or due.is_over:
            self.begin()
            try:
                count = self._look_at(topic)
            except KafkaException as problem:
                raise self.refused(problem, f"looking at {topic}", (topic,)) from problem
            age_ms = float(self._settings.get("metadata.max.age.ms", _METADATA_AGE_MS))
            self._partitions[topic] = count, Deadline.after(age_ms / 1000)
        return count

    def _look_at(self, topic: str) -> int:
        """The number of its partitions. A broker may not have heard yet of a topic that was just made."""
        assert self._producer is not None
        deadline = Deadline.after(HEARD_OF_LIMIT_S)
        while True:
            described = self._producer.list_topics(topic, timeout=self._timeout_s).topics[topic]
            if described.error is None:
                return len(described.partitions)
            if deadline.is_over or not lacks_topic(described.error):
                raise KafkaException(described.error)
            time.sleep(_HEARD_OF_PAUSE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """The callback of a partition's last record."""
        partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
        if error is not None:
            first = self._delivery_error
            if first is None or is_consequence(first[0]):
                self._delivery_error = (error, partition)
        else:
            self._ends[partition] = max(self._ends.get(partition, 0), int(message.offset() or 0) + 1)

    def _delivered_at(self, timestamp: int, error: KafkaError | None, message: Message) -> None:
        """``_delivered`` of a record that is to be found out if it is refused; its message has no timestamp then."""
        self._delivered(error, message)
        if self._is_single and error is not None and (is_not_valid(error) or is_too_large(error)):
            topic = str(message.topic())
            self._refused[topic, message.key(), message.value(), timestamp] = str(meaning_of(error, f"writing to {topic}"))

    def _served(self, limit_s: float = 0) -> int:
        """Calls the callbacks that are due; how many events there were.

        A fatal error, as of a producer that is fenced, is raised by the client wherever it is heard first, hence here, too.
        """
        assert self._producer is not None
        try:
            return self._producer.poll(limit_s)
        except KafkaException as problem:
            raise self.refused(problem, "writing") from problem

    def flush(self, doing: str = "writing the batch") -> None:
        """Waits until all that was written is acknowledged; the batch goes on. Raises why it is not, and aborts the batch."""
        if not self._has_flushed(doing):
            self.abort()
            assert self.failure is not None
            raise self.failure

    def make_room(self) -> None:
        """Waits until records have left the full buffer.

        BatchLostError if none do in time, otherwise as ``write`` raises; the batch is aborted then.
        """
        assert self._producer is not None
        deadline = Deadline.after(self._timeout_s)
        while self._served(_ROOM_POLL_S) == 0:
            if deadline.is_over:
                waiting = len(self._producer)
                self.abort()
                raise BatchLostError(
                    f"The producer's buffer is full: none of its {waiting} records was acknowledged for "
                    f"{self._timeout_s:.0f} s. Are the brokers reachable?"
                )

    def refused(
        self, problem: KafkaException, doing: str, topics: Sequence[str] | None = None, *, reader: str = ""
    ) -> TidemillError:
        """The error for an exception of the client; aborts the batch. ``topics``: what it is about, if not all that was written;
        ``reader``: the group that reads them, where it is about that."""
        error = self._fatal_cause(problem.args[0])
        # What may be tried again was tried until its time was over: an abort would wait as long, a new producer is quick.
        if error.fatal() or error.retriable():
            self._give_up()
        else:
            self.abort()
        if error.code() == KafkaError._STATE:  # the batch had failed before, which was not reported
            return self._earlier(error, doing)
        return self._unless_left_out(error, self._meaning(error, doing, topics, reader=reader))

    def _fatal_cause(self, error: KafkaError) -> KafkaError:
        """The error itself, or what is behind ``_FATAL``: that is raised once, where the client's events are served."""
        if error.code() != KafkaError._FATAL or self._producer is None:
            return error
        try:
            while self._producer.poll(_CAUSE_LIMIT_S):
                pass
        except KafkaException as cause:
            error = cause.args[0]
        return error

    def _earlier(self, error: KafkaError, doing: str) -> TidemillError:
        """The earlier failure, where it is known; else the batch is lost, and the next one asks for reasons."""
        self._asks_for_reasons = True
        self._give_up()
        if self._delivery_error is not None:
            return self._delivery_problem(*self._delivery_error)
        return BatchLostError(f"{doing}: {error.str()} ({error.name()}): it had failed before; run the batch again.")

    def _meaning(
        self, error: KafkaError, doing: str, topics: Sequence[str] | None = None, *, reader: str = ""
    ) -> TidemillError:
        """A missing right by its name, as a missing topic; for the rest see ``meaning_of``."""
        if lacks_topic(error) and (reader or topics is None):  # it is about the transaction, hence about what is written
            return meaning_of(error, f"{doing}, with records for {' and '.join(absent_topics(self._topics, self._settings))}")
        resource = lacks(error)
        if resource is None:
            return meaning_of(error, doing)
        if resource is Resource.CLUSTER:
            # Which Kafka has also granted to everyone who may write to any topic.
            rights = [Right.of(resource, CLUSTER, Operation.IDEMPOTENT_WRITE)]
        elif resource is Resource.GROUP:
            rights = [Right.of(resource, reader, Operation.READ)]
        elif resource is Resource.TRANSACTIONAL_ID:
            rights = [Right.of(resource, str(self._settings.get("transactional.id", "")), Operation.WRITE)]
        else:
            written = self._topics if topics is None or reader else topics
            suspects = [Right.of(resource, topic, Operation.WRITE) for topic in sorted(written)]
            if reader:  # or else the transaction had failed before, because of what was written
                suspects += [Right.of(resource, topic, Operation.READ) for topic in topics or ()]
            rights = suspects if len(suspects) < 2 else lacking(suspects, self._settings)
            if not rights:
                return missing_right(doing, suspects, self._settings, some_of_them=True)
        return missing_right(doing, rights, self._settings)

    @abstractmethod
    def abort(self) -> None:
        """Ends the batch without effect as far as that can be had."""

    def close(self) -> None:
        """Drops the producer; what was not committed is left to be fenced, or to the transaction's time-out."""
        self._give_up()

    @abstractmethod
    def _begin(self) -> None:
        """Called before a batch's first record: begins what the guarantee needs."""

    def _make(self, defaults: Mapping[str, object], fixed: Mapping[str, object]) -> Producer:
        """The user's settings win over ``defaults``, ``fixed`` over the user's."""
        self._give_up()
        made = producer_of_zeros if self._keeps_zeros else Producer
        self._is_single = self._writes_singly
        singly = {"batch.num.messages": 1} if self._is_single else {}
        try:
            values: dict[str, object] = {**_DEFAULTS, **defaults, **self._settings, **singly, **fixed}
            return made(values)
        except (KafkaException, ValueError, TypeError) as problem:
            raise ConfigError(f"The producer can't be set up: {error_text(problem)}") from problem

    def _give_up(self) -> None:
        self._producer = None
        self._partitions.clear()
        self._is_open = False

    def _reason(self, problem: KafkaException | None, doing: str) -> TidemillError:
        """The failed record's own error where it is known: the commit's says only that there is one."""
        if self._delivery_error is not None:
            return self._delivery_problem(*self._delivery_error)
        self._asks_for_reasons = True
        if problem is None:
            return BatchLostError(f"{doing}: not all records were acknowledged within {self._timeout_s:.0f} s")
        return self._unless_left_out(problem.args[0], self._meaning(problem.args[0], doing))

    def _delivery_problem(self, error: KafkaError, partition: TopicPartition) -> TidemillError:
        """The error for the first record that was not written."""
        return self._unless_left_out(error, self._meaning(error, f"writing to {partition}", (partition.topic,)))

    def _unless_left_out(self, error: KafkaError, problem: TidemillError) -> TidemillError:
        """The problem, or that the batch is lost: what has failed is still to be found out, and may be left out."""
        is_refused = is_not_valid(error) or is_too_large(error)
        if is_consequence(error) or (self._leaves_out and is_refused):
            self._asks_for_reasons = True
            self._writes_singly = self._writes_singly or is_refused
            self._give_up()  # its partition's sequence counts on behind what was refused
            return BatchLostError(f"{problem} The batch is run again to find the record.")
        return problem

    def _has_flushed(self, doing: str = "writing the batch") -> bool:
        """True if every record of the batch is acknowledged; else ``failure`` says why not."""
        assert self._producer is not None
        problem: KafkaException | None = None
        deadline = Deadline.after(self._timeout_s)
        try:
            while (left := self._producer.flush(min(_FLUSH_POLL_S, deadline.left_s))) and not deadline.is_over:
                if self._delivery_error is not None and self._stops_at_first_error:
                    break
        except KafkaException as caught:
            problem, left = caught, 1
        if left == 0 and self._delivery_error is None:
            return True
        self.failure = self._reason(problem, doing)
        return False

    def _succeeded(self) -> CommitOutcome:
        self._asks_for_reasons = self._writes_singly = self._is_open = False
        self._refused.clear()
        if self._is_single:
            self._give_up()
        return CommitOutcome.COMMITTED
