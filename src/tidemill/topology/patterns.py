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


def matching(topology: Topology, application_id: str, there: Iterable[str]) -> dict[str, list[str]]:
    """Those of ``there``, the topics on the brokers, that patterns match: each with the sources whose pattern it matches."""
    patterns = patterns_of(topology)
    topics = sorted(set(there) - _OF_KAFKA - internal_topics(topology, application_id).keys()) if patterns else []
    found = {topic: [name for name, pattern in patterns.items() if re.fullmatch(pattern, topic)] for topic in topics}
    return {topic: names for topic, names in found.items() if names}


def with_topics_of_patterns(topology: Topology, application_id: str, there: Iterable[str]) -> Topology:
    """The topology with topics in place of patterns: those of ``there``, the topics on the brokers, that match.

    Raises:
        TopologyError: two patterns match one topic.
    """
    patterns = patterns_of(topology)
    if not patterns:
        return topology
    readers: dict[str, str] = {}
    for topic, names in matching(topology, application_id, there).items():
        readers[topic], *others = names
        if others:
            raise TopologyError(
                f"the topic {topic!r} matches the patterns of two sources, {patterns[names[0]]!r} ({names[0]}) and"
                f" {patterns[names[1]]!r} ({names[1]}): make one of them narrower"
            )
    nodes = dict(topology.nodes)
    for name in patterns:
        node = nodes[name]
        assert isinstance(node, SourceNode)
        nodes[name] = replace(
            node, topics=tuple(topic for topic, reader in readers.items() if reader == name), topic_pattern=None
        )
    groups = [frozenset(topic for name in names for topic in _topics_of(nodes[name])) for names in topology.groups_with_patterns]
    return replace(topology, nodes=nodes, copartition_groups=(*topology.copartition_groups, *filter(None, groups)))


def topics_of_patterns(program: Topology, running: Topology) -> frozenset[str]:
    """The topics that are in place of the patterns of ``program`` in ``running``."""
    return frozenset(topic for name in patterns_of(program) for topic in _topics_of(running.nodes[name]))


def _topics_of(node: object) -> tuple[str, ...]:
    return node.topics if isinstance(node, SourceNode) else ()
