"""The assignor's input (KIP-924's ApplicationState), from the members' subscriptions and the brokers' offsets.

Decides previous tasks, capacities, weights, ends of changelogs and lags. A topic that was made just now ends at 0; a source topic
that serves as changelog ends where the group has committed; where offsets could not be fetched, every end and every lag
is unknown (-3). ``tidemill.assignment`` ranks the lags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemill.assignment.lag import sparse_lags
from tidemill.assignment.model import (
    LATEST_OFFSET,
    LONG_MAX,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    AssignmentConfig,
    ClientState,
    ConsumerState,
    TaskInfo,
)
from tidemill.assignment.task_load import TaskLoad, weights
from tidemill.errors import AssignmentError
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.joined_group import JoinedClient, JoinedGroup
from tidemill.membership.topic_plan import ClusterMetadata, TopicPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffsets:
    """Offsets that the caller fetched. A topic in ``created_topics`` was made just now, so its partitions end at 0.

    ``end_offsets`` of changelogs; ``committed_offsets`` of source topics that serve as changelogs (none = 0).
    ``partition_racks`` of internal topics, where ``PreparedRebalance.needs_racks``.
    """

    created_topics: frozenset[str] = frozenset()
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    partition_racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)


def application_state(
    group: JoinedGroup,
    plan: TopicPlan,
    metadata: ClusterMetadata,
    settings: AssignmentConfig,
    offsets: FetchedOffsets | None,
) -> ApplicationState:
    """Clients with their previous tasks and lags, tasks, ends of their changelogs; AssignmentError if an end is missing."""
    ends = _end_offset_sums(plan, offsets)
    racks = metadata.partition_racks
    return ApplicationState(
        clients=tuple(_client(client, plan.task_of, ends) for client in group.clients),
        tasks=tuple(plan.tasks),
        stateful_tasks=plan.stateful_tasks,
        end_offset_sums=ends,
        task_info=_with_weights(group, plan),
        partition_racks=racks if offsets is None else {**racks, **offsets.partition_racks},
        config=settings,
    )


def _with_weights(group: JoinedGroup, plan: TopicPlan) -> Mapping[TaskId, TaskInfo]:
    """Weights by the loads that members sent; of a task its owner's counts, else the greatest of those that ran it before."""
    own: dict[TaskId, TaskLoad] = {}
    others: dict[TaskId, TaskLoad] = {}
    for client in group.clients:
        for member, loads in client.loads_of.items():
            owned = {plan.task_of.get(partition) for partition, owner in client.owner_of.items() if owner == member}
            for task, load in loads.items():
                if task in plan.tasks:
                    known = own if task in owned else others
                    known[task] = max(load, known.get(task, load))
    if not (own or others):
        return plan.task_info
    of_task = weights({**others, **own}, plan.stateful_tasks)
    return {
        task: replace(plan.task_info.get(task, TaskInfo()), weight=of_task.get(task))
        for task in sorted(plan.task_info.keys() | of_task.keys())
    }


def _end_offset_sums(plan: TopicPlan, offsets: FetchedOffsets | None) -> dict[TaskId, int]:
    if offsets is None:
        return dict.fromkeys(plan.changelogs, UNKNOWN_OFFSET_SUM)
    return {
        task: _end_offset(partitions[0], plan, offsets)
        if len(partitions) == 1
        else min(sum(_end_offset(partition, plan, offsets) for partition in partitions), LONG_MAX)
        for task, partitions in plan.changelogs.items()
    }


def _end_offset(partition: TopicPartition, plan: TopicPlan, offsets: FetchedOffsets) -> int:
    if partition.topic in offsets.created_topics:
        return 0
    if partition.topic in plan.source_topic_changelogs:
        return offsets.committed_offsets.get(partition, 0)
    end = offsets.end_offsets.get(partition)
    if end is None:
        raise AssignmentError(
            f"no end offset of the changelog partition {partition} was fetched; expected one of each partition of "
            f"changelog_partitions(), or no offsets at all"
        )
    return end


def _client(client: JoinedClient, task_of: Mapping[TopicPartition, TaskId], ends: Mapping[TaskId, int]) -> ClientState:
    """Previous actives are the tasks of the owned partitions and those said to run; all others with state, standbys."""
    sums = client.offset_sums
    running = frozenset([task for task, total in sums.items() if total == LATEST_OFFSET])
    owned = frozenset([task_of[partition] for partition in client.owner_of if partition in task_of])
    owned_by: dict[str, list[TopicPartition]] = {member: [] for member in client.members}
    for partition, member in client.owner_of.items():
        owned_by[member].append(partition)
    return ClientState(
        process_id=client.process_id,
        capacity=len(client.members),
        consumers=tuple(
            ConsumerState(
                member=member,
                owned_partitions=tuple(owned_by[member]),
                task_offset_sums=client.offset_sums_of[member],
            )
            for member in client.members
        ),
        previous_active=owned | running,
        previous_standby=frozenset(sums.keys() - running - owned),
        lags=sparse_lags(sums, ends.keys(), ends),
        tags=client.tags,
        rack=client.rack,
        is_draining=client.is_draining,
    )
