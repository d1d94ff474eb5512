"""Order of a task's inputs by timestamp: the next record is always the oldest one.

Decides when that is known, as Kafka Streams' PartitionGroup and ``max.task.idle.ms`` do. An input that has nothing to take is
waited for as long as its broker has more (0, the default), some time longer than that (above 0), or not at all (-1). Records
that must wait are held back for the next batches: they are not part of a batch, whose ends are where each input was left. So are
records beyond the few that a batch may take after a failure (``max_inputs``). Invariant: within a partition
records keep their order, and none is taken twice or left out.

Leaves to the reader how much is fetched of what. While much is held back, only the inputs that are waited for are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidemill.ids import TopicPartition
from tidemill.steps.source_step import SourceReader
from tidemill.task.batch import BatchRequest
from tidemill.task.raw_records import FetchedRecord

MOST_HELD_RECORDS = 200_000
"""Limit of held records, of all inputs together."""
MOST_HELD_BYTES = 64 << 20
_CHUNK = 10_000
_HELD_WAIT_MS = 100
"""Wait for records while a task waits for those of its other inputs."""
NEVER_IDLE = -1
Messages = Sequence[FetchedRecord]
Group = tuple[int | str, int]
"""A task, by sub-topology and partition; an input whose records wait for no others, by topic and partition."""


class EndingReader(SourceReader, Protocol):
    """A reader that knows when it has read all that there is."""

    def inputs_at_end(self) -> frozenset[TopicPartition]:
        """The inputs that have no more records than those read."""


@dataclass(slots=True)
class AlignedReader:
    """``together``: the sub-topology of each topic whose records must be taken in the order of their times."""

    reader: EndingReader
    together: Mapping[str, int]
    idle_ms: int = 0
    most_held_records: int = MOST_HELD_RECORDS
    most_held_bytes: int = MOST_HELD_BYTES
    """Limit of the values' bytes of held records."""
    _held: dict[TopicPartition, list[FetchedRecord]] = field(default_factory=dict)
    """Records read and not taken yet."""
    _read_to: dict[TopicPartition, int] = field(default_factory=dict)
    """The reader's position in each input of which records are held."""
    _not_read: dict[TopicPartition, int] = field(default_factory=dict)
    """The reader's positions in the inputs that this batch does not read."""
    _left_over: bool = False
    """True if held records could have been taken, but the batch was full."""
    _waits_since: dict[Group, int] = field(default_factory=dict)
    """The wall clock when a task was first seen to have all that its brokers have, but not of every input."""

    def place(self, request: BatchRequest) -> None:
        for tp, messages in list(self._held.items()):
            if request.inputs.get(tp) != messages[0].offset():  # another start: all is read again
                del self._held[tp]
        # As long as its inputs are read: a task that comes back later has not waited since it left.
        groups = {self._group_of(tp) for tp in request.inputs} if self._waits_since else frozenset()
        self._waits_since = {group: since for group, since in self._waits_since.items() if group in groups}
        inputs = {tp: self._read_to[tp] if tp in self._held else at for tp, at in request.inputs.items()}
        held = self._held.values()
        is_full = (
            sum(map(len, held)) >= self.most_held_records
            or sum(sum(map(len, queue)) for queue in held) >= self.most_held_bytes
        )
        self._not_read = {tp: inputs[tp] for tp in self._held} if is_full else {}
        self.reader.place(replace(request, inputs={tp: at for tp, at in inputs.items() if tp not in self._not_read}))

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Messages]]:
        if self._held and self._left_over:
            request = replace(request, wait_ms=0, sources_rest_ms=0, internal_rest_ms=0)
        elif self._held:  # the time that a task waits for its other inputs goes by from batch to batch
            request = replace(request, wait_ms=min(request.wait_ms, _HELD_WAIT_MS))
        queues: dict[Group, dict[TopicPartition, list[FetchedRecord]]] = {}
        is_bounded, ordered = request.max_inputs is not None, self.together
        for tp in sorted(tp for tp in request.inputs if is_bounded or tp.topic in ordered or tp in self._held):
            queues.setdefault(self._group_of(tp), {})[tp] = self._held.pop(tp, [])
        queue_of = {(tp.topic, tp.partition): queue for group in queues.values() for tp, queue in group.items()}
        for restoring, messages in self.reader.read(request):
            rest = messages if restoring or not queues else _sorted_into(queue_of, messages)
            if rest:
                yield restoring, rest
        self._left_over = False
        if queues:
            yield from self._taken_of(queues, request)
            self._hold({tp: queue for group in queues.values() for tp, queue in group.items() if queue})

    def _group_of(self, tp: TopicPartition) -> Group:
        return self.together.get(tp.topic, tp.topic), tp.partition

    def _taken_of(
        self, queues: Mapping[Group, dict[TopicPartition, list[FetchedRecord]]], request: BatchRequest
    ) -> Iterator[tuple[bool, Messages]]:
        """The records that the batch takes of all queues, in their order."""
        ended = self.reader.inputs_at_end()
        most = request.max_records if request.max_inputs is None else min(request.max_records, request.max_inputs)
        for group in _in_turn(queues, request):
            taken = self._taken(group, queues[group], ended, most, request)
            most -= len(taken)
            for at in range(0, len(taken), _CHUNK):
                yield False, taken[at : at + _CHUNK]

    def _hold(self, left: dict[TopicPartition, list[FetchedRecord]]) -> None:
        positions = {**self.reader.ends()[0], **self._not_read}
        self._read_to = {tp: positions[tp] for tp in left}
        self._held = left

    def _taken(
        self, group: Group, inputs: dict[TopicPartition, list[FetchedRecord]], ended: frozenset[TopicPartition], most: int,
        request: BatchRequest,
    ) -> list[FetchedRecord]:  # fmt: skip
        """Takes from the queues the records that a task may have, at most ``most``."""
        sizes = [len(queue) for queue in inputs.values()]
        if not any(sizes):
            return []
        if all(sizes):
            self._waits_since.pop(group, None)
        # An input that is not at its end may still bring a record that is older than those at hand of the others, so no record
        # behind its last one is known to be next. Of an empty one that last one has the place -1: nothing can be taken.
        lacking = [number for number, tp in enumerate(inputs) if tp not in ended]
        if self.idle_ms == NEVER_IDLE:
            lacking = []
        elif not lacking and self.idle_ms and (all(sizes) or not self._has_waited(group, request.now_ms)):
            lacking = list(range(len(sizes)))  # at their ends, but more may come within the time to wait
        order, last = _merged(list(inputs.values()))
        count = min([len(order), *(last[number] + 1 for number in lacking)])
        if request.until:
            count = min(count, _before(order, inputs, request.until))
        if count > most:
            count, self._left_over = most, True
        # Records of one queue are taken in its order, so those taken of it are its first: they are counted by the bounds of the
        # queues among the numbers taken, and cut off at once.
        messages = [message for queue in inputs.values() for message in queue]
        taken = [messages[at] for at in order[:count].tolist()]
        begins = np.concatenate(([0], np.cumsum(sizes)))
        of_each = np.searchsorted(np.sort(order[:count]), begins)
        for number, queue in enumerate(inputs.values()):
            del queue[: int(of_each[number + 1] - of_each[number])]
        return taken

    def _has_waited(self, group: Group, now_ms: int) -> bool:
        """True if a task that has read its other inputs to their ends may continue without those that are empty."""
        since = min(self._waits_since.get(group, now_ms), now_ms)  # a clock that is set back starts the wait again
        self._waits_since[group] = since
        return now_ms - since >= self.idle_ms

    # --- positions -------------------------------------------------------------------------------------------------

    def ends(self) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        inputs, changelogs = self.reader.ends()
        return {**inputs, **self._not_read, **{tp: messages[0].offset() for tp, messages in self._held.items()}}, changelogs

    def global_ends(self) -> Mapping[TopicPartition, int]:
        return self.reader.global_ends()

    def out_of_range(self) -> tuple[TopicPartition, ...]:
        return self.reader.out_of_range()

    def truncated(self) -> Mapping[TopicPartition, int]:
        return self.reader.truncated()

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        return self.reader.high_watermarks()

    @property
    def is_full(self) -> bool:
        return self.reader.is_full

    @property
    def has_read_sources(self) -> bool:
        return self.reader.has_read_sources


def _in_turn(queues: Iterable[Group], request: BatchRequest) -> Sequence[Group]:
    """The order in which tasks get their share of a batch. Where it is small, repartition topics go first, and of the others
    another one each time, unless one of the very records that come next is looked for."""
    groups = list(queues)
    if request.max_inputs is None or request.until:
        return groups
    first = request.batch_id % len(groups)
    turned = groups[first:] + groups[:first]
    return sorted(turned, key=lambda group: group[0] not in request.internal)


def _before(
    order: npt.NDArray[np.intp], inputs: Mapping[TopicPartition, list[FetchedRecord]], until: Mapping[TopicPartition, int]
) -> int:
    """The number of records, in the order of taking, before the first one behind its input's end."""
    behind = [message.offset() >= until.get(tp, 0) for tp, queue in inputs.items() for message in queue]
    found = np.flatnonzero(np.array(behind)[order])
    return int(found[0]) if len(found) else len(order)


def by_time(messages: Messages, together: Mapping[str, int]) -> Messages:
    """Messages of one partition of each topic, those of a task in the order of taking; of equal times, as the topics came."""
    taken, places = list(messages), dict[int, list[int]]()
    for at, message in enumerate(messages):
        if message.topic() in together:
            places.setdefault(together[message.topic()], []).append(at)
    for own in places.values():
        queues: dict[str, list[FetchedRecord]] = {}
        for at in own:
            queues.setdefault(messages[at].topic(), []).append(messages[at])
        order, _ = _merged(list(queues.values()))
        mine = [message for queue in queues.values() for message in queue]
        for at, number in zip(own, order.tolist(), strict=True):
            taken[at] = mine[number]
    return taken


def _sorted_into(queue_of: Mapping[tuple[str, int], list[FetchedRecord]], messages: Messages) -> list[FetchedRecord]:
    """Puts each message into its queue; gives those that belong to none."""
    rest: list[FetchedRecord] = []
    for message in messages:
        queue = queue_of.get((message.topic(), message.partition()))
        (rest if queue is None else queue).append(message)
    return rest


def _merged(queues: Sequence[Messages]) -> tuple[npt.NDArray[np.intp], list[int]]:
    """(the numbers of all messages, counted queue after queue, in the order of taking; the place in it of each queue's last one).

    The next record is that with the least timestamp among the heads of the queues; of equals the first queue's. A record behind a
    later one of its queue is taken right after that one. So the order is that of the running maximum of each queue's timestamps.
    """
    keys = [np.maximum.accumulate(np.array([m.timestamp()[1] for m in queue], np.int64)) for queue in queues]
    order = np.argsort(np.concatenate(keys), kind="stable")
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    last, end = [], 0
    for queue in queues:
        end += len(queue)
        last.append(int(place[end - 1]) if queue else -1)
    return order, last
