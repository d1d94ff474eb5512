"""Topics and tasks of an assignment: partition counts of internal topics, and the tasks with their partitions.

Decides Kafka's rules: a repartition topic has as many partitions as the largest source topic of the sub-topologies that
write to it, copartitioned inputs have one number, a sub-topology has as many tasks as its largest source topic has
partitions, and its changelogs have one partition for each task. Invariant: the answer does not depend on the order of
sub-topologies or topics (where topics feed each other in a cycle, what is known counts, for all of them at once). The
caller makes the topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from tidemill.assignment.model import TaskInfo
from tidemill.errors import AssignmentError
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.topology_metadata import InternalTopicConfig, TopologyMetadata


class MissingSourceTopicError(AssignmentError):
    """A source topic that the operator makes does not exist; all members get error code 1."""


class CopartitionError(AssignmentError):
    """Topics that are joined have different numbers of partitions; Kafka's leader throws."""


class CopartitionCheck(Enum):
    """Time at which topics are checked that no repartition topic can be fitted to."""

    ALWAYS = "always"
    AS_KAFKA = "as Kafka"
    """Only in a topology that has a repartition topic at all, as Kafka 3.0 to 4.3 do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """Topics on the brokers. ``partition_racks`` (racks of the replicas) is needed by rack-aware assignment only."""

    partition_counts: Mapping[str, int]
    partition_racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToEnsure:
    """An internal topic that must exist: created if it is missing, an error if it has another number of partitions."""

    config: InternalTopicConfig
    partitions: int

    @property
    def name(self) -> str:
        return self.config.name


@dataclass(frozen=True, kw_only=True)
class TopicPlan:
    """``tasks`` in order with the partitions that each reads; ``changelogs`` of the stateful tasks, sorted.

    What follows from it is worked out once, for all the rebalances that it serves.
    """

    internal_topics: tuple[TopicToEnsure, ...]
    tasks: Mapping[TaskId, tuple[TopicPartition, ...]]
    changelogs: Mapping[TaskId, tuple[TopicPartition, ...]]
    source_topic_changelogs: frozenset[str]

    @cached_property
    def task_of(self) -> Mapping[TopicPartition, TaskId]:
        """The task that reads each partition."""
        return {partition: task for task, partitions in self.tasks.items() for partition in partitions}

    @cached_property
    def task_info(self) -> Mapping[TaskId, TaskInfo]:
        return {
            task: TaskInfo(source_partitions=partitions, changelog_partitions=self.changelogs.get(task, ()))
            for task, partitions in self.tasks.items()
        }

    @cached_property
    def stateful_tasks(self) -> frozenset[TaskId]:
        return frozenset(self.changelogs)


def plan_topics(topology: TopologyMetadata, metadata: ClusterMetadata, check: CopartitionCheck) -> TopicPlan:
    """Raises MissingSourceTopicError, CopartitionError, or AssignmentError where a number can't be found."""
    _check_source_topics(topology, metadata)
    repartition = _repartition_counts(topology, metadata)
    if repartition or check is CopartitionCheck.ALWAYS:
        for group in topology.copartition_groups:
            _enforce_copartitioning(group, topology, metadata, repartition)
    counts = {**metadata.partition_counts, **repartition}
    tasks: dict[TaskId, tuple[TopicPartition, ...]] = {}
    changelogs: dict[TaskId, tuple[TopicPartition, ...]] = {}
    changelog_counts: dict[str, int] = {}
    for part in sorted(topology.subtopologies, key=lambda part: part.subtopology):
        sources = sorted(part.source_topics)
        partitions = max(counts[topic] for topic in sources)
        for number in range(partitions):
            task = TaskId(part.subtopology, number)
            tasks[task] = tuple(TopicPartition(topic, number) for topic in sources if number < counts[topic])
            if part.changelog_topics:
                changelogs[task] = tuple(TopicPartition(topic, number) for topic in sorted(part.changelog_topics))
        changelog_counts.update(dict.fromkeys(part.own_changelogs, partitions))
    wanted = {**repartition, **changelog_counts}
    return TopicPlan(
        internal_topics=tuple(
            TopicToEnsure(config=_internal_topic(topology, topic), partitions=wanted[topic]) for topic in sorted(wanted)
        ),
        tasks=tasks,
        changelogs=changelogs,
        source_topic_changelogs=frozenset(
            topic for part in topology.subtopologies for topic in part.source_topic_changelogs
        ),
    )


def _check_source_topics(topology: TopologyMetadata, metadata: ClusterMetadata) -> None:
    missing = {
        part.subtopology: sorted(
            topic
            for topic in part.source_topics
            if not topology.is_repartition(topic) and metadata.partition_counts.get(topic, 0) < 1
        )
        for part in topology.subtopologies
    }
    named = "; ".join(f"{', '.join(topics)} (sub-topology {number})" for number, topics in missing.items() if topics)
    if named:
        raise MissingSourceTopicError(
            f"Missing source topics: {named}. Topics that the application reads must exist before it starts: create "
            "them, or wait until the brokers' metadata names them, and start again."
        )


def _repartition_counts(topology: TopologyMetadata, metadata: ClusterMetadata) -> dict[str, int]:
    """Enforced numbers stand; the others follow from the writers' inputs as soon as all, or in a cycle some, are known.

    A repartition topic of an earlier run may be on the brokers already; its number there decides nothing.
    """
    read = sorted(
        topic for part in topology.subtopologies for topic in part.source_topics if topology.is_repartition(topic)
    )
    known = {topic: n for topic, n in metadata.partition_counts.items() if not topology.is_repartition(topic)}
    enforced = {topic: topology.internal_topics[topic].enforced_partitions for topic in read}
    known.update((topic, partitions) for topic, partitions in enforced.items() if partitions is not None)
    open_topics = [topic for topic in read if topic not in known]
    inputs = {topic: _inputs_of_writers(topic, topology) for topic in open_topics}
    while open_topics:
        settled = [topic for topic in open_topics if inputs[topic] and inputs[topic] <= known.keys()]
        settled = settled or [topic for topic in open_topics if inputs[topic] & known.keys()]
        if not settled:
            raise AssignmentError(
                f"The number of partitions of the repartition topics {', '.join(open_topics)} can't be found: no "
                "sub-topology with a known source topic writes to them. Make sure that all source topics exist and "
                "that every pattern matches a topic."
            )
        known.update([(topic, max(known[at] for at in inputs[topic] & known.keys())) for topic in settled])
        open_topics = [topic for topic in open_topics if topic not in known]
    return {topic: known[topic] for topic in read}


def _inputs_of_writers(topic: str, topology: TopologyMetadata) -> frozenset[str]:
    return frozenset(
        source for part in topology.subtopologies if topic in part.sink_topics for source in part.source_topics
    )


def _enforce_copartitioning(
    group: Iterable[str], topology: TopologyMetadata, metadata: ClusterMetadata, repartition: dict[str, int]
) -> None:
    """Fit the free repartition topics of the group to the others; CopartitionError if those differ.

    Numbers of the brokers come first, then those that the program enforces, else the largest of the group.
    """
    topics = sorted(group)
    free = [topic for topic in topics if topic in repartition]
    external = {
        topic: metadata.partition_counts[topic]
        for topic in topics
        if topic not in repartition and topic in metadata.partition_counts
    }
    enforced = {
        topic: repartition[topic] for topic in free if topology.internal_topics[topic].enforced_partitions is not None
    }
    fixed = {**external, **enforced}
    if len(set(fixed.values())) > 1:
        raise CopartitionError(
            "Topics not co-partitioned: "
            + ", ".join(f"{topic}={count}" for topic, count in sorted(fixed.items()))
            + ". Joined topics need the same number of partitions: recreate one of them, or repartition() its stream."
        )
    if not free:
        return
    wanted = next(iter(fixed.values())) if fixed else max(repartition[topic] for topic in free)
    repartition.update(dict.fromkeys(free, wanted))


def _internal_topic(topology: TopologyMetadata, name: str) -> InternalTopicConfig:
    known = topology.internal_topics.get(name)
    return InternalTopicConfig(name=name, is_repartition=False) if known is None else known

