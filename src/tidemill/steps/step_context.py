"""Protocols of what a Python step needs from outside its process; the worker implements them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from tidemill.ids import TaskId, TopicPartition
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.step_state import StoreReader
from tidemill.task.batch import CommittingMember, Positions, StorePositions, TaskRun
from tidemill.task.batch_id import BatchId
from tidemill.task.commit import CommitStep
from tidemill.task.partition_time import Times
from tidemill.task.raw_records import RecordColumns


class TaskStore(StoreReader, Protocol):
    """One task's stores, as its owner has them open."""

    @property
    def at(self) -> StorePositions:
        """Positions of the stores; ``is_behind`` if they are not those that the driver expects."""

    def check(self, writes: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        """Raises StateError for what could not be applied later (rule 14)."""

    def apply(self, writes: Mapping[str, Mapping[bytes, bytes | None]], changelog: Mapping[str, int]) -> None:
        """All writes and positions in one transaction, if the stores still are where ``at`` says (rule 15)."""


class Output(Protocol):
    """The thread's producer: one transaction a batch (or, at least once, one flush)."""

    def prepare(self) -> None:
        """Aborts a transaction that an earlier producer has left open."""

    def begin(self) -> None: ...

    def produce(self, topic: str, records: RecordColumns) -> None: ...

    @property
    def is_transactional(self) -> bool:
        """All of a batch counts, or nothing; otherwise any part of it may have been written."""

    def flush(self) -> None:
        """Waits until all that was written is acknowledged.

        Raises:
            BatchLostError: it was not; the batch is given up.
        """

    def partitions_of(self, topic: str) -> int:
        """The number of a topic's partitions."""

    def commit(self, offsets: Positions, times: Times, membership: CommittingMember) -> Mapping[TopicPartition, int]:
        """Commits the offsets, with the times of their partitions. Gives, for each partition written by number, the offset
        behind its last record.

        Raises:
            BatchLostError: aborted, or of unknown fate. FencedError: another producer or the group has moved on.
        """

    def continues(self, changelog: TopicPartition, position: int) -> bool:
        """After a commit: behind this position there are only the records that the batch has written. Else, at least once, the
        group had given the task away meanwhile, and another owner has written there, too."""

    def abort(self) -> None: ...


class StepContext(Protocol):
    """The surroundings of a step; kept by the worker from batch to batch."""

    @property
    def output(self) -> Output: ...

    @property
    def continuity(self) -> dict[TopicPartition, int]:
        """Committed positions of this worker's last commit, per input partition; empty after a loss."""

    @property
    def graphs(self) -> KeptGraphs: ...

    @property
    def unreadable(self) -> Unreadable: ...

    def open_stores(self, runs: Sequence[TaskRun]) -> Mapping[TaskId, TaskStore]:
        """The stores of these tasks; those of all others are closed first.

        Raises:
            BatchLostError: one can't be opened now. StopError, StateDiskError: one can't be opened at all.
        """

    def membership(self) -> CommittingMember: ...

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        """The group's committed offsets, require-stable; a partition without any is absent."""

    def call_foreach_batch(self, batch_id: int, node: str, rows: pa.Table, offsets: BatchId) -> None:
        """Calls the function of a ``foreach_batch`` node in the driver, and waits for it.

        Raises:
            StopError: the function failed. BatchLostError: the group has moved on, it was not called.
        """

    def reached(self, step: CommitStep, batch_id: int) -> None: ...
