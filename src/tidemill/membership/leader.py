"""The leader's part of a rebalance: subscriptions in, every member's assignment out (StreamsPartitionAssignor).

Decides in two steps with I/O by the caller in between, so that it stays pure:

    prepare    decode, check versions and source topics, number the internal topics' partitions, find the tasks
    (caller)   makes the internal topics; fetches end offsets of changelogs, committed ones of source topics that serve
               as changelogs
    complete   lags, task assignor, tasks to threads, withheld tasks, next rebalances, bytes

Whatever the operator must act upon is answered to all members as an error code (``StreamsGroupAssignment.refusal``); nothing
is raised. A member whose subscription can't be read is the only one to get the code: Kafka's leader throws there, and
takes the next leader and the next with it. A client's next rebalance is the earliest of what its follow-up deadline
(KIP-924), a drain and, in the leader's own process, the probing interval ask for; its first member is to start it. The task
assignor decides which client gets a task, ``assignment.threads`` which of its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from tidemill.assignment.custom import CheckedAssignor, InvalidAssignmentError
from tidemill.assignment.drain import assign_with_drains
from tidemill.assignment.invariants import violations
from tidemill.assignment.model import (
    LONG_MAX,
    ApplicationState,
    Assignment,
    AssignmentConfig,
    ClientAssignment,
    ClientState,
    RackStrategy,
    TaskAssignor,
)
from tidemill.assignment.sticky.assignor import FallbackPriorTaskAssignor
from tidemill.assignment.threads import ThreadAssignment, assign_to_threads
from tidemill.endpoint import HostInfo
from tidemill.errors import AssignmentError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership import leader_log
from tidemill.membership.client_states import FetchedOffsets, application_state
from tidemill.membership.cooperative import MemberTasks, Ownership, member_tasks
from tidemill.membership.group_assignment import Refusal, StreamsGroupAssignment, StreamsMemberAssignment, error_only, refused
from tidemill.membership.joined_group import FUTURE_PROCESS, JoinedClient, JoinedGroup, JoinGroupMember, join_group
from tidemill.membership.leader_log import LogLevel, LogLine
from tidemill.membership.topic_plan import (
    ClusterMetadata,
    CopartitionCheck,
    CopartitionError,
    MissingSourceTopicError,
    TopicPlan,
    TopicToEnsure,
    plan_topics,
)
from tidemill.membership.topology_metadata import TopologyMetadata
from tidemill.membership.wire import (
    LATEST_SUPPORTED_VERSION,
    AssignmentInfo,
    PartitionsByHost,
    encode_assignment,
    encode_hosts,
)
from tidemill.membership.wire.assignment import AssignorError
from tidemill.printable import said_by

AT_ONCE_MS = 0
"""Next rebalance: as soon as the assignment has been taken."""

DRAIN_PROBING_INTERVAL_MS = 5_000
"""Longest time between two checks whether the copies that a drain waits for have caught up."""

ToThreads = Callable[[ClientState, ClientAssignment, Set[TaskId], Mapping[TaskId, int]], ThreadAssignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderConfig:
    """``leader_process_id``: the process whose first member is to start a probing rebalance.

    ``fallback`` assigns where no lags could be had, unless the assignor does without them (the sticky one), and where
    the assignor's answer is invalid.
    """

    leader_process_id: ProcessId
    assignor: TaskAssignor
    settings: AssignmentConfig = field(default_factory=AssignmentConfig)
    fallback: TaskAssignor = field(default_factory=FallbackPriorTaskAssignor)
    assignor_needs_lags: bool = True
    to_threads: ToThreads = assign_to_threads
    copartition_check: CopartitionCheck = CopartitionCheck.ALWAYS
    future_process_id: ProcessId = FUTURE_PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRebalance:
    """State of the rebalance before the offsets are known: hand it to ``complete``."""

    group: JoinedGroup
    plan: TopicPlan
    metadata: ClusterMetadata
    config: LeaderConfig
    log: tuple[LogLine, ...]

    @property
    def internal_topics(self) -> tuple[TopicToEnsure, ...]:
        """The topics that must be there, with these numbers of partitions, before ``complete``."""
        return self.plan.internal_topics

    @property
    def partition_counts(self) -> dict[str, int]:
        """Partition counts of all topics of the assignment, internal ones included."""
        return {**self.metadata.partition_counts, **{topic.name: topic.partitions for topic in self.internal_topics}}

    @property
    def needs_racks(self) -> bool:
        return self.config.settings.rack_aware_assignment_strategy is not RackStrategy.NONE

    def changelog_partitions(self, created_topics: Set[str] = frozenset()) -> tuple[TopicPartition, ...]:
        """Partitions whose end offsets are to be fetched."""
        return self._changelogs(lambda topic: topic not in self.plan.source_topic_changelogs, created_topics)

    def source_changelog_partitions(self, created_topics: Set[str] = frozenset()) -> tuple[TopicPartition, ...]:
        """Partitions whose committed offsets are to be fetched."""
        if not self.plan.source_topic_changelogs:
            return ()
        return self._changelogs(lambda topic: topic in self.plan.source_topic_changelogs, created_topics)

    def _changelogs(self, is_wanted: Callable[[str], bool], created: Set[str]) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                partition
                for partitions in self.plan.changelogs.values()
                for partition in partitions
                if is_wanted(partition.topic) and partition.topic not in created
            )
        )


def prepare(
    subscriptions: Mapping[str, JoinGroupMember],
    metadata: ClusterMetadata,
    topology: TopologyMetadata,
    config: LeaderConfig,
    *,
    plan: TopicPlan | None = None,
) -> PreparedRebalance | StreamsGroupAssignment:
    """The first step; a StreamsGroupAssignment if the answer is an error, to be sent as it is.

    ``plan``: that of an earlier rebalance with the same metadata and topology, which is used again.
    """
    try:
        group = join_group(subscriptions, config.future_process_id)
        if group.is_shutdown_requested:
            reason = "a member asked the whole application to shut down"
            return refused(subscriptions, Refusal(code=AssignorError.SHUTDOWN_REQUESTED, reason=reason))
        known = topology.known_to_all(subscriptions[member].topics for member in group.members)
        found = known.on_brokers([topic for topic, count in metadata.partition_counts.items() if count])
        if plan is None:
            plan = plan_topics(found, metadata, config.copartition_check)
        log = (*(LogLine(remark, LogLevel.WARNING) for remark in group.remarks), *_version_log(group))
        if unknown := topology.pattern_topics - known.pattern_topics:
            said = f"Topics of patterns that are not assigned, since some members don't subscribe to them yet: {sorted(unknown)}"
            log = (*log, LogLine(said))
        if gone := known.pattern_topics - found.pattern_topics:
            said = f"Topics of patterns that are not assigned, since they do not exist any more: {sorted(gone)}"
            log = (*log, LogLine(said, LogLevel.WARNING))
    except MissingSourceTopicError as error:
        code = AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA
        return refused(subscriptions, Refusal(code=code, reason=str(error)))
    except AssignmentError as error:
        is_thrown = isinstance(error, CopartitionError)
        code = AssignorError.ASSIGNMENT_ERROR
        return refused(subscriptions, Refusal(code=code, reason=str(error), is_thrown_by_kafka=is_thrown))
    return PreparedRebalance(group=group, plan=plan, metadata=metadata, config=config, log=log)


def complete(prepared: PreparedRebalance, offsets: FetchedOffsets | None, now_ms: int) -> StreamsGroupAssignment:
    """The second step; ``offsets`` None: they could not be fetched, so the previous assignment is returned."""
    try:
        settings = prepared.config.settings
        state = application_state(prepared.group, prepared.plan, prepared.metadata, settings, offsets)
        assignment, remarks = _assigned(prepared.config, state, has_lags=offsets is not None)
        log = (*prepared.log, *remarks, leader_log.assigned(state, assignment))
        return _encoded(prepared, state, assignment, now_ms, log)
    except AssignmentError as error:
        refusal = Refusal(code=AssignorError.ASSIGNMENT_ERROR, reason=str(error))
        return refused([*prepared.group.members, *prepared.group.unreadable], refusal)


def _version_log(group: JoinedGroup) -> tuple[LogLine, ...]:
    lines = []
    if group.future_version is not None:
        lines.append(leader_log.version_probing(group.future_version, group.supported_version))
    if group.used_version < LATEST_SUPPORTED_VERSION:
        lines.append(leader_log.downgraded("metadata", group.used_version, LATEST_SUPPORTED_VERSION))
    if group.supported_version < LATEST_SUPPORTED_VERSION:
        lines.append(
            leader_log.downgraded("latest supported metadata", group.supported_version, LATEST_SUPPORTED_VERSION)
        )
    return tuple(lines)


def _assigned(
    config: LeaderConfig, state: ApplicationState, *, has_lags: bool
) -> tuple[Assignment, tuple[LogLine, ...]]:
    """The assignor's answer; without lags, or where the answer can't be carried out, the previous assignment."""
    if config.assignor_needs_lags and not has_lags:
        return config.fallback.assign(state), (leader_log.NO_LAGS,)
    try:
        assignment = assign_with_drains(config.assignor, state)
        found = violations(state, assignment)
    except InvalidAssignmentError as error:
        found = list(error.violations)
    except (Exception, SystemExit) as error:  # a user's class: whatever it raises must not take the group down
        found = [f"it raised {type(error).__name__}: {said_by(error)}"]
    if not found:
        return assignment, ()
    name = config.assignor.name if isinstance(config.assignor, CheckedAssignor) else type(config.assignor).__name__
    return config.fallback.assign(state), (leader_log.invalid_answer(name, found),)


def _encoded(
    prepared: PreparedRebalance,
    state: ApplicationState,
    assignment: Assignment,
    now_ms: int,
    log: tuple[LogLine, ...],
) -> StreamsGroupAssignment:
    group, config = prepared.group, prepared.config
    active_hosts, standby_hosts = _hosts(prepared, assignment)
    hosts = encode_hosts(group.used_version, active_hosts, standby_hosts)
    hands_over = False
    members = dict.fromkeys(group.unreadable, error_only(AssignorError.ASSIGNMENT_ERROR))
    is_stable = group.future_version is None
    lines = list(log)
    for joined, client in zip(group.clients, state.clients, strict=True):
        next_ms = _next_rebalance_ms(config, assignment, joined, now_ms)
        is_stable = is_stable and next_ms == LONG_MAX
        for member, tasks in _tasks_of_members(prepared, state, assignment, joined, client):
            lines += _withheld_log(member, tasks)
            if tasks.withheld:
                is_stable, hands_over = False, True
            elif next_ms != LONG_MAX:
                lines.append(leader_log.probing_followup(member, next_ms))
            info = AssignmentInfo(
                version=group.used_version,
                commonly_supported_version=group.supported_version,
                active_tasks=tasks.active,
                standby_tasks=tasks.standby,
                partitions_by_host=active_hosts,
                standby_partitions_by_host=standby_hosts,
                error_code=AssignorError.DRAINING if joined.is_draining else AssignorError.NONE,
                next_rebalance_ms=AT_ONCE_MS if tasks.withheld else next_ms,
            )
            members[member] = StreamsMemberAssignment(
                partitions=tasks.partitions, info=info, user_data=encode_assignment(info, hosts)
            )
            next_ms = LONG_MAX  # one member of a client is enough to start the rebalance
    lines.append(leader_log.STABLE if is_stable else leader_log.UNSTABLE)
    return StreamsGroupAssignment(
        members=members,
        is_stable=is_stable,
        hands_over=hands_over,
        left_out=frozenset(group.unreadable),
        log=tuple(lines),
        state=state,
        assignment=assignment,
    )


def _next_rebalance_ms(config: LeaderConfig, assignment: Assignment, joined: JoinedClient, now_ms: int) -> int:
    """When the client is to ask for the next rebalance, LONG_MAX for never: the leader to see whether warm-ups have caught up, a
    client for a deadline of its own, and one that is drained until it has no tasks."""
    held = assignment.clients.get(joined.process_id, ClientAssignment())
    due = []
    if assignment.followup_needed and joined.process_id == config.leader_process_id:
        due.append(now_ms + config.settings.probing_rebalance_interval_ms)
    if held.followup_deadline_ms is not None:
        due.append(held.followup_deadline_ms)
    if joined.is_draining and (held.active or held.standby):
        due.append(now_ms + DRAIN_PROBING_INTERVAL_MS)
    return min(due, default=LONG_MAX)


def _tasks_of_members(
    prepared: PreparedRebalance, state: ApplicationState, assignment: Assignment, joined: JoinedClient, client: ClientState
) -> list[tuple[str, MemberTasks]]:
    """The client's members in order, each with what it may have now."""
    assigned = assignment.clients.get(client.process_id, ClientAssignment())
    threads = prepared.config.to_threads(client, assigned, state.stateful_tasks, state.end_offset_sums)
    ownership = Ownership(
        owner_of=joined.owner_of,
        owned_in_group=prepared.group.owned_partitions,
        disputed=prepared.group.disputed_partitions,
    )
    kept_standbys = client.previous_standby & state.stateful_tasks
    return [
        (
            member,
            member_tasks(
                member,
                threads.active[member],
                threads.standby[member],
                ownership=ownership,
                partitions_of=prepared.plan.tasks,
                kept_standbys=kept_standbys,
            ),
        )
        for member in joined.members
    ]


def _withheld_log(member: str, tasks: MemberTasks) -> list[LogLine]:
    lines = [leader_log.withheld(task, member) for task in tasks.withheld]
    lines += [leader_log.withheld_as_standby(task, member) for task in tasks.withheld_as_standby]
    if tasks.withheld:
        lines.append(leader_log.immediate_followup(member))
    return lines


def _hosts(prepared: PreparedRebalance, assignment: Assignment) -> tuple[PartitionsByHost, PartitionsByHost]:
    """Partitions of the active and of the standby tasks of every client that answers queries, withheld ones included. Those of
    clients that name the same endpoint are one list: the last one to name it doesn't hide what another has."""
    active: dict[HostInfo, tuple[TopicPartition, ...]] = {}
    standby: dict[HostInfo, tuple[TopicPartition, ...]] = {}
    partitions_of = prepared.plan.tasks
    for client in prepared.group.clients:
        if client.endpoint is not None:
            tasks = assignment.clients.get(client.process_id, ClientAssignment())
            for section, of_client in ((active, tasks.active), (standby, tasks.standby)):
                found = [p for task in of_client for p in partitions_of[task]]
                section[client.endpoint] = tuple(sorted({*section.get(client.endpoint, ()), *found}))
    return active, standby
