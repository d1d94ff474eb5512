"""The consumers of a stream thread: what the source step reads from, kept from batch to batch.

Decides how much is read of what and in which order: repartition topics before sources, changelogs within bounded shares of
their own, one for tasks that are being restored and one for standbys (correctness.md, rule 24).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence

from tidemill.config.values import DataClientSettings
from tidemill.ids import TopicPartition
from tidemill.kafka.data.partition_consumer import CHUNK_RECORDS, PartitionConsumer
from tidemill.task.batch import BatchRequest
from tidemill.task.raw_records import FetchedRecord

READ_LIMIT_S = 1.0
"""A batch closes when reading has taken this long even while more is arriving; the time that Spark works on it does not count."""
_WAIT_SLICE_S = 0.005
_IDLE_SLICE_S = 0.025
"""Of a wait on one consumer, or of one that is longer than ``_IDLE_AFTER_S``: so much later a record of one consumer may be seen
while another is asked."""
_IDLE_AFTER_S = 0.1
_STANDBY_DELAY_S = 0.1
"""Longest time that a standby's records wait for more, in seconds."""
_WORTH_ANOTHER_LOOK = 1_000
"""Records of one round from which on more has probably come meanwhile; a chunk of few records costs as much as one of many."""
_WATERMARK_INTERVAL_S = 1.0
FIRST_FETCH_LIMIT_S = 0.15
"""So long a batch waits to hear of each partition that it is the first to read: the fetch under way, which is without it, and
the one after that may each take ``fetch.wait.max.ms``."""

_ASIDE_BEFORE_S = (0.02, 0.012, 0.004)
"""Before the rest of source topics ends: when what was fetched of them is set aside. A fetch takes 1 to 3 ms, or ten when busy;
of the last one, at least what the one before has brought is there in time."""
_FETCH_LIMIT_S = 0.01
"""So long a batch that reads a backlog on demand waits for the fetch under way."""

_GLOBAL, _CHANGELOG, _STANDBY, _INTERNAL, _SOURCE = "global", "changelog", "standby", "internal", "source"
_KINDS = (_GLOBAL, _CHANGELOG, _STANDBY, _INTERNAL, _SOURCE)
_INPUTS = (_INTERNAL, _SOURCE)
_RESTORED = (_CHANGELOG, _STANDBY)
_TELL_ENDS = (_CHANGELOG, *_INPUTS)
_SMALL_PREFETCH = {"queued.min.messages": 20_000, "queued.max.messages.kbytes": 16_384}
_ON_DEMAND = {"queued.min.messages": 1}
"""The client fetches when its queue is empty, of all partitions at once."""


class ThreadReader:
    """All that a stream thread reads: sources, repartition topics and changelogs, a consumer for each kind. ``hurried``: set by
    a part that needs the stream thread; the wait under way, or the next one, ends then with what is there.
    ``fetches_on_demand``: source topics are fetched when they are about to be read; else all the time, hundreds of times a second
    while a few records a millisecond come in (ADR 10). ``needs_ends``: that an input has no more records must be known soon."""

    def __init__(
        self,
        settings: DataClientSettings,
        hurried: threading.Event | None = None,
        *,
        fetches_on_demand: bool = False,
        needs_ends: bool = False,
    ) -> None:
        self._settings = settings
        self._patient = (_GLOBAL, _STANDBY) if needs_ends else (_GLOBAL, _STANDBY, *_INPUTS)
        self._prefetch: Mapping[str, DataClientSettings] = {_STANDBY: _SMALL_PREFETCH}
        if fetches_on_demand:
            self._prefetch = {**self._prefetch, _SOURCE: _ON_DEMAND}
        self._hurried = hurried or threading.Event()
        self._consumers: dict[str, PartitionConsumer] = {}
        self._watermarks_at = 0.0
        self._limits: Mapping[TopicPartition, int] = {}
        self._at_limit: dict[TopicPartition, int] = {}
        self.is_full = False
        """The last read ended because it had as many bytes as a batch may."""
        self.has_read_sources = False

    def place(self, request: BatchRequest) -> None:
        wanted: dict[str, dict[TopicPartition, int]] = {kind: {} for kind in _KINDS}
        wanted[_GLOBAL].update(request.globals)
        wanted[_CHANGELOG].update(request.changelogs)
        wanted[_STANDBY].update(request.standbys)
        for tp, position in request.inputs.items():
            wanted[_INTERNAL if tp.topic in request.internal else _SOURCE][tp] = position
        for kind, positions in wanted.items():
            if positions and kind not in self._consumers:
                settings = {**self._prefetch.get(kind, {}), **self._settings}
                self._consumers[kind] = PartitionConsumer(settings, tells_ends=kind in _TELL_ENDS)
            if kind in self._consumers:
                self._consumers[kind].place(positions)
        self._limits, self._at_limit = request.limits, {}

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[FetchedRecord]]]:
        """Each kind until its share is used up, all together have ``max_bytes`` of values and more, or nothing more is there, and
        each partition that is new has been heard of.
        Standbys alone don't end the wait for inputs at once: their records are taken as they come, and the batch is closed a
        moment later (``_STANDBY_DELAY_S``), or when their share is full."""
        left = dict.fromkeys(_INPUTS, request.max_records)
        left |= {_CHANGELOG: request.max_restore_records, _STANDBY: request.max_standby_records}
        left[_GLOBAL] = request.max_restore_records
        for kind in self._patient:
            if kind in self._consumers:
                self._consumers[kind].grow_patient()
        # Times, not Deadlines: they move each other, and a round compares them all with one reading of the clock.
        began = now = time.monotonic()
        idle_until = began + request.wait_ms / 1e3
        closes_at = max(began + READ_LIMIT_S, idle_until)
        heard_until = began + FIRST_FETCH_LIMIT_S
        rests_until = {_SOURCE: began + request.sources_rest_ms / 1e3, _INTERNAL: began + request.internal_rest_ms / 1e3}
        aside_at: list[float] = []
        if _SOURCE in self._prefetch and _SOURCE in self._consumers:
            is_late = request.sources_rest_ms / 1e3 < _ASIDE_BEFORE_S[-1]
            if self._consumers[_SOURCE].set_aside() and is_late:
                # What is queued may be as old as the last batch. What a fetch brings now belongs to this one, which reads both.
                time.sleep(_ASIDE_BEFORE_S[-1])
                now = time.monotonic()
            aside_at = [at for at in (rests_until[_SOURCE] - before_s for before_s in _ASIDE_BEFORE_S) if at > began]
        found = self.is_full = self.has_read_sources = False
        bytes_left = request.max_bytes
        while self._consumers and now < closes_at:
            is_hurried = self._hurried.is_set()
            if is_hurried:
                self._hurried.clear()
                rests_until = dict.fromkeys(rests_until, began)
            kinds = [kind for kind in _KINDS if kind in self._consumers and now >= rests_until.get(kind, now)]
            self.has_read_sources |= now >= rests_until[_SOURCE]
            if aside_at and now >= aside_at[0]:
                aside_at = [at for at in aside_at if at > now]
                if _SOURCE not in kinds:
                    self._consumers[_SOURCE].set_aside()
            got = 0
            for kind in kinds:
                messages = self._consumers[kind].read(min(left[kind], CHUNK_RECORDS), self._patience_s(kind, request, left))
                if messages:
                    bytes_left -= sum(map(len, messages))
                    handed_over = time.monotonic()
                    yield from self._handed_over(kind, messages)
                    closes_at += time.monotonic() - handed_over
                    left[kind] -= len(messages)
                    got += len(messages)
                    found = found or kind != _STANDBY
                    if kind == _STANDBY:
                        idle_until = min(idle_until, time.monotonic() + _STANDBY_DELAY_S)
            if bytes_left <= 0:  # each kind has had a chunk of what was fetched
                self.is_full = True
                return
            now = time.monotonic()
            is_full = any(left[kind] <= 0 for kind in _INPUTS)
            if got >= _WORTH_ANOTHER_LOOK and not is_full and any(left[kind] > 0 for kind in kinds):
                continue
            if is_full or left[_STANDBY] <= 0 or is_hurried:
                return
            if (found or now >= idle_until) and (now >= heard_until or not self._is_one_unheard(kinds, left)):
                return
            until = min([at for at in (idle_until, heard_until, *aside_at, *rests_until.values()) if at > now], default=closes_at)
            waiting = [kind for kind in kinds if self._consumers[kind].holds_any and left[kind] > 0]
            is_brief = len(waiting) > 1 and now - began < _IDLE_AFTER_S
            slice_s = min(_WAIT_SLICE_S if is_brief else _IDLE_SLICE_S, until - now)
            came = yield from self._wait(waiting, left, slice_s)
            found = found or came not in (None, _STANDBY)
            if came == _STANDBY:
                idle_until = min(idle_until, time.monotonic() + _STANDBY_DELAY_S)
            now = time.monotonic()

    def _patience_s(self, kind: str, request: BatchRequest, left: Mapping[str, int]) -> float:
        """While a backlog is read on demand the next fetch is waited for: what is queued is one fetch, not all that there is."""
        is_on_demand = kind == _SOURCE and kind in self._prefetch
        return _FETCH_LIMIT_S if is_on_demand and request.max_records - left[kind] >= _WORTH_ANOTHER_LOOK else 0

    def _is_one_unheard(self, kinds: Sequence[str], left: Mapping[str, int]) -> bool:
        """True if a partition that the last placing has added has not been heard of and may still be read in this batch."""
        return any(self._consumers[kind].unheard and left[kind] > 0 for kind in kinds)

    def _wait(
        self, kinds: Sequence[str], left: dict[str, int], slice_s: float
    ) -> Generator[tuple[bool, Sequence[FetchedRecord]], None, str | None]:
        """One short wait on each consumer in turn, until something comes of one; gives its kind."""
        if not kinds:
            time.sleep(slice_s)
        for kind in kinds:
            messages = self._consumers[kind].read(min(left[kind], CHUNK_RECORDS), slice_s)
            if messages:
                yield from self._handed_over(kind, messages)
                left[kind] -= len(messages)
                return kind
        return None

    def _handed_over(self, kind: str, messages: list[FetchedRecord]) -> Iterator[tuple[bool, Sequence[FetchedRecord]]]:
        if kind in _RESTORED and self._limits:
            messages = self._within_limits(kind, messages)
        if messages:
            yield kind in _RESTORED, messages

    def _within_limits(self, kind: str, messages: list[FetchedRecord]) -> list[FetchedRecord]:
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
        inputs: dict[TopicPartition, int] = {}
        changelogs: dict[TopicPartition, int] = dict(self._at_limit)
        for kind, consumer in self._consumers.items():
            if kind == _GLOBAL:
                continue
            (inputs if kind in _INPUTS else changelogs).update(consumer.ends())
        return inputs, {tp: min(at, self._limits.get(tp, at)) for tp, at in changelogs.items()}

    def inputs_at_end(self) -> frozenset[TopicPartition]:
        """The inputs that have no more records than those read, as far as the broker has said."""
        return frozenset().union(*(self._consumers[kind].at_end() for kind in _INPUTS if kind in self._consumers))

    def global_ends(self) -> dict[TopicPartition, int]:
        return self._consumers[_GLOBAL].ends() if _GLOBAL in self._consumers else {}

    def out_of_range(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(tp for consumer in self._consumers.values() for tp in consumer.out_of_range))

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
