"""A running group as something to explain: what its members said and got, and what the assignor makes of it.

Decides where each fact comes from: members' subscriptions and assignments from the coordinator, topics and the ends of
changelogs from the brokers, the topology from the application file or else from what the group shows, settings from the
command line or that file. The leader's own functions do the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.cli.group_view import shown_time
from tidemill.cli.settings import LOCAL_BROKERS
from tidemill.errors import AssignmentError, ConfigError, EnvironmentProblem
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.printable import printable

if TYPE_CHECKING:
    from tidemill.assignment.model import ApplicationState, Assignment, AssignmentConfig
    from tidemill.config.slices import GroupConfig
    from tidemill.config.streams_config import StreamsConfig
    from tidemill.kafka.admin.groups import LiveGroup, LiveMember
    from tidemill.membership.topology_metadata import TopologyMetadata
    from tidemill.membership.wire import AssignmentInfo
    from tidemill.topology.nodes import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``settings``: those of the options; ``assignor`` and ``compatibility`` None: by settings, 4.3."""

    application_id: str
    app: Path | None
    settings: Mapping[str, object]
    assignor: str | None = None
    compatibility: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveExplanation:
    """``config``, ``members``: what it is of; ``due``: when the n-th rebalance from now is expected; ``remarks``: what the broker
    does not know, and differences."""

    title: str
    config: StreamsConfig
    members: Mapping[str, LiveMember]
    state: ApplicationState
    assignment: Assignment
    due: Callable[[int], str]
    names: dict[ProcessId, str]
    remarks: tuple[str, ...]


def live_explanation(question: Question) -> LiveExplanation:
    """EnvironmentProblem if the group can't be seen; ConfigError if a setting is wrong."""
    from tidemill.config.slices import ClientsConfig
    from tidemill.kafka.admin.groups import live_group
    from tidemill.kafka.security.clients import group_client_settings
    from tidemill.membership.wire import decode_assignment

    config, topology = _application(question)
    group = live_group(group_client_settings(config.slice(ClientsConfig)), config.application_id)
    received = {
        name: decode_assignment(member.assignment.user_data)
        for name, member in group.members.items()
        if member.assignment.user_data
    }
    metadata = _topology_metadata(config, topology, group, received)
    state, assignment = _as_its_leader(question, config, metadata, group)
    process_of = {
        consumer.member: client.process_id for client in state.clients for consumer in client.consumers
    }
    return LiveExplanation(
        title=f"{config.application_id} at {config.bootstrap_servers}, {len(group.members)} members "
        f"(Kafka {question.compatibility or '4.3'}, {question.assignor or config.task_assignor_class})",
        config=config,
        members=group.members,
        state=state,
        assignment=assignment,
        due=_due(received, state.config),
        names={
            process_of[name]: member.client_id
            for name, member in sorted(group.members.items(), reverse=True)
            if name in process_of
        },
        remarks=(*_limits(state.config, topology is None), *_differences(state, assignment, received, process_of)),
    )


def _application(question: Question) -> tuple[StreamsConfig, Topology | None]:
    """The settings, and the topology if its file is named."""
    from tidemill.cli.application_file import load_application
    from tidemill.config.streams_config import StreamsConfig

    topology, settings = (None, question.settings) if question.app is None else load_application(question.app, question.settings)
    return StreamsConfig.of({**LOCAL_BROKERS, **settings, "application.id": question.application_id}), topology


def _topology_metadata(
    config: StreamsConfig, topology: Topology | None, group: LiveGroup, received: Mapping[str, AssignmentInfo]
) -> TopologyMetadata:
    from tidemill.membership.observed_topology import observed_topology_metadata
    from tidemill.membership.topology_metadata import topology_metadata
    from tidemill.membership.wire import known_subscription
    from tidemill.topology.patterns import with_topics_of_patterns

    if topology is not None:
        topology = with_topics_of_patterns(topology, config.application_id, group.partition_counts)
        return topology_metadata(topology, config.application_id, topic_defaults=config.topic)
    partitions_of: dict[TaskId, list[TopicPartition]] = {}
    with_state: set[TaskId] = set()
    for name, info in received.items():
        given = sorted(group.members[name].assignment.partitions)
        if len(given) != len(info.active_tasks):
            raise EnvironmentProblem(
                f"the leader of group {config.application_id!r} assigned {len(given)} partitions to member {printable(name)} and "
                f"names tasks for {len(info.active_tasks)} of them: what it sent can't be explained"
            )
        for task, partition in zip(info.active_tasks, given, strict=True):
            partitions_of.setdefault(_plain(task), []).append(partition)
        for task, partitions in info.standby_tasks.items():
            partitions_of.setdefault(_plain(task), []).extend(partitions)
            with_state.add(_plain(task))
        said = known_subscription(group.members[name].subscription.user_data)
        if said is not None:
            with_state.update(map(_plain, said.task_offset_sums))
    if not partitions_of:
        raise EnvironmentProblem(f"nothing is assigned in group {config.application_id!r} yet: ask again")
    try:
        return observed_topology_metadata(config.application_id, partitions_of, with_state, group.partition_counts)
    except AssignmentError as error:
        raise ConfigError(str(error)) from error


def _as_its_leader(
    question: Question, config: StreamsConfig, metadata: TopologyMetadata, group: LiveGroup
) -> tuple[ApplicationState, Assignment]:
    """The leader's two steps over what the members said in their last join."""
    from tidemill.assignment.choice import choose_assignor
    from tidemill.config.slices import ClientsConfig, GroupConfig
    from tidemill.kafka.admin.client import Admin
    from tidemill.kafka.security.clients import ClientRole, data_client_settings
    from tidemill.membership.client_states import FetchedOffsets
    from tidemill.membership.leader import LeaderConfig, PreparedRebalance, complete, prepare
    from tidemill.membership.topic_plan import ClusterMetadata

    chosen = choose_assignor(question.assignor or config.task_assignor_class, question.compatibility or "4.3")
    leader = LeaderConfig(
        leader_process_id=ProcessId(0, 0),
        assignor=chosen.assignor,
        assignor_needs_lags=chosen.needs_lags,
        settings=_assignment_config(config.slice(GroupConfig)),
    )
    counts = group.partition_counts
    subscriptions = {name: member.subscription for name, member in group.members.items()}
    prepared = prepare(subscriptions, ClusterMetadata(partition_counts=counts), metadata, leader)
    if not isinstance(prepared, PreparedRebalance):
        raise EnvironmentProblem(f"the group {config.application_id!r} can't be assigned: {prepared.log[-1].text}")
    missing = frozenset(topic.name for topic in prepared.internal_topics if topic.name not in counts)
    admin = Admin(data_client_settings(config.slice(ClientsConfig), ClientRole.ADMIN), timeout_s=15)
    sources = prepared.source_changelog_partitions(missing)
    answer = complete(
        prepared,
        FetchedOffsets(
            created_topics=missing,
            end_offsets=admin.end_offsets(prepared.changelog_partitions(missing)),
            committed_offsets=admin.committed_offsets(config.application_id, sources) if sources else {},
        ),
        int(time.time() * 1000),
    )
    if answer.state is None or answer.assignment is None:
        raise EnvironmentProblem(f"the group {config.application_id!r} can't be assigned: {answer.log[-1].text}")
    return answer.state, answer.assignment


def _assignment_config(config: GroupConfig) -> AssignmentConfig:
    """Racks are left out: the group does not show where replicas are."""
    from tidemill.assignment.model import AssignmentConfig

    return AssignmentConfig(
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        max_warmup_replicas=config.max_warmup_replicas,
        num_standby_replicas=config.num_standby_replicas,
        probing_rebalance_interval_ms=config.probing_rebalance_interval_ms,
        rack_aware_assignment_tags=config.rack_aware_assignment_tags,
    )


def _due(received: Mapping[str, AssignmentInfo], config: AssignmentConfig) -> Callable[[int], str]:
    """From the next rebalance in a member's assignment; without one, as a duration."""
    from tidemill.assignment.model import LONG_MAX
    from tidemill.sim.report import duration

    interval_ms = config.probing_rebalance_interval_ms
    next_ms = min((info.next_rebalance_ms for info in received.values()), default=LONG_MAX)

    def due(rebalances: int) -> str:
        if next_ms in (0, LONG_MAX):
            return f"in {duration(rebalances * interval_ms)}"
        return f"at {shown_time(next_ms + (rebalances - 1) * interval_ms, '%H:%M:%S UTC', timezone.utc)}"

    return due


def _limits(config: AssignmentConfig, is_observed: bool) -> Iterator[str]:
    yield (
        "Positions are those of the members' last joins, ends of changelogs are of now: what was written since counts as lag."
    )
    yield (
        f"The brokers do not know the leader's settings; these are taken: acceptable.recovery.lag="
        f"{config.acceptable_recovery_lag}, max.warmup.replicas={config.max_warmup_replicas}, num.standby.replicas="
        f"{config.num_standby_replicas} (others with --set, or --app FILE)."
    )
    if is_observed:
        yield "Which sub-topology writes which changelog is concluded from names and partitions; --app FILE says it for sure."


def _differences(
    state: ApplicationState,
    assignment: Assignment,
    received: Mapping[str, AssignmentInfo],
    process_of: Mapping[str, ProcessId],
) -> Iterator[str]:
    """Active tasks that the group's leader has put elsewhere than these settings and offsets would."""
    runs_on = {
        _plain(task): process_of[name] for name, info in received.items() if name in process_of for task in info.active_tasks
    }
    for task in sorted(state.tasks):
        here = next(p for p, held in sorted(assignment.clients.items()) if task in held.active)
        there = runs_on.get(task)
        if there is None:
            yield f"In the group task {task} is assigned to no client yet: its last owner must let go of it first."
        elif there != here:
            yield f"In the group task {task} is active on {there}: its leader had other settings or offsets."


def _plain(task: object) -> TaskId:
    if isinstance(task, TaskId):
        return task
    raise EnvironmentProblem(f"the group has task {task} of a named topology; expected tasks such as 1_0")
