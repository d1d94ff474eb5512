"""A reader over lists of timestamps in place of topics; how much a read gets is a subclass's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemill.ids import TopicPartition
from tidemill.task.batch import BatchRequest


@dataclass
class LogReader:
    logs: Mapping[TopicPartition, Sequence[int]]
    """Timestamps of the records that there are."""
    placed: dict[TopicPartition, int] = field(default_factory=dict)
    is_full: bool = False
    has_read_sources: bool = True

    def place(self, request: BatchRequest) -> None:
        self.placed = dict(request.inputs)

    def ends(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        return dict(self.placed), {}

    def inputs_at_end(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, at in self.placed.items() if at == len(self.logs[tp]))

    def global_ends(self) -> dict[TopicPartition, int]:
        return {}

    def truncated(self) -> dict[TopicPartition, int]:
        return {}

    def out_of_range(self) -> tuple[TopicPartition, ...]:
        return ()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {}
