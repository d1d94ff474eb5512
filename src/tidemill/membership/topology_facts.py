"""Description of a topology for the leader: sub-topologies with their topics, internal topics, copartition groups.

Decides the shape only. Topics have their names on the broker. A sub-topology without source topics has no tasks
and no entry. The leader works on these facts alone, so that it can be driven by a built topology, by a recorded run or
by a simulated one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
class SubtopologyFacts:
    """Topics of one sub-topology; ``changelog_topics`` holds source topics too where they serve as changelogs."""

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
class InternalTopicFacts:
    """A topic that the leader makes. ``enforced_partitions``: the program's own number, which nothing changes."""

    name: str
    is_repartition: bool
    enforced_partitions: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyFacts:
    """``subtopologies`` in the order of their numbers; ``internal_topics`` by name."""

    subtopologies: tuple[SubtopologyFacts, ...]
    internal_topics: Mapping[str, InternalTopicFacts] = field(default_factory=dict)
    copartition_groups: tuple[frozenset[str], ...] = ()

    @property
    def source_topics(self) -> frozenset[str]:
        """All topics to subscribe to, repartition topics included."""
        return frozenset(topic for each in self.subtopologies for topic in each.source_topics)

    @property
    def by_number(self) -> dict[int, SubtopologyFacts]:
        return {part.subtopology: part for part in self.subtopologies}

    def is_repartition(self, topic: str) -> bool:
        facts = self.internal_topics.get(topic)
        return facts is not None and facts.is_repartition


def topology_facts(
    topology: Topology,
    application_id: str,
    *,
    topic_defaults: Mapping[str, str] | None = None,
    additional_retention_ms: int = ADDITIONAL_RETENTION_MS,
) -> TopologyFacts:
    """The facts of a built topology. ``topic_defaults``: settings of ``topic.*``; ``additional_retention_ms``: how much longer
    than their stores the changelogs of windows keep rows. Patterns have been replaced by topics (``topology.patterns``)."""
    parts = tuple(
        SubtopologyFacts(
            subtopology=part.id,
            source_topics=frozenset(part.source_topics),
            sink_topics=frozenset(part.sink_topics),
            changelog_topics=frozenset(part.changelog_topics),
        )
        for part in subtopologies(topology, application_id)
    )
    return TopologyFacts(
        subtopologies=tuple(part for part in parts if part.source_topics),
        internal_topics={
            name: InternalTopicFacts(
                name=name,
                is_repartition=topic.kind is InternalTopicKind.REPARTITION,
                enforced_partitions=topic.partitions,
                settings=topic.properties(topic_defaults, additional_retention_ms=additional_retention_ms),
            )
            for name, topic in internal_topics(topology, application_id).items()
        },
        copartition_groups=united(copartition_groups(topology, application_id)),
    )
