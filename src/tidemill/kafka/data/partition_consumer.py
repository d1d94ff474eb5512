"""A consumer that holds partitions at positions, without a group: what a stream thread reads from, one for each kind of topic.

Start positions come with every placing and are only acted on where they differ from the consumer's own, so that prefetched
records are not thrown away; an offset that is out of range is reported, never mended here.

A fetch that finds nothing waits at the broker, and holds up the first fetch of a partition that is added meanwhile, or one at
another position, since librdkafka has one fetch under way for each broker. So a consumer asks twenty times a second, and a
patient one, for which nothing has come for some seconds, twice. A new client takes its place at each change.

A new client also takes the place of one that has lost its last broker, once nothing more comes of it. A broker that stops may
answer once more, with topics and without brokers: librdkafka forgets the only broker that it has, and may never ask
bootstrap.servers again (its issue 5301). It says so once, and what comes after that may be from its queue: no sign of a broker.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Collection, Mapping
from typing import TypeGuard, cast

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from tidemill.config.values import DataClientSettings
from tidemill.errors import BatchLostError, StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.security.access_errors import keeps_out, no_entry
from tidemill.kafka.security.rights import Operation, Resource, Right, missing_right
from tidemill.task.raw_records import FetchedRecord

CHUNK_RECORDS = 10_000
QUIET_S = 10.0
"""Time without a record after which a consumer may become patient."""
_WAIT = "fetch.wait.max.ms"
_QUICK_MS, _PATIENT_MS = 50, 500
_LEADERS_LIMIT_S = 0.5
_LOST_S = 3.0
"""Time without a record after which a client that lost its last broker has not found one by itself, or has read all."""

_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
_TRUNCATED = re.compile(r"truncation detected at offset (\d+).*broker end offset is (\d+)")
_DAMAGED = {KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG}
"""The client goes on to ask for the same records, or leaves them out."""


class PartitionConsumer:
    """One librdkafka consumer that holds partitions at positions, without a group."""

    def __init__(self, settings: DataClientSettings, *, tells_ends: bool = False) -> None:
        self._settings = settings
        self._tells_ends = tells_ends
        self._consumer = self._client(_QUICK_MS)
        self._is_patient = False
        self._heard_at = time.monotonic()
        self._lost_at: float | None = None
        """Where the client has said that it has no broker: when, or when something last came of it."""
        self._kept_out: KafkaError | None = None
        """Why brokers have refused the client's login or certificate, if nothing has come of one since."""
        self._placed: dict[TopicPartition, int] = {}
        self._ended_at: dict[TopicPartition, int] = {}
        self.unheard: set[TopicPartition] = set()
        """Added by the last placing, and neither a record nor an end has come of them; kept where the consumer tells ends."""
        self._topics: frozenset[str] = frozenset()
        self.out_of_range: set[TopicPartition] = set()
        self.truncated: dict[TopicPartition, int] = {}
        """Those of them of which a leader has lost the end, after an unclean election: up to where its records are those that
        were read, -1 if that is not known. There may be others behind that by now, at the position as well."""
        self._aside: list[FetchedRecord] = []
        """Taken out of the client's queue and not read yet."""

    def _client(self, wait_ms: int) -> Consumer:
        return Consumer(
            {
                _WAIT: wait_ms,
                "fetch.queue.backoff.ms": 2,
                "queued.min.messages": 100_000,
                "queued.max.messages.kbytes": 16_384,  # of small messages several times as much memory
                "fetch.message.max.bytes": 4_194_304,
                "socket.timeout.ms": 30_000,  # as Java's request.timeout.ms: so long a lost answer holds up a broker's partitions
                "check.crcs": True,  # as in Java's consumer; librdkafka takes bytes that a disk has changed as they are
                **self._settings,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": self._tells_ends,
                "error_cb": self._has_trouble,
            }
        )

    def _has_trouble(self, error: KafkaError) -> None:
        """The client's callback for errors that are not about a partition; called within its reads."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._lost_at = time.monotonic()
        elif keeps_out(error):
            self._kept_out = error

    def place(self, positions: Mapping[TopicPartition, int]) -> None:
        """Holds exactly these partitions, the next read of each starting at its position; one that was out of range, where
        fetching has stopped, again."""
        now = self.ends()
        stale = [tp for tp in self._placed if positions.get(tp) != now[tp] or tp in self.out_of_range]
        self.out_of_range.clear()
        self.truncated.clear()
        self.unheard.clear()
        if stale:
            self._consumer.incremental_unassign([ClientPartition(tp.topic, tp.partition) for tp in stale])
            for tp in stale:
                del self._placed[tp]
                self._ended_at.pop(tp, None)
            self._forget(stale)
        new = {tp: offset for tp, offset in positions.items() if tp not in self._placed}
        if new and self._is_patient:
            self._begin_again({tp: now[tp] for tp in self._placed}, is_patient=False)
        if new:
            self._ask_for_leaders(frozenset(tp.topic for tp in new))
            self._consumer.incremental_assign([ClientPartition(tp.topic, tp.partition, at) for tp, at in new.items()])
            self._placed.update(new)
            self._heard_at = time.monotonic()
            if self._tells_ends:
                self.unheard = set(new)

    def grow_patient(self) -> None:
        """Where nothing has come for some seconds, until the next placing that adds anything."""
        is_quiet = not self._is_patient and time.monotonic() - self._heard_at >= QUIET_S
        if is_quiet and self._placed and not self._aside and not self.unheard and _WAIT not in self._settings:
            self._begin_again(self.ends(), is_patient=True)

    def _replace_lost_client(self) -> None:
        """Raises StopError if the brokers would refuse the next one as well: a login or certificate that is no longer valid."""
        if self._kept_out is not None:
            servers = str(self._settings.get("bootstrap.servers", ""))
            topics = " and ".join(sorted({tp.topic for tp in self._placed}))
            raise StopError(f"reading {topics}: {no_entry(servers, self._kept_out, self._settings)}")
        self._begin_again(self.ends(), is_patient=self._is_patient)

    def _begin_again(self, positions: Mapping[TopicPartition, int], *, is_patient: bool) -> None:
        """A new client in the place of this one, which goes on from these positions, the consumer's own."""
        self._consumer.close()
        self._aside = []
        self._consumer = self._client(_PATIENT_MS if is_patient else _QUICK_MS)
        self._lost_at = self._kept_out = None
        self._is_patient, self._topics, self._placed = is_patient, frozenset(), dict(positions)
        self._consumer.incremental_assign([ClientPartition(tp.topic, tp.partition, at) for tp, at in positions.items()])

    def _ask_for_leaders(self, topics: frozenset[str]) -> None:
        """A consumer at work looks once a second for the leaders of a topic that is new to it: 0.4 to 1 s for a task's first
        record where asking takes less than 0.1 s. A consumer just made asks by itself."""
        if self._topics:
            for topic in sorted(topics - self._topics):
                with contextlib.suppress(KafkaException):
                    self._consumer.list_topics(topic, _LEADERS_LIMIT_S)
        self._topics |= topics

    @property
    def holds_any(self) -> bool:
        return bool(self._placed)

    def drop(self, tp: TopicPartition) -> None:
        """Holds this partition no more."""
        self._ended_at.pop(tp, None)
        if self._placed.pop(tp, None) is not None:
            self._consumer.incremental_unassign([ClientPartition(tp.topic, tp.partition)])
        self._forget([tp])

    def _forget(self, gone: Collection[TopicPartition]) -> None:
        if self._aside:
            self._aside = [m for m in self._aside if TopicPartition(m.topic(), m.partition()) not in gone]

    def set_aside(self) -> bool:
        """Takes what is in the client's queue out for the next read: one that fetches on demand fetches again. True if there is
        any for it."""
        self._aside += self._taken(CHUNK_RECORDS, 0)
        return bool(self._aside)

    def read(self, most: int, timeout_s: float) -> list[FetchedRecord]:
        """Up to ``most`` messages, those set aside first; waits for the first one only."""
        if not self._aside or most <= 0:
            return self._taken(most, timeout_s)
        records, self._aside = self._aside[:most], self._aside[most:]
        return records if self._aside else records + self._taken(most - len(records), 0)

    def _taken(self, most: int, timeout_s: float) -> list[FetchedRecord]:
        if not self._placed or most <= 0:
            return []
        messages = self._consumer.consume(most, 0) if timeout_s <= 0 else self._consumer.consume(1, timeout_s)
        if messages and timeout_s > 0 and most > 1:
            messages += self._consumer.consume(most - 1, 0)
        if messages:
            self._heard_at = time.monotonic()
        if any(m.error() is not None for m in messages):
            records = [m for m in messages if self._is_record(m)]
        else:
            records = cast("list[FetchedRecord]", messages)  # without a call for each
        if records:
            self._has_come()
        elif self._lost_at is not None and not self._aside and time.monotonic() - self._lost_at >= _LOST_S:
            self._replace_lost_client()
        if self.unheard:
            self.unheard.difference_update({(m.topic(), m.partition()) for m in records})
        return records

    def _has_come(self) -> None:
        self._kept_out = None
        if self._lost_at is not None:
            self._lost_at = time.monotonic()

    def _is_record(self, message: Message) -> TypeGuard[FetchedRecord]:
        """True if the message is a record; an event is dealt with, an error that ends reading raised."""
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            tp = _partition_of(message)
            self._ended_at[tp] = _offset_of(message)
            self.unheard.discard(tp)
            self._has_come()
        elif error.code() in _OUT_OF_RANGE:
            self._is_out_of_range(_partition_of(message), message.offset(), error.str())
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topic = message.topic()
            topics = [topic] if topic else sorted({tp.topic for tp in self._placed})
            right = [Right.of(Resource.TOPIC, topic, Operation.READ) for topic in topics]
            raise missing_right("reading", right, self._settings)
        elif error.code() in _DAMAGED:
            raise StopError(
                f"{_partition_of(message)} at offset {_offset_of(message)} can't be read: {error.str()} ({error.name()}). "
                "What the broker has there was damaged: let another replica lead. To go on without it, commit an offset behind "
                "it, or reset the application if the topic is a changelog"
            )
        elif error.fatal():
            raise BatchLostError(f"the consumer failed: {error.str()}")
        return False

    def _is_out_of_range(self, tp: TopicPartition, at: int | None, text: str) -> None:
        """``text``: the client's, which alone says where a log was truncated, and of which position that was found."""
        found = _TRUNCATED.search(text)
        if found is not None:
            at = int(found[1])
        if at is not None and at >= 0 and at != self._fetched_up_to().get(tp):  # of a position that was left since
            return
        self.out_of_range.add(tp)
        self.unheard.discard(tp)
        if "truncation" in text:
            self.truncated[tp] = -1 if found is None else int(found[2])

    def ends(self) -> dict[TopicPartition, int]:
        """Positions of the reads, past the transaction markers that were skipped (rule 3)."""
        ends = self._fetched_up_to()
        for message in reversed(self._aside):
            ends[TopicPartition(message.topic(), message.partition())] = message.offset()
        return ends

    def _fetched_up_to(self) -> dict[TopicPartition, int]:
        """Positions in the client's queue: past what was set aside."""
        if not self._placed:
            return {}
        held = self._consumer.position([ClientPartition(tp.topic, tp.partition) for tp in self._placed])
        positions = {}
        for found in held:
            tp = TopicPartition(found.topic, found.partition)
            positions[tp] = self._placed[tp] if found.offset == OFFSET_INVALID or found.offset < 0 else found.offset
        return positions

    def at_end(self) -> frozenset[TopicPartition]:
        """The partitions of which all that is committed has been read, as of the last fetch.

        It tells the high watermark; where open transactions or their markers stand before that, librdkafka says so once a
        fetch has come back with nothing, up to ``fetch.wait.max.ms`` later.
        """
        high, aside = self.high_watermarks(), {(m.topic(), m.partition()) for m in self._aside}
        ended = (tp for tp, at in self.ends().items() if at >= high.get(tp, at + 1) or at <= self._ended_at.get(tp, -1))
        return frozenset(tp for tp in ended if tp not in aside)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The partitions' ends as of the last fetch; those not known yet are missing."""
        found = {}
        for tp in self._placed:
            try:
                _, high = self._consumer.get_watermark_offsets(ClientPartition(tp.topic, tp.partition), cached=True)
            except KafkaException:
                continue
            if high >= 0:
                found[tp] = high
        return found

    def close(self) -> None:
        self._consumer.close()


def _partition_of(message: Message) -> TopicPartition:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None, "a consumer's message is of a partition"
    return TopicPartition(topic, partition)


def _offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a consumer's message has an offset"
    return offset
