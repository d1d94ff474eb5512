"""A listener that keeps what it is told, for tests of restoring."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.ids import TaskId, TopicPartition
from tidemill.task.progress import SuspendReason


class RestoreNotes:
    """Of active tasks: by partition of the changelog. ``at_batch`` is called at each restored batch."""

    def __init__(self, at_batch: Callable[[], None] = lambda: None) -> None:
        self.started: dict[int, tuple[int, int]] = {}
        self.batches: dict[int, list[tuple[int, int]]] = {}
        self.ended: dict[int, int] = {}
        self.suspended: list[int] = []
        self._at_batch = at_batch

    def on_restore_start(
        self, topic_partition: TopicPartition, store_name: str, starting_offset: int, ending_offset: int
    ) -> None:
        self.started[topic_partition.partition] = (starting_offset, ending_offset)

    def on_batch_restored(
        self, topic_partition: TopicPartition, store_name: str, batch_end_offset: int, num_restored: int
    ) -> None:
        self.batches.setdefault(topic_partition.partition, []).append((batch_end_offset, num_restored))
        self._at_batch()

    def on_restore_end(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        self.ended[topic_partition.partition] = total_restored

    def on_restore_suspended(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        self.suspended.append(topic_partition.partition)


class StandbyNotes:
    """Of standbys and warm-ups."""

    def __init__(self) -> None:
        self.started: dict[int, int] = {}
        self.loaded: dict[int, int] = {}
        self.suspended: dict[int, SuspendReason] = {}

    def on_update_start(self, topic_partition: TopicPartition, store_name: str, starting_offset: int) -> None:
        self.started[topic_partition.partition] = starting_offset

    def on_batch_loaded(
        self,
        topic_partition: TopicPartition,
        store_name: str,
        task_id: TaskId,
        batch_end_offset: int,
        batch_size: int,
        current_end_offset: int,
    ) -> None:
        self.loaded[topic_partition.partition] = self.loaded.get(topic_partition.partition, 0) + batch_size

    def on_update_suspended(
        self,
        topic_partition: TopicPartition,
        store_name: str,
        store_offset: int,
        current_end_offset: int,
        reason: SuspendReason,
    ) -> None:
        self.suspended[topic_partition.partition] = reason
