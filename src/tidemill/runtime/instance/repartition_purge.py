"""Purge of repartition topics: deletes records whose processing is committed (rule 13).

Decides the offsets; what one call misses, the next one deletes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin
from tidemill.runtime.thread.stream_thread import StreamThread


class RepartitionPurge:
    """``topics``: the repartition topics of the application."""

    def __init__(self, admin: Admin, threads: Sequence[StreamThread], topics: frozenset[str]) -> None:
        self._admin, self._threads, self._topics = admin, threads, topics
        self._purged: dict[TopicPartition, int] = {}

    def purge(self) -> None:
        """Deletes the records before the committed positions."""
        done = {
            tp: position
            for thread in tuple(self._threads)
            for tp, position in thread.committed_positions.items()
            if tp.topic in self._topics and position > self._purged.get(tp, 0)
        }
        if done:
            self._admin.delete_records(done)
            self._purged.update(done)
