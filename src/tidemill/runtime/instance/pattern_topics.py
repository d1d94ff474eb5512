"""Topics that match the patterns of the program: those that exist at the start, and those that appear while it runs.

Decides which topics are in place of the patterns: those that exist, of which there may be none. A later one is read if it passes
the checks of a start; else a warning says why it is not. One that was deleted stays in the plan until another one appears.

Each instance finds topics by itself. The group's leader assigns one that exists when all members subscribe to it
(``TopologyMetadata``); Kafka Streams' leader assigns it at once, since its members can add it to a running topology.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set

from tidemill.errors import ConfigError, MissingRightError, TopologyError
from tidemill.kafka.admin.client import Admin
from tidemill.log_format import LogEvent
from tidemill.runtime.instance.start_checks import CheckedTopics
from tidemill.topology.nodes import SourceNode, Topology
from tidemill.topology.patterns import matching, patterns_of, with_topics_of_patterns

log = logging.getLogger("tidemill.application")
CHECK_INTERVAL_MS = 30_000
"""The time after which topics are looked for again, unless ``kafka.metadata.max.age.ms`` says another one: Kafka's five minutes
are long to wait for a topic, and each look asks a broker for all topics of the cluster."""


def topology_on(admin: Admin, topology: Topology, application_id: str) -> Topology:
    """The topology with the topics on the brokers that its patterns match in place of the patterns. A source whose pattern
    matches none reads nothing until a topic appears."""
    if not patterns_of(topology):
        return topology
    found = with_topics_of_patterns(topology, application_id, admin.topics())
    for name, pattern in patterns_of(topology).items():
        node = found.nodes[name]
        if isinstance(node, SourceNode) and not node.topics:
            then = "a topic whose whole name matches is read once it is there"
            log.warning(LogEvent("pattern-matches-nothing", source=name, pattern=pattern, next=then))
    return found


class PatternWatch:
    """``program``: the topology with its patterns; ``known``: the topics that are read in their place. ``check`` makes the checks
    of a start for a topology with topics in place of the patterns, ``read`` has the instance read its topics."""

    def __init__(
        self,
        program: Topology,
        known: frozenset[str],
        application_id: str,
        *,
        topics: Callable[[], frozenset[str]],
        check: Callable[[Topology], CheckedTopics],
        read: Callable[[CheckedTopics], None],
    ) -> None:
        self._program, self._known, self._application_id = program, known, application_id
        self._topics, self._check, self._read = topics, check, read
        self._refused = frozenset[str]()

    def look(self) -> None:
        """Has topics that have appeared read. RetriableError if no broker answers."""
        there = matching(self._program, self._application_id, self._topics()).keys()
        self._refused &= there  # one that is deleted and created again is another topic
        if not (new := there - self._known - self._refused):
            return
        self._known &= there  # the checks refuse a plan with one that was deleted, and the leader assigns it no more
        try:
            self._take(new)
        except _REFUSALS:  # of one of them at least, which does not keep the others from being read
            for topic in sorted(new):
                try:
                    self._take({topic})
                except _REFUSALS as problem:
                    self._refused |= {topic}
                    warning = LogEvent("topic-not-read", topic=topic, problem=problem, next="it is tried again at the next start")
                    log.warning(warning)

    def _take(self, new: Set[str]) -> None:
        known = self._known | new
        checked = self._check(with_topics_of_patterns(self._program, self._application_id, known))
        log.info(LogEvent("topics-added", application=self._application_id, topics=sorted(new)))
        self._read(checked)
        self._known = known


_REFUSALS = (ConfigError, TopologyError, MissingRightError)
"""Errors of a topic that stay until someone changes something."""
