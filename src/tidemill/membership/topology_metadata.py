"""Description of a topology for the leader: sub-topologies with their topics, internal topics, copartition groups.

Decides the shape only. Topics have their names on the broker. A sub-topology without source topics has no tasks
and no entry. The leader works on this alone, so that it can be driven by a built topology, by a recorded run or
by a simulated one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemill.topology.graph import (
    ADDITIONAL_RETENTION_MS,
    InternalTopicKind,
    copartition_groups,
    internal_topics,
    subtopologies,
    united,
)
from tidemill.topology.nodes import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsInfo:
    """Topics of one sub-topology (Kafka Streams' TopicsInfo). ``changelog_topics`` has source topics too where they serve as
    changelogs."""

    subtopology: int
    source_topics: frozenset[str]
    sink_topics: frozenset[str] = frozenset()
    changelog_topics: frozenset[str] = frozenset()

    @property
    def source_topic_changelogs(self) -> frozenset[str]:
        """Source topics that serve as changelogs: their committed offset counts as their end."""
        return self.source_topics & self.changelog_topics

    @property
    def own_changelogs(self) -> frozenset[str]:
        """Changelogs that the leader makes."""
        return self.changelog_topics - self.source_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopicConfig:
    """A topic that the leader makes. ``enforced_partitions``: the program's own number, which nothing changes."""

    name: str
    is_repartition: bool
    enforced_partitions: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyMetadata:
    """``subtopologies`` in the order of their numbers; ``internal_topics`` by name; ``pattern_topics``: those that a pattern of
    the program matches."""

    subtopologies: tuple[TopicsInfo, ...]
    internal_topics: Mapping[str, InternalTopicConfig] = field(default_factory=dict)
    copartition_groups: tuple[frozenset[str], ...] = ()
    pattern_topics: frozenset[str] = frozenset()

    @property
    def source_topics(self) -> frozenset[str]:
        """All topics to subscribe to, repartition topics included."""
        return frozenset(topic for each in self.subtopologies for topic in each.source_topics)

    @property
    def by_number(self) -> dict[int, TopicsInfo]:
        return {part.subtopology: part for part in self.subtopologies}

    def known_to_all(self, subscriptions: Iterable[Collection[str]]) -> TopologyMetadata:
        """The metadata without those topics of patterns that a subscription lacks: its member has yet to find them, and has no
        plan that reads them."""
        return self._without(frozenset[str]().union(*(self.pattern_topics.difference(topics) for topics in subscriptions)))

    def on_brokers(self, there: Collection[str]) -> TopologyMetadata:
        """The metadata without those topics of patterns that are not ``there``: a pattern is about the topics that exist."""
        return self._without(self.pattern_topics.difference(there))

    def _without(self, unread: frozenset[str]) -> TopologyMetadata:
        if not unread:
            return self
        parts = (replace(part, source_topics=part.source_topics - unread) for part in self.subtopologies)
        return replace(
            self,
            subtopologies=tuple(part for part in parts if part.source_topics),
            copartition_groups=tuple(group - unread for group in self.copartition_groups),
            pattern_topics=self.pattern_topics - unread,
        )

    def is_repartition(self, topic: str) -> bool:
        config = self.internal_topics.get(topic)
        return config is not None and config.is_repartition


def topology_metadata(
    topology: Topology,
    application_id: str,
    *,
    topic_defaults: Mapping[str, str] | None = None,
    additional_retention_ms: int = ADDITIONAL_RETENTION_MS,
    pattern_topics: frozenset[str] = frozenset(),
) -> TopologyMetadata:
    """The metadata of a built topology. ``topic_defaults``: settings of ``topic.*``; ``additional_retention_ms``: how much longer
    than their stores the changelogs of windows keep rows. Patterns have been replaced by topics (``topology.patterns``), which
    are ``pattern_topics``."""
    parts = tuple(
        TopicsInfo(
            subtopology=part.id,
            source_topics=frozenset(part.source_topics),
            sink_topics=frozenset(part.sink_topics),
            changelog_topics=frozenset(part.changelog_topics),
        )
        for part in subtopologies(topology, application_id)
    )
    return TopologyMetadata(
        subtopologies=tuple(part for part in parts if part.source_topics),
        internal_topics={
            name: InternalTopicConfig(
                name=name,
                is_repartition=topic.kind is InternalTopicKind.REPARTITION,
                enforced_partitions=topic.partitions,
                settings=topic.properties(topic_defaults, additional_retention_ms=additional_retention_ms),
            )
            for name, topic in internal_topics(topology, application_id).items()
        },
        copartition_groups=united(copartition_groups(topology, application_id)),
        pattern_topics=pattern_topics,
    )
