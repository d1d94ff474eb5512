"""The consumers of a stream thread: what the source step reads from, kept from batch to batch.

Decides how much is read of what and in which order: repartition topics before sources, changelogs within bounded shares of
their own, one for tasks that are being restored and one for standbys (correctness.md, rule 24).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

from tidemill.config.values import DataClientSettings
from tidemill.ids import TopicPartition
from tidemill.kafka.data.partition_consumer import CHUNK_RECORDS, PartitionConsumer
from tidemill.kafka.data.read_times import ASIDE_BEFORE_S, ReadKind, ReadTimes
from tidemill.task.batch import BatchRequest
from tidemill.task.raw_records import FetchedRecord

_WORTH_ANOTHER_LOOK = 1_000
"""Records of one round from which on more has probably come meanwhile; a chunk of few records costs as much as one of many."""
_WATERMARK_INTERVAL_S = 1.0
_FETCH_LIMIT_S = 0.01
"""Time that a batch which reads a backlog on demand waits for the fetch under way."""

_INPUTS = (ReadKind.INTERNAL, ReadKind.SOURCE)
_RESTORED = (ReadKind.CHANGELOG, ReadKind.STANDBY)
_TELL_ENDS = (ReadKind.CHANGELOG, *_INPUTS)
_SMALL_PREFETCH = {"queued.min.messages": 20_000, "queued.max.messages.kbytes": 16_384}
_ON_DEMAND = {"queued.min.messages": 1}
"""The client fetches when its queue is empty, of all partitions at once."""


class _Shares:
    """How much a batch may still read: of each kind in records, and of all together in bytes of values.

    Of restored records a quarter of those bytes: the JVM has them in one Arrow batch, being packed, and the last step copies them
    all several times. With records of 2 kB two threads took 1.7 GiB so, instead of 2.2.
    """

    def __init__(self, request: BatchRequest) -> None:
        self.records = dict.fromkeys(_INPUTS, request.max_records)
        self.records |= dict.fromkeys((ReadKind.GLOBAL, ReadKind.CHANGELOG), request.max_restore_records)
        self.records[ReadKind.STANDBY] = request.max_standby_records
        self._bytes = request.max_bytes
        self._restored_bytes = request.max_bytes // 4

    def take(self, kind: ReadKind, messages: Sequence[FetchedRecord]) -> None:
        size = sum(map(len, messages))
        self.records[kind] -= len(messages)
        self._bytes -= size
        if kind in _RESTORED:
            self._restored_bytes -= size

    def chunk(self, kind: ReadKind) -> int:
        """Records that are asked for at once."""
        return min(self.records[kind], CHUNK_RECORDS)

    def are_open(self, kinds: Iterable[ReadKind]) -> bool:
        """True if one of these kinds may still be read."""
        return any(self.records[kind] > 0 for kind in kinds)

    @property
    def is_full(self) -> bool:
        """True if the batch has as many bytes as it may."""
        return self._bytes <= 0

    @property
    def is_restored_full(self) -> bool:
        return self._restored_bytes <= 0

    @property
    def is_input_full(self) -> bool:
        return any(self.records[kind] <= 0 for kind in _INPUTS)


class ThreadReader:
    """All that a stream thread reads: sources, repartition topics and changelogs, a consumer for each kind. ``hurried``: set by
    a part that needs the stream thread; the wait under way, or the next one, ends then with what is there.
    ``needs_ends``: that an input has no more records must be known soon. Source topics are then fetched all the time, hundreds of
    times a second while a few records a millisecond come in; else when they are about to be read (ADR 10)."""

    def __init__(
        self,
        settings: DataClientSettings,
        hurried: threading.Event | None = None,
        *,
        needs_ends: bool = False,
    ) -> None:
        self._settings = settings
        self._patient = (ReadKind.GLOBAL, ReadKind.STANDBY) if needs_ends else (ReadKind.GLOBAL, ReadKind.STANDBY, *_INPUTS)
        self._prefetch: Mapping[ReadKind, DataClientSettings] = {ReadKind.STANDBY: _SMALL_PREFETCH}
        if not needs_ends:
            self._prefetch = {**self._prefetch, ReadKind.SOURCE: _ON_DEMAND}
        self._hurried = hurried or threading.Event()
        self._consumers: dict[ReadKind, PartitionConsumer] = {}
        self._watermarks_at = 0.0
        self._limits: Mapping[TopicPartition, int] = {}
        self._at_limit: dict[TopicPartition, int] = {}
        self._created_again = 0
        self.is_full = False
        """The last read ended because it had as many bytes as a batch may."""
        self.has_read_sources = False

    def place(self, request: BatchRequest) -> None:
        """Holds exactly the request's partitions, at its positions, each with the consumer of its kind."""
        if request.created_again != self._created_again:
            self.close()
            self._created_again = request.created_again
        wanted: dict[ReadKind, dict[TopicPartition, int]] = {kind: {} for kind in ReadKind}
        wanted[ReadKind.GLOBAL].update(request.globals)
        wanted[ReadKind.CHANGELOG].update(request.changelogs)
        wanted[ReadKind.STANDBY].update(request.standbys)
        for tp, position in request.inputs.items():
            wanted[ReadKind.INTERNAL if tp.topic in request.internal else ReadKind.SOURCE][tp] = position
        for kind, positions in wanted.items():
            if positions and kind not in self._consumers:
                settings = {**self._prefetch.get(kind, {}), **self._settings}
                self._consumers[kind] = PartitionConsumer(settings, tells_ends=kind in _TELL_ENDS)
            if kind in self._consumers:
                self._consumers[kind].place(positions)
        self._limits, self._at_limit = request.limits, {}

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[FetchedRecord]]]:
        """Chunks of records, each of one kind; True for those of changelogs.

        A kind is read until its share is used up, until all kinds together have ``max_bytes`` of values, or until nothing more is
        there and each new partition has answered or had its time. Standbys alone don't end the wait for inputs at once: their
        records are taken as they come, and the batch is closed a moment later, or when their share is full.
        """
        for kind in self._patient:
            if kind in self._consumers:
                self._consumers[kind].grow_patient()
        shares, times = _Shares(request), ReadTimes.of(request, time.monotonic())
        self._set_aside_first(times)
        self.is_full = self.has_read_sources = False
        now = time.monotonic()
        while self._consumers and now < times.closes_at:
            is_hurried = self._hurried.is_set()
            if is_hurried:
                self._hurried.clear()
                times.hurry()
            self.has_read_sources |= not times.rests(ReadKind.SOURCE, now)
            kinds = [kind for kind in ReadKind if kind in self._consumers and not times.rests(kind, now)]
            if times.takes_aside(now) and ReadKind.SOURCE not in kinds:
                self._consumers[ReadKind.SOURCE].set_aside()
            got = 0
            for kind in kinds:
                got += yield from self._chunk(kind, self._patience_s(kind, request, shares), shares, times)
            if shares.is_full or shares.is_restored_full:  # each kind has had a chunk of what was fetched
                self.is_full = shares.is_full
                return
            now = time.monotonic()
            if got >= _WORTH_ANOTHER_LOOK and not shares.is_input_full and shares.are_open(kinds):
                continue
            if shares.is_input_full or not shares.are_open((ReadKind.STANDBY,)) or is_hurried:
                return
            if times.is_idle(now) and not (now < times.hears_until and self._is_one_unheard(kinds, shares)):
                return
            yield from self._wait([kind for kind in kinds if self._consumers[kind].holds_any], shares, times, now)
            now = time.monotonic()

    def _set_aside_first(self, times: ReadTimes) -> None:
        """Source topics that are fetched on demand: what is queued may be as old as the last batch."""
        sources = self._consumers.get(ReadKind.SOURCE) if ReadKind.SOURCE in self._prefetch else None
        if sources is None:
            return
        times.set_aside_before_rest_ends()
        if sources.set_aside() and not times.aside_at:
            # What a fetch brings now belongs to this batch, which reads both.
            time.sleep(ASIDE_BEFORE_S[-1])

    def _chunk(
        self, kind: ReadKind, wait_s: float, shares: _Shares, times: ReadTimes
    ) -> Generator[tuple[bool, Sequence[FetchedRecord]], None, int]:
        """Hands over what is there of a kind, or comes within ``wait_s``; gives how many records it were."""
        messages = self._consumers[kind].read(shares.chunk(kind), wait_s)
        if messages:
            fetched_at = time.monotonic()
            yield from self._handed_over(kind, messages)
            shares.take(kind, messages)
            times.came(kind, fetched_at, time.monotonic())
        return len(messages)

    def _patience_s(self, kind: ReadKind, request: BatchRequest, shares: _Shares) -> float:
        """While a backlog is read on demand the next fetch is waited for: what is queued is one fetch, not all that there is."""
        is_on_demand = kind is ReadKind.SOURCE and kind in self._prefetch
        return _FETCH_LIMIT_S if is_on_demand and request.max_records - shares.records[kind] >= _WORTH_ANOTHER_LOOK else 0

    def _is_one_unheard(self, kinds: Sequence[ReadKind], shares: _Shares) -> bool:
        """True if a partition that the last placing has added has not been heard of and may still be read in this batch."""
        return shares.are_open(kind for kind in kinds if self._consumers[kind].unheard)

    def _wait(
        self, kinds: Sequence[ReadKind], shares: _Shares, times: ReadTimes, now: float
    ) -> Iterator[tuple[bool, Sequence[FetchedRecord]]]:
        """One short wait on each consumer that may still be read in turn, until something comes of one."""
        waiting = [kind for kind in kinds if shares.are_open((kind,))]
        slice_s = times.slice_s(now, len(waiting))
        if not waiting:
            time.sleep(slice_s)
        for kind in waiting:
            if (yield from self._chunk(kind, slice_s, shares, times)):
                return

    def _handed_over(self, kind: ReadKind, messages: list[FetchedRecord]) -> Iterator[tuple[bool, Sequence[FetchedRecord]]]:
        if kind in _RESTORED and self._limits:
            messages = self._within_limits(kind, messages)
        if messages:
            yield kind in _RESTORED, messages

    def _within_limits(self, kind: ReadKind, messages: list[FetchedRecord]) -> list[FetchedRecord]:
        """Without what is not to be taken yet; a partition at its limit is not read on in this batch."""
        kept = []
        for message in messages:
            tp = TopicPartition(message.topic(), message.partition())
            limit = self._limits.get(tp)
            if limit is None or message.offset() < limit:
                kept.append(message)
            elif tp not in self._at_limit:
                self._at_limit[tp] = limit
                self._consumers[kind].drop(tp)
        return kept

    def ends(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Positions behind what was read, of inputs and of changelogs; of a changelog no further than its limit. Global topics
        are not among them: they belong to no task."""
        inputs: dict[TopicPartition, int] = {}
        changelogs: dict[TopicPartition, int] = dict(self._at_limit)
        for kind, consumer in self._consumers.items():
            if kind == ReadKind.GLOBAL:
                continue
            (inputs if kind in _INPUTS else changelogs).update(consumer.ends())
        return inputs, {tp: min(at, self._limits.get(tp, at)) for tp, at in changelogs.items()}

    def inputs_at_end(self) -> frozenset[TopicPartition]:
        """The inputs that have no more records than those read, as far as the broker has said."""
        return frozenset().union(*(self._consumers[kind].at_end() for kind in _INPUTS if kind in self._consumers))

    def global_ends(self) -> dict[TopicPartition, int]:
        """Positions behind what was read of global topics."""
        return self._consumers[ReadKind.GLOBAL].ends() if ReadKind.GLOBAL in self._consumers else {}

    def out_of_range(self) -> tuple[TopicPartition, ...]:
        """Partitions whose position the broker doesn't have: read no further until the next placing."""
        return tuple(sorted(tp for consumer in self._consumers.values() for tp in consumer.out_of_range))

    def truncated(self) -> dict[TopicPartition, int]:
        """Those of them of which a leader has lost the end: up to where its records are those that were read, -1 if unknown."""
        return {tp: at for consumer in self._consumers.values() for tp, at in consumer.truncated.items()}

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Once a second; in between nothing."""
        now = time.monotonic()
        if now - self._watermarks_at < _WATERMARK_INTERVAL_S:
            return {}
        self._watermarks_at = now
        return {tp: high for consumer in self._consumers.values() for tp, high in consumer.high_watermarks().items()}

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
