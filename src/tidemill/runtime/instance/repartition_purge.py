"""Purging repartition topics: records whose processing is committed are of no more use (rule 13).

Decides when and up to where; a failure is only logged, since the next round purges more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from tidemill.errors import TidemillError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin
from tidemill.log_format import LogEvent
from tidemill.runtime.thread.stream_thread import StreamThread

log = logging.getLogger("tidemill.purge")


class RepartitionPurge:
    """A thread of its own: deleting records is slow, and no other part waits for it."""

    def __init__(
        self, admin: Admin, threads: Sequence[StreamThread], topics: frozenset[str], interval_s: float
    ) -> None:
        self._admin, self._threads, self._topics, self._interval_s = admin, threads, topics, interval_s
        self._ended = threading.Event()
        self._purged: dict[TopicPartition, int] = {}

    def start(self) -> None:
        if self._topics:
            threading.Thread(target=self._run, name="tidemill-purge", daemon=True).start()

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            try:
                self.purge()
            except TidemillError as problem:
                log.warning(LogEvent("purge-failed", problem=problem))

    def purge(self) -> None:
        """Deletes up to the positions that committed batches have reached."""
        done = {
            tp: position
            for thread in tuple(self._threads)
            for tp, position in thread.committed_positions.items()
            if tp.topic in self._topics and position > self._purged.get(tp, 0)
        }
        if done:
            self._admin.delete_records(done)
            self._purged.update(done)
