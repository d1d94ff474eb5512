"""Topics of sources that read by a pattern.

Decides, as Kafka Streams: the whole name must match; Kafka's internal topics and the application's are excluded; a topic that
matches two patterns is refused. The topics of a pattern are co-partitioned with what its stream is joined with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from tidemill.errors import TopologyError
from tidemill.topology.graph import internal_topics
from tidemill.topology.nodes import SourceNode, Topology

_OF_KAFKA = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def patterns_of(topology: Topology) -> dict[str, str]:
    """The patterns of a topology's sources, by the sources' names."""
    found = {name: node.topic_pattern for name, node in topology.nodes.items() if isinstance(node, SourceNode)}
    return {name: pattern for name, pattern in found.items() if pattern is not None}


def with_topics_of_patterns(topology: Topology, application_id: str, there: Iterable[str]) -> Topology:
    """The topology with topics in place of patterns: those of ``there``, the topics on the brokers, that match.

    Raises:
        TopologyError: two patterns match one topic.
    """
    patterns = patterns_of(topology)
    if not patterns:
        return topology
    readers: dict[str, str] = {}
    for topic in sorted(set(there) - _OF_KAFKA - internal_topics(topology, application_id).keys()):
        matching = [name for name, pattern in patterns.items() if re.fullmatch(pattern, topic)]
        if len(matching) > 1:
            raise TopologyError(
                f"the topic {topic!r} matches the patterns of two sources, {patterns[matching[0]]!r} ({matching[0]}) and"
                f" {patterns[matching[1]]!r} ({matching[1]}): make one of them narrower"
            )
        if matching:
            readers[topic] = matching[0]
    nodes = dict(topology.nodes)
    for name in patterns:
        node = nodes[name]
        assert isinstance(node, SourceNode)
        nodes[name] = replace(
            node, topics=tuple(topic for topic, reader in readers.items() if reader == name), topic_pattern=None
        )
    groups = [frozenset(topic for name in names for topic in _topics_of(nodes[name])) for names in topology.groups_with_patterns]
    return replace(topology, nodes=nodes, copartition_groups=(*topology.copartition_groups, *filter(None, groups)))


def _topics_of(node: object) -> tuple[str, ...]:
    return node.topics if isinstance(node, SourceNode) else ()
