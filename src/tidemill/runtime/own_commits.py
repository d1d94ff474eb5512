"""Committing input offsets apart from the results: at least once only, where no transaction holds the two together.

Decides when offsets are committed (every ``commit.interval.ms``, and before tasks are given up) and that a refused commit costs
nothing: what it covered is then processed again by whoever has the task.
"""

from __future__ import annotations

import logging
import time

from tidemill.errors import BatchLostError, CommitRefusedError, RejoinError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.kafka.group import GroupMember
from tidemill.kafka.group_metadata import OffsetAndMetadata
from tidemill.log_format import LogEvent
from tidemill.task.batch import Positions
from tidemill.task.partition_time import PartitionTime, Times, metadata_of

log = logging.getLogger("tidemill.thread")


class OwnCommits:
    """Called by the stream thread only; ``waiting`` is replaced, never changed, so any thread may read it."""

    def __init__(self, thread: str, member: GroupMember, interval_ms: int) -> None:
        self._thread, self._member, self._interval_s = thread, member, interval_ms / 1e3
        self.waiting: Positions = {}
        """Processed, their outputs acknowledged and their stores written, but not committed yet."""
        self._times: Times = {}
        self._committed_at = time.monotonic()

    def processed(self, ends: Positions, times: Times) -> None:
        """A batch is done, and its inputs have come to these times; commits if it is time to."""
        self.waiting, self._times = {**self.waiting, **ends}, times
        if time.monotonic() - self._committed_at >= self._interval_s:
            self.commit()

    def forget(self) -> None:
        """What is waiting is not this member's to commit any more, or will be read again."""
        self.waiting = {}

    def commit(self) -> None:
        self._committed_at = time.monotonic()
        if not self.waiting:
            return
        try:
            self._member.commit({tp: self._with_time(tp, at) for tp, at in self.waiting.items()})
        except (RejoinError, CommitRefusedError, RetriableError, BatchLostError) as problem:
            log.warning(LogEvent("commit-refused", thread=self._thread, problem=problem))
            return
        self.waiting = {}

    def _with_time(self, tp: TopicPartition, at: int) -> OffsetAndMetadata:
        return OffsetAndMetadata(at, metadata_of(self._times.get(tp, PartitionTime())))
