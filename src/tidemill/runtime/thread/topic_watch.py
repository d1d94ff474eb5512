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


class TopicIds:
    """The ids of topics, compared once in a while with those that they had. Called by the stream thread only."""

    def __init__(self, admin: Admin, now_s: Callable[[], float]) -> None:
        self._admin, self._now_s = admin, now_s
        self._look_at_s = 0.0
        self._known: dict[str, str] = {}

    def learn(self, topics: Collection[str]) -> None:
        """The ids of right now are what later looks compare with. RetriableError if the brokers do not answer."""
        self._known.update(self._admin.topic_ids(topics))
        self._look_at_s = self._now_s() + _LOOK_PAUSE_S

    @property
    def are_due(self) -> bool:
        """It is time for the next look."""
        return self._now_s() >= self._look_at_s

    def created_again(self, topics: Collection[str]) -> list[str]:
        """Those which are others by now, sorted; each once, and nothing before the next look is due."""
        if not topics or not self.are_due:
            return []
        self._look_at_s = self._now_s() + _LOOK_PAUSE_S
        try:
            now = self._admin.topic_ids(topics, timeout_s=_LOOK_LIMIT_S)
        except RetriableError:  # batches say so if the brokers are away
            return []
        again = sorted(topic for topic, topic_id in now.items() if self._known.get(topic, topic_id) != topic_id)
        self._known.update(now)
        return again


class TopicWatch:
    """Counts for the workers of a stream thread how often a topic that is read has been found to be another one."""

    def __init__(self, thread: str, admin: Admin, now_s: Callable[[], float] = time.monotonic) -> None:
        self._thread, self._ids = thread, TopicIds(admin, now_s)
        self._count = 0

    def created_again(self, request: BatchRequest) -> int:
        """How many looks have found one so far, other than the topics of global stores, which ``GlobalTopics`` looks at."""
        if not self._ids.are_due:  # before each micro-batch, which may have a thousand partitions
            return self._count
        kinds = (request.inputs, request.changelogs, request.standbys)
        again = self._ids.created_again({tp.topic for kind in kinds for tp in kind})
        if again:
            self._count += 1
            log.warning(LogEvent("topics-created-again", thread=self._thread, topics=again, note=_NOTE))
        return self._count
