"""Topics that match the patterns of the program: those that exist at the start, and later ones.

The plan reads the topics that exist at the start. Later ones are logged; they are read after a restart.
"""

from __future__ import annotations

import logging

from tidemill.errors import ConfigError
from tidemill.kafka.admin.client import Admin
from tidemill.log_format import LogEvent
from tidemill.topology.nodes import SourceNode, Topology
from tidemill.topology.patterns import patterns_of, with_topics_of_patterns

log = logging.getLogger("tidemill.application")
CHECK_INTERVAL_S = 60.0


def topology_on(admin: Admin, topology: Topology, application_id: str) -> Topology:
    """The topology with the topics on the brokers that its patterns match in place of the patterns.

    Raises:
        ConfigError: a pattern matches no topic. Topics that are created later are not read.
    """
    patterns = patterns_of(topology)
    if not patterns:
        return topology
    found = with_topics_of_patterns(topology, application_id, admin.topics())
    for name, pattern in patterns.items():
        node = found.nodes[name]
        if isinstance(node, SourceNode) and not node.topics:
            raise ConfigError(
                f"no topic matches the pattern {pattern!r} of {name} (the whole name must match): create one and start again"
            )
    return found


class UnreadTopics:
    """Warns of topics that match a pattern and are not read. ``running``: ``topology`` with the topics of the start in place of
    the patterns."""

    def __init__(self, admin: Admin, topology: Topology, running: Topology, application_id: str) -> None:
        self._admin, self._topology, self._application_id = admin, topology, application_id
        self._known = _read(running)

    def check(self) -> None:
        """Warns of each topic once."""
        found = _read(with_topics_of_patterns(self._topology, self._application_id, self._admin.topics()))
        if new := sorted(found - self._known):
            says = "topics have appeared that a pattern of the program matches: start the instances again to read them"
            log.warning(LogEvent("topics-appeared", says=says, application=self._application_id, topics=new))
        self._known |= found


def _read(topology: Topology) -> frozenset[str]:
    return frozenset(topic for node in topology.nodes.values() if isinstance(node, SourceNode) for topic in node.topics)
