"""The order in which a task takes records of its several inputs: always the input whose next record is the oldest.

Decides, as Kafka Streams' PartitionGroup and ``max.task.idle.ms`` do, when that is known: an input that has nothing to take is
waited for as long as its broker has more (0, the default), some time longer than that (above 0), or not at all (-1). What must
wait is held back for the next batches: it is not part of a batch, whose ends are where each input was left. Invariant: within
a partition records keep their order, and none is taken twice or left out.

Leaves to the reader how much is fetched of what. While much is held back, only the inputs that are waited for are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidemill.ids import TopicPartition
from tidemill.spark.source_step import SourceReader
from tidemill.task.batch import BatchRequest

MUCH = 200_000
"""Records of all inputs together."""
_CHUNK = 10_000
NEVER_IDLE = -1
Messages = Sequence[Any]
Group = tuple[int, int]
"""A task: sub-topology and partition."""


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
    much: int = MUCH
    _held: dict[TopicPartition, list[Any]] = field(default_factory=dict)
    """What was read and not taken yet."""
    _read_to: dict[TopicPartition, int] = field(default_factory=dict)
    """Of each input that something is held of: where reading stands."""
    _not_read: dict[TopicPartition, int] = field(default_factory=dict)
    """Inputs that this batch does not read, and where reading stands there."""
    _left_over: bool = False
    """What is held could have been taken, but the batch was full."""
    _waits_since: dict[Group, int] = field(default_factory=dict)
    """The wall clock when a task was first seen to have all that its brokers have, but not of every input."""

    def place(self, request: BatchRequest) -> None:
        for tp, messages in list(self._held.items()):
            if request.inputs.get(tp) != messages[0].offset():  # another start: all is read anew
                del self._held[tp]
        inputs = {tp: self._read_to[tp] if tp in self._held else at for tp, at in request.inputs.items()}
        is_much = sum(map(len, self._held.values())) >= self.much
        self._not_read = {tp: inputs[tp] for tp in self._held} if is_much else {}
        self.reader.place(replace(request, inputs={tp: at for tp, at in inputs.items() if tp not in self._not_read}))

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Messages]]:
        if self._held and self._left_over:
            request = replace(request, wait_ms=0)
        queues: dict[Group, dict[TopicPartition, list[Any]]] = {}
        for tp in sorted(tp for tp in request.inputs if tp.topic in self.together):
            queues.setdefault((self.together[tp.topic], tp.partition), {})[tp] = self._held.pop(tp, [])
        queue_of = {(tp.topic, tp.partition): queue for group in queues.values() for tp, queue in group.items()}
        for restoring, messages in self.reader.read(request):
            rest = messages if restoring else _sorted_into(queue_of, messages)
            if rest:
                yield restoring, rest
        ended, most = self.reader.inputs_at_end(), request.max_records
        self._left_over = False
        for group, inputs in queues.items():
            taken = self._taken(group, inputs, ended, most, request.now_ms)
            most -= len(taken)
            for at in range(0, len(taken), _CHUNK):
                yield False, taken[at : at + _CHUNK]
        self._hold({tp: queue for group in queues.values() for tp, queue in group.items() if queue})

    def _hold(self, left: dict[TopicPartition, list[Any]]) -> None:
        stands = {**self.reader.ends()[0], **self._not_read}
        self._read_to = {tp: stands[tp] for tp in left}
        self._held = left

    def _taken(
        self, group: Group, inputs: dict[TopicPartition, list[Any]], ended: frozenset[TopicPartition], most: int, now_ms: int
    ) -> list[Any]:
        """Takes from the queues what a task may have, at most so many."""
        sizes = [len(queue) for queue in inputs.values()]
        if not any(sizes):
            return []
        if all(sizes):
            self._waits_since.pop(group, None)
        lacking = [number for number, tp in enumerate(inputs) if tp not in ended]
        if self.idle_ms == NEVER_IDLE:
            lacking = []
        elif not lacking and self.idle_ms and (all(sizes) or not self._has_waited(group, now_ms)):
            lacking = list(range(len(sizes)))
        order, last = _merged(list(inputs.values()))
        count = min([len(order), *(last[number] + 1 for number in lacking)])
        if count > most:
            count, self._left_over = most, True
        messages = [message for queue in inputs.values() for message in queue]
        taken = [messages[at] for at in order[:count].tolist()]
        begins = np.concatenate(([0], np.cumsum(sizes)))
        of_each = np.searchsorted(np.sort(order[:count]), begins)
        for number, queue in enumerate(inputs.values()):
            del queue[: int(of_each[number + 1] - of_each[number])]
        return taken

    def _has_waited(self, group: Group, now_ms: int) -> bool:
        """Whether a task that has all that there is may go on without the inputs that have nothing."""
        return now_ms - self._waits_since.setdefault(group, now_ms) >= self.idle_ms

    # --- where reading stands --------------------------------------------------------------------------------------

    def ends(self) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        inputs, changelogs = self.reader.ends()
        return {**inputs, **self._not_read, **{tp: messages[0].offset() for tp, messages in self._held.items()}}, changelogs

    def global_ends(self) -> Mapping[TopicPartition, int]:
        return self.reader.global_ends()

    def out_of_range(self) -> tuple[TopicPartition, ...]:
        return self.reader.out_of_range()

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        return self.reader.high_watermarks()


def _sorted_into(queue_of: Mapping[tuple[str, int], list[Any]], messages: Messages) -> list[Any]:
    """Puts each message into its queue; gives those that belong to none."""
    rest: list[Any] = []
    for message in messages:
        queue = queue_of.get((message.topic(), message.partition()))
        (rest if queue is None else queue).append(message)
    return rest


def _merged(queues: Sequence[Messages]) -> tuple[npt.NDArray[np.intp], list[int]]:
    """(the numbers of all messages, queue after queue, in the order of taking; where in it each queue's last one stands).

    What a partition has sent before a record can't be older than the oldest that the record has waited for: a running maximum of
    timestamps puts the records of all partitions into the order of their heads at once; of equals the first queue's go first.
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
