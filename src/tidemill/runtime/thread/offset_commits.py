"""Committing input offsets apart from the results: at least once only, where no transaction holds the two together.

Decides when offsets are committed (every ``commit.interval.ms``, and before tasks are given up) and that a refused commit costs
nothing: what it covered is then processed again by the task's owner.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from tidemill.deadline import Deadline
from tidemill.errors import BatchLostError, CommitRefusedError, RejoinError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.metadata import OffsetAndMetadata
from tidemill.log_format import LogEvent
from tidemill.task.batch import Positions
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.partition_time import PartitionTime, Times, metadata_of

log = logging.getLogger("tidemill.thread")


class OffsetCommitter:
    """Called by the stream thread only; ``waiting`` and ``committed`` are replaced, never changed, so any thread may read
    them."""

    def __init__(self, thread: str, member: GroupMember, interval_ms: int) -> None:
        self._thread, self._member, self._interval_s = thread, member, interval_ms / 1e3
        self.waiting: Positions = {}
        """Processed, their outputs acknowledged and their stores written, but not committed yet."""
        self.committed: Positions = {}
        """Offsets that were committed from here; they outlive tasks and lost batches."""
        self._times: Times = {}
        self._commits_at = Deadline.after(self._interval_s)

    def processed(self, ends: Positions, times: Times) -> None:
        """A batch is done, and its inputs have come to these times; commits if it is time to."""
        self.waiting, self._times = {**self.waiting, **ends}, times
        if self._commits_at.is_over:
            self.commit()

    def forget(self) -> None:
        """Drops what is waiting: it is not this member's to commit any more, or is read again."""
        self.waiting = {}

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Drops the offsets of partitions that get another owner: a late commit would reset those that the new owner has
        committed."""
        self.waiting = {tp: at for tp, at in self.waiting.items() if tp not in partitions}

    def commit(self) -> None:
        self._commits_at = Deadline.after(self._interval_s)
        if not self.waiting:
            return
        try:
            self._member.commit({tp: self._with_time(tp, at) for tp, at in self.waiting.items()})
        except (RejoinError, CommitRefusedError, RetriableError, BatchLostError) as problem:
            log.warning(LogEvent("commit-refused", thread=self._thread, problem=problem))
            return
        self.committed, self.waiting = {**self.committed, **self.waiting}, {}

    def committed_of(self, tasks: Collection[ActiveTask]) -> dict[TopicPartition, int]:
        """Any thread: up to where the inputs of those of these tasks that run are processed *and* committed. Their positions
        would say too much: they move on before anything waits, and stay while tasks that were lost are being closed."""
        known, running = self.committed, [task for task in tasks if task.phase is Phase.RUNNING]
        return {tp: known[tp] for task in running for tp in task.inputs if tp in known}

    def _with_time(self, tp: TopicPartition, at: int) -> OffsetAndMetadata:
        return OffsetAndMetadata(at, metadata_of(self._times.get(tp, PartitionTime())))
