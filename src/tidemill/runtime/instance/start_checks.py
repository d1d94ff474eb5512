"""Checks before an instance starts anything, or reads more topics: topics that must be there, rights on them, and what an
earlier version has left.

Decides which brokers' answers and which local files are compared with the topology; what fits is ``membership.topology_fit``'s
and ``steps.commit.store_layout``'. An application that has never run passes at once, and so does one that was reset. The
brokers say which rights are lacking on topics that exist, and one message names all of these; rights on the group and the
transactional ids are judged when they are used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemill.config.slices import TopicsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.deadline import Deadline
from tidemill.errors import AssignmentError, ConfigError, RetriableError, StopError, TopologyMismatchError
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.data.absent_topics import HEARD_OF_LIMIT_S
from tidemill.kafka.security.rights import Operation
from tidemill.log_format import LogEvent
from tidemill.membership.topic_plan import ClusterMetadata, CopartitionCheck, TopicPlan, plan_topics
from tidemill.membership.topology_fit import TopicsFound, expiring, left_over, misfits
from tidemill.membership.topology_metadata import TopologyMetadata, topology_metadata
from tidemill.runtime.thread.global_topics import global_topics
from tidemill.runtime.thread.local_state import read_state
from tidemill.runtime.thread.task_topology import TaskTopology, task_topology
from tidemill.state.directory import StateDirectory
from tidemill.state.lmdb import TaskState
from tidemill.steps.commit.store_layout import form_of, is_other_changelog
from tidemill.steps.step_spec import StoreSpec
from tidemill.topology.graph import broker_topic, internal_topics
from tidemill.topology.nodes import SinkNode, SourceNode, Topology
from tidemill.topology.patterns import topics_of_patterns

log = logging.getLogger("tidemill.application")

_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTopics:
    """The topology and its topics, as they are on the brokers."""

    topology: Topology
    """With topics in place of patterns."""
    metadata: TopologyMetadata
    task_topology: TaskTopology


def checked_topics(config: StreamsConfig, program: Topology, topology: Topology, admin: Admin) -> CheckedTopics:
    """The topics of ``topology``, which is ``program`` with topics in place of its patterns, once it is known that they are there
    or can be created.

    Raises:
        ConfigError, MissingRightError: as ``require_topics`` and ``require_fitting_topics`` do.
    """
    metadata = topology_metadata(
        topology, config.application_id, topic_defaults=config.topic,
        additional_retention_ms=config.windowstore_changelog_additional_retention_ms,
        pattern_topics=topics_of_patterns(program, topology),
    )  # fmt: skip
    sources = require_topics(config.slice(TopicsConfig), topology, admin)
    require_fitting_topics(config.application_id, metadata, sources, admin)
    return CheckedTopics(
        topology=topology, metadata=metadata, task_topology=task_topology(topology, config.application_id)
    )


def require_topics(config: TopicsConfig, topology: Topology, admin: Admin) -> dict[str, int]:
    """Partition counts of the source topics.

    Raises ConfigError for a topic of the operator's that isn't there or must not be read, MissingRightError for rights that are
    missing.
    """
    _require_separate_topics(config, topology)
    admin.require_rights("looking at the application's topics", needed_operations(topology, config))
    known = task_topology(topology, config.application_id)
    aside = [config.dead_letter_topic] if config.dead_letter_topic else []
    sources = [name for name in known.topics if name not in known.internal_topics]
    counts = _partitions((*sources, *global_topics(topology), *aside), admin)
    missing = [name for name, count in counts.items() if count is None]
    if missing:
        raise ConfigError(
            f"the topic {missing[0]} does not exist on {config.bootstrap_servers}: create it and start again "
            f"(source topics are the operator's: {', '.join(missing)})"
        )
    return {name: counts[name] or 0 for name in sources}


def _partitions(topics: Sequence[str], admin: Admin) -> dict[str, int | None]:
    """Partition counts; None for topics that are not there. Topics that a program has just created may seem to be missing: these
    are asked for again for some seconds."""
    deadline = Deadline.after(HEARD_OF_LIMIT_S)
    while None in (counts := admin.partitions(topics)).values() and not deadline.is_over:
        time.sleep(_PAUSE_S)
    return counts


def _require_separate_topics(config: TopicsConfig, topology: Topology) -> None:
    """ConfigError for a topic that the application writes for itself, or puts records aside in, and also reads."""
    read = {
        topic
        for node in topology.nodes.values()
        if isinstance(node, SourceNode)
        for topic in node.topics
        if topic not in topology.repartition_topics
    }
    if config.dead_letter_topic in read:
        raise ConfigError(
            f"errors.dead.letter.queue.topic.name is {config.dead_letter_topic}, which the program reads: a dead letter "
            "would come back endlessly; name another topic"
        )
    own = sorted(read & internal_topics(topology, config.application_id).keys())
    if own:
        raise ConfigError(
            f"the program reads {own[0]}, which is the name of an internal topic of its own; read another topic, or change "
            "application.id"
        )


def require_fitting_topics(application: str, topology: TopologyMetadata, sources: Mapping[str, int], admin: Admin) -> None:
    """TopologyMismatchError if the topology does not fit the existing internal topics; ConfigError if no leader of the group
    could assign its tasks, because the topics of a join have different numbers of partitions."""
    try:
        plan = plan_topics(topology, ClusterMetadata(partition_counts=sources), CopartitionCheck.ALWAYS)
    except AssignmentError as problem:
        raise ConfigError(str(problem)) from problem
    if not plan.internal_topics:
        return
    found = _found(plan, admin)
    read = frozenset(sources)
    others = left_over(plan, found, application, read)
    if others:
        log.warning(LogEvent("topics-left-over", application=application, topics=list(others), reason="none of this topology"))
    for topic, policy in expiring(plan, found).items():
        reason = (
            "rows that are not written for retention.ms are deleted there, and a restore lacks them; alter it, or say it in "
            "changelog_config if that is wanted"
        )
        log.warning(LogEvent("changelog-expires", topic=topic, cleanup_policy=policy, expected="compact", reason=reason))
    sentences = misfits(plan, found, application, read)
    if sentences:
        raise TopologyMismatchError(application, sentences, others=others)


def _found(plan: TopicPlan, admin: Admin) -> TopicsFound:
    names = admin.topics()
    counts = admin.partitions([topic.name for topic in plan.internal_topics])
    there = {name: count for name, count in counts.items() if count is not None}
    logs = [topic.name for topic in plan.internal_topics if topic.name in there and not topic.config.is_repartition]
    return TopicsFound(
        names=names | there.keys(),
        partitions=there,
        cleanup=_policies(logs, admin),
    )


def _policies(topics: Iterable[str], admin: Admin) -> dict[str, str]:
    """Cleanup policies, as far as they can be read: nothing else needs the ACL to describe configs, so its lack is no error."""
    found = {}
    for topic in topics:
        try:
            found[topic] = admin.topic_configs(topic).get("cleanup.policy", "")
        except (StopError, RetriableError) as unseen:  # also a topic that another instance is just making
            log.info(LogEvent("policy-not-seen", topic=topic, reason=unseen))
    return found


def require_fitting_state(application: str, directory: StateDirectory, stores: Iterable[StoreSpec]) -> None:
    """TopologyMismatchError if a store of this machine was another one, whose changelog the new one can't read."""
    wanted = {(spec.subtopology, spec.name): form_of(spec) for spec in stores}
    of_name = {name: subtopology for subtopology, name in wanted}
    sentences: dict[str, None] = {}
    for task in directory.tasks():
        for store, was in (read_state(directory, task, TaskState.forms) or {}).items():
            becomes = wanted.get((of_name.get(store, -1), store))
            if becomes is not None and is_other_changelog(was, becomes):
                sentence = f"the store {store} is kept as ({was}) and is to be ({becomes}), which its changelog can't be read as"
                sentence += " (under another name it begins empty)"
                sentences[sentence] = None
            elif becomes is not None and of_name[store] != task.subtopology:
                log.warning(
                    LogEvent(
                        "state-moved",
                        task=task,
                        store=store,
                        reason=f"the store belongs to sub-topology {of_name[store]} now, and is restored there",
                    )
                )
    if sentences:
        raise TopologyMismatchError(application, tuple(sentences), others=())


_READ_AND_WRITTEN = frozenset({Operation.READ, Operation.WRITE})


def needed_operations(topology: Topology, config: TopicsConfig) -> dict[str, frozenset[Operation]]:
    """Operations by topic. Topics of a topic extractor are not known before."""
    known = task_topology(topology, config.application_id)
    needs: dict[str, set[Operation]] = {topic: {Operation.READ} for topic in (*known.topics, *global_topics(topology))}
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
