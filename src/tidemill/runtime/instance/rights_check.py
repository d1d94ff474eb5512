"""What an application must be allowed on its topics, looked at before anything starts.

Decides which operations it needs where; the brokers say which of them it lacks, and all of these are told at once. Topics that
don't exist yet, the group and the transactional ids are judged when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.config.streams_config import StreamsConfig
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.security.rights import Operation
from tidemill.runtime.instance.task_layout import task_facts
from tidemill.topology.graph import broker_topic
from tidemill.topology.nodes import SinkNode, Topology

_READ_AND_WRITTEN = frozenset({Operation.READ, Operation.WRITE})


def needed_operations(topology: Topology, config: StreamsConfig) -> dict[str, frozenset[Operation]]:
    """By topic. What a topic extractor will name is not known before."""
    known = task_facts(topology, config.application_id)
    needs: dict[str, set[Operation]] = {topic: {Operation.READ} for topic in known.topics}
    for changelogs in known.changelogs.values():
        for topic in changelogs.values():
            needs.setdefault(topic, set()).update({Operation.READ} if topic in known.source_changelogs else _READ_AND_WRITTEN)
    for topic in known.internal_topics:
        needs[topic] |= {Operation.WRITE, Operation.DELETE}  # what has been processed is deleted
    for node in topology.nodes.values():
        if isinstance(node, SinkNode) and node.topic:
            needs.setdefault(broker_topic(topology, config.application_id, node.topic), set()).add(Operation.WRITE)
    if config.dead_letter_topic:
        needs.setdefault(config.dead_letter_topic, set()).add(Operation.WRITE)
    return {topic: frozenset(operations) for topic, operations in needs.items()}


def require_rights(admin: Admin, needs: Mapping[str, frozenset[Operation]]) -> None:
    """MissingRightError that names every right that is missing."""
    admin.require_rights("looking at the application's topics", needs)
