"""The topics of global stores, as a stream thread has them read: all partitions, from the beginning, without a group.

Decides the start offsets of each batch, and that tasks wait until the stores have everything up to the end offsets at the start
of the thread, which are requested until the brokers answer. Only the worker knows the positions of its copies: it reports them
with each batch, and partitions without a position are read again. So is a topic that was deleted and created again: positions in
the earlier topic mean nothing there, and its records may be as many.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace

from tidemill.errors import ConfigError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.data.absent_topics import HEARD_OF_LIMIT_S
from tidemill.log_format import LogEvent
from tidemill.runtime.thread.topic_watch import TopicIds
from tidemill.task.batch import BatchReport, BatchRequest
from tidemill.topology.nodes import SourceNode, Topology

log = logging.getLogger("tidemill.thread")

_RETRY_PAUSE_S = 1.0
_CREATED_AGAIN = "they were deleted and created again: the global stores are emptied and read again, and tasks wait meanwhile"


def global_topics(topology: Topology) -> tuple[str, ...]:
    """The topics of which every instance reads all partitions, sorted."""
    nodes = (node for node in topology.nodes.values() if isinstance(node, SourceNode) and node.is_global)
    return tuple(sorted({topic for node in nodes for topic in node.topics}))


class GlobalTopics:
    """Topics of the global stores, as one stream thread reads them. Called by that thread only, but ``are_read``, which any may
    ask: what it looks at is replaced, never changed. ``several_copies``: steps before the last have copies as well."""

    def __init__(
        self, topics: Collection[str], admin: Admin, now_s: Callable[[], float] = time.monotonic, *, several_copies: bool = False
    ) -> None:
        self._topics, self._admin, self._now_s, self._several_copies = topics, admin, now_s, several_copies
        self._not_before_s = 0.0
        self._ids = TopicIds(admin, now_s)
        self.created_again = 0
        """How many looks have found that a topic was deleted and created again."""
        self._missing_since_s: float | None = None
        self._positions: dict[TopicPartition, int] | None = None
        self._begins: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    @property
    def are_any(self) -> bool:
        return bool(self._topics)

    @property
    def are_read(self) -> bool:
        """True once the stores hold what the topics held at the start."""
        if not self._topics:
            return True
        ends, positions = self._ends, self._positions  # once each: the stream thread may begin again meanwhile
        return bool(ends) and positions is not None and all(positions.get(tp, 0) >= end for tp, end in ends.items())

    def extend(self, request: BatchRequest) -> BatchRequest:
        """The request with what is read of global topics; until these are read, without inputs.

        Raises:
            ConfigError: one of them does not exist, and has not come within some seconds.
        """
        if not self._topics:
            return request
        self._look()
        if not self._ends and not self._fetch_ends():
            return replace(request, inputs={})
        is_reset = self._positions is None
        positions = self._begins if self._positions is None else self._positions
        inputs = request.inputs if self.are_read else {}
        return replace(request, inputs=inputs, globals=positions, reset_globals=is_reset)

    def reported(self, report: BatchReport) -> None:
        """After a batch that has answered."""
        if not self._ends:  # it has read nothing of them
            return
        is_known = report.globals.keys() >= self._ends.keys() and self._ends.keys().isdisjoint(report.out_of_range)
        self._positions = dict(report.globals) if is_known else None
        if not is_known:
            self._ends = {}

    def lost(self) -> None:
        """After a batch without a report. A single copy reports its positions with the next batch. Several copies may be at
        different positions by now, so all are read again."""
        if self._several_copies:
            self._positions, self._ends = None, {}

    def _look(self) -> None:
        """Reads the topics again from their beginnings if one was deleted and created again; looks once in a while."""
        again = self._ids.created_again(self._topics) if self._ends else []
        if again:
            log.warning(LogEvent("global-topics-created-again", topics=again, note=_CREATED_AGAIN))
            self.created_again += 1
            self._positions, self._ends = None, {}

    def _fetch_ends(self) -> bool:
        """True if the beginnings and ends of the topics are known."""
        if self._now_s() < self._not_before_s:
            return False
        try:
            self._ask()
        except RetriableError as problem:
            self._not_before_s = self._now_s() + _RETRY_PAUSE_S
            log.warning(LogEvent("global-topics-not-known", topics=list(self._topics), problem=problem))
        return bool(self._ends)

    def _ask(self) -> None:
        counts = self._admin.partitions(self._topics)
        missing = sorted(topic for topic in self._topics if counts.get(topic) is None)
        if missing:
            self._missing_since_s = self._now_s() if self._missing_since_s is None else self._missing_since_s
            if self._now_s() - self._missing_since_s < HEARD_OF_LIMIT_S:
                raise RetriableError(f"the brokers do not know the topic {missing[0]} yet")
            raise ConfigError(f"the topic {missing[0]} of a global store does not exist: create it and start again")
        self._missing_since_s = None
        self._ids.learn(self._topics)  # before the ends, which are those of this topic or of a later one
        partitions = [TopicPartition(topic, number) for topic in self._topics for number in range(counts[topic] or 0)]
        self._begins = dict(self._admin.beginning_offsets(partitions))
        self._ends = dict(self._admin.stable_end_offsets(partitions))
