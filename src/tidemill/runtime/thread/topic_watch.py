"""Topics that are deleted and created again while a stream thread reads them, of which its consumers must be replaced.

A new topic's leader epochs begin at 0. Where the earlier topic's were higher, as they are after a leader has changed, librdkafka
takes what brokers say of the new one for outdated (its issue 4898): such a consumer asks for the earlier topic's leaders for
good, gets nothing, and says nothing of it. Java's consumer compares topic ids. So this looks for them, and a client made after
that knows only the new topic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from tidemill.errors import RetriableError
from tidemill.kafka.admin.client import Admin
from tidemill.log_format import LogEvent
from tidemill.task.batch import BatchRequest

log = logging.getLogger("tidemill.thread")

_LOOK_PAUSE_S = 10.0
_LOOK_LIMIT_S = 1.0
_NOTE = "they were deleted and created again: they are read by new clients, at the positions that were reached"


class TopicWatch:
    """Called by the stream thread only."""

    def __init__(self, thread: str, admin: Admin, now_s: Callable[[], float] = time.monotonic) -> None:
        self._thread, self._admin, self._now_s = thread, admin, now_s
        self._look_at_s = 0.0
        self._topic_ids: dict[str, str] = {}
        self._count = 0

    def created_again(self, request: BatchRequest) -> int:
        """How many looks have found that a topic which was read is another one by now; looks once in a while."""
        read = {tp.topic for kind in (request.inputs, request.changelogs, request.standbys, request.globals) for tp in kind}
        if read and self._now_s() >= self._look_at_s:
            self._look_at_s = self._now_s() + _LOOK_PAUSE_S
            self._look(read)
        return self._count

    def _look(self, topics: Collection[str]) -> None:
        try:
            now = self._admin.topic_ids(topics, timeout_s=_LOOK_LIMIT_S)
        except RetriableError:  # batches say so if the brokers are away
            return
        again = sorted(topic for topic, topic_id in now.items() if self._topic_ids.get(topic, topic_id) != topic_id)
        self._topic_ids.update(now)
        if again:
            self._count += 1
            log.warning(LogEvent("topics-created-again", thread=self._thread, topics=again, note=_NOTE))
