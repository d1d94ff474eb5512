"""The topology of an application as far as a running group shows them: for commands that don't have the program.

Decides from assignments which topics a sub-topology reads, and from names and numbers of partitions which one writes a
changelog. Where that leaves two possibilities it is an error: a wrong guess would make every lag wrong. A source topic
that serves as changelog can't be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from tidemill.errors import AssignmentError
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.topology_metadata import InternalTopicConfig, TopicsInfo, TopologyMetadata
from tidemill.topology.naming import CHANGELOG_SUFFIX, REPARTITION_SUFFIX


def observed_topology_metadata(
    application_id: str,
    partitions_of: Mapping[TaskId, Iterable[TopicPartition]],
    tasks_with_state: Set[TaskId],
    partition_counts: Mapping[str, int],
) -> TopologyMetadata:
    """``partitions_of``: what the tasks that were handed out read; ``tasks_with_state``: of which a member has state."""
    sources: dict[int, set[str]] = {}
    for task, partitions in partitions_of.items():
        sources.setdefault(task.subtopology, set()).update(partition.topic for partition in partitions)
    tasks = {part: max(partition_counts.get(topic, 0) for topic in topics) for part, topics in sources.items()}
    prefix = f"{application_id}-"
    changelogs: dict[int, set[str]] = {part: set() for part in sources}
    for topic in sorted(partition_counts):
        if topic.startswith(prefix) and topic.endswith(CHANGELOG_SUFFIX):
            fitting = [part for part in sorted(sources) if tasks[part] == partition_counts[topic]]
            changelogs[_writer(topic, fitting, sources, {task.subtopology for task in tasks_with_state})].add(topic)
    return TopologyMetadata(
        subtopologies=tuple(
            TopicsInfo(
                subtopology=part,
                source_topics=frozenset(sources[part]),
                changelog_topics=frozenset(changelogs[part]),
            )
            for part in sorted(sources)
        ),
        internal_topics={
            topic: InternalTopicConfig(name=topic, is_repartition=False)
            for topics in changelogs.values()
            for topic in topics
        },
    )


def _writer(topic: str, fitting: list[int], sources: Mapping[int, Set[str]], with_state: Set[int]) -> int:
    """The sub-topology that reads the repartition topic of the same operator, else the only one that can be it."""
    repartition = topic.removesuffix(CHANGELOG_SUFFIX) + REPARTITION_SUFFIX
    for candidates in (
        [part for part in fitting if repartition in sources[part]],
        [part for part in fitting if part in with_state],
        fitting,
    ):
        if len(candidates) == 1:
            return candidates[0]
    raise AssignmentError(
        f"the group does not show which sub-topology writes {topic} ({_either(fitting)}): name the program with --app"
    )


def _either(parts: list[int]) -> str:
    return " or ".join(map(str, parts)) if parts else "none that was handed out has as many tasks"
