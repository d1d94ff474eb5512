"""The I/O of a rebalance's leader: internal topics, vanished members' transactions, offsets.

Decides only the order of these steps and what a failure of each means; what is assigned to whom is ``membership.leader``'s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from tidemill.assignment.choice import choose_assignor
from tidemill.assignment.kip441.high_availability import Compatibility
from tidemill.assignment.model import AssignmentConfig, RackStrategy
from tidemill.assignment.threads import assign_to_threads, assign_to_threads_2_7
from tidemill.config.slices import GroupConfig
from tidemill.config.values import DataClientSettings, GroupClientSettings
from tidemill.errors import PartitionCountError, RetriableError, TidemillError
from tidemill.ids import ProcessId, TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.kafka.admin.groups import member_hosts
from tidemill.kafka.data.fencing import fence_vanished
from tidemill.kafka.group import protocol as group_protocol
from tidemill.log_format import LogEvent
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.group_assignment import StreamsGroupAssignment
from tidemill.membership.leader import (
    LeaderConfig,
    PreparedRebalance,
    complete,
    prepare,
)
from tidemill.membership.leader_log import LogLevel, LogLine
from tidemill.membership.topic_plan import ClusterMetadata
from tidemill.membership.topology_metadata import TopologyMetadata
from tidemill.runtime.group.rebalance_history import RebalanceHistory

log = logging.getLogger("tidemill.leader")
_LEVELS = {LogLevel.INFO: logging.INFO, LogLevel.WARNING: logging.WARNING, LogLevel.ERROR: logging.ERROR}
_HOSTS_LIMIT_S = 2.0
_COMMITTED_LIMIT_S = 2.0


class Leader:
    """Any member of the group may be asked to lead; this is what it then does.

    ConfigError if ``task.assignor.class`` names no assignor.
    """

    def __init__(
        self,
        config: GroupConfig,
        admin: Admin,
        process_id: ProcessId,
        topology: TopologyMetadata,
        group_settings: GroupClientSettings,
        producer_settings: DataClientSettings,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        history: RebalanceHistory | None = None,
    ) -> None:
        self._config, self._admin, self._topology, self._now_ms = config, admin, topology, now_ms
        self._history = history or RebalanceHistory()
        self._group_settings, self._producer_settings = group_settings, producer_settings
        compatibility = Compatibility(config.compatibility)
        chosen = choose_assignor(config.task_assignor_class, compatibility)
        self._leader_config = LeaderConfig(
            leader_process_id=process_id,
            assignor=chosen.assignor,
            assignor_needs_lags=chosen.needs_lags,
            to_threads=assign_to_threads_2_7 if compatibility is Compatibility.KAFKA_2_7 else assign_to_threads,
            settings=AssignmentConfig(
                acceptable_recovery_lag=config.acceptable_recovery_lag,
                num_standby_replicas=config.num_standby_replicas,
                max_warmup_replicas=config.max_warmup_replicas,
                probing_rebalance_interval_ms=config.probing_rebalance_interval_ms,
                rack_aware_assignment_tags=config.rack_aware_assignment_tags,
                rack_aware_assignment_strategy=RackStrategy(config.rack_aware_assignment_strategy),
                rack_aware_assignment_traffic_cost=config.rack_aware_assignment_traffic_cost,
                rack_aware_assignment_non_overlap_cost=config.rack_aware_assignment_non_overlap_cost,
            ),
        )

    def reads(self, topology: TopologyMetadata) -> None:
        """The instance reads more topics from now on."""
        self._topology = topology

    def assign(
        self, member: str, partition_counts: Mapping[str, int], members: Mapping[str, group_protocol.MemberSubscription]
    ) -> group_protocol.GroupAssignment:
        """The whole of a rebalance; RetriableError where it should be tried again."""
        began_ms = self._now_ms()
        prepared = prepare(members, ClusterMetadata(partition_counts=partition_counts), self._topology, self._leader_config)
        if isinstance(prepared, StreamsGroupAssignment):
            return self._answer(member, prepared, partition_counts)
        self._tell_hosts_of_shared(prepared)
        created = self._ensure_topics(prepared)
        processes = {str(client.process_id) for client in prepared.group.clients}
        fence_vanished(self._group_settings, self._producer_settings, self._config.application_id, processes)
        self._tell_missing(prepared, created)
        done = complete(prepared, self._offsets(prepared, created), self._now_ms())
        self._history.add(prepared, done, began_ms, self._now_ms() - began_ms)
        return self._answer(member, done, prepared.partition_counts)

    def _answer(self, member: str, done: StreamsGroupAssignment, counts: Mapping[str, int]) -> group_protocol.GroupAssignment:
        for line in done.log:
            _say(member, line)
        return group_protocol.GroupAssignment(members=done.members, partition_counts=dict(counts), left_out=done.left_out)

    def _tell_hosts_of_shared(self, prepared: PreparedRebalance) -> None:
        """Logs the hosts of instances with one process id: members don't say it, and the default client ids are alike."""
        shared = {member for members in prepared.group.shared_process_ids.values() for member in members}
        if not shared:
            return
        try:
            found = member_hosts(self._group_settings, self._config.application_id, limit_s=_HOSTS_LIMIT_S)
        except TidemillError as problem:  # the assignment does not depend on it
            log.warning(LogEvent("process-id-shared", members=sorted(shared), problem=problem))
            return
        hosts = {member: host for member, host in found.items() if member in shared}
        log.warning(LogEvent("process-id-shared", hosts=hosts))

    def _ensure_topics(self, prepared: PreparedRebalance) -> frozenset[str]:
        """Makes what is missing; the names of what was made."""
        wanted = {topic.name: topic for topic in prepared.internal_topics}
        if not wanted:
            return frozenset()
        try:
            created = self._admin.create_topics(
                TopicSpec(
                    name=name,
                    partitions=topic.partitions,
                    replication_factor=self._config.replication_factor,
                    configs=dict(topic.config.settings),
                )
                for name, topic in wanted.items()
            )
        except PartitionCountError as other:
            raise PartitionCountError(
                other.topic, found=other.found, expected=other.expected, advice=_OTHER_PARTITIONS
            ) from other
        for name in sorted(created):
            log.info(LogEvent("topic-created", topic=name, partitions=wanted[name].partitions))
        return created

    def _tell_missing(self, prepared: PreparedRebalance, created: frozenset[str]) -> None:
        """Says of what was made that it may have been deleted, with what was in it, unless this is the first start."""
        if not created or not self._has_run_before(prepared, created):
            return
        for topic in prepared.internal_topics:
            if topic.name in created:
                lost = _LOST_RECORDS if topic.config.is_repartition else _LOST_STATE
                log.warning(LogEvent("topic-was-missing", topic=topic.name, reason=f"{_HAS_RUN}: {lost}", do=_IF_DELETED))

    def _has_run_before(self, prepared: PreparedRebalance, created: frozenset[str]) -> bool:
        """True if the group has committed offsets of a topic that was there. Those of a deleted one go with it."""
        read = {tp for partitions in prepared.plan.tasks.values() for tp in partitions if tp.topic not in created}
        try:
            return bool(self._admin.committed_offsets(self._config.application_id, sorted(read), timeout_s=_COMMITTED_LIMIT_S))
        except RetriableError as problem:  # the assignment does not depend on it
            log.warning(LogEvent("offsets-not-fetched", problem=problem))
            return False

    def _offsets(self, prepared: PreparedRebalance, created: frozenset[str]) -> FetchedOffsets | None:
        try:
            sources = prepared.source_changelog_partitions(created)
            application = self._config.application_id
            return FetchedOffsets(
                created_topics=created,
                end_offsets=self._admin.end_offsets(prepared.changelog_partitions(created)),
                committed_offsets=self._admin.committed_offsets(application, sources) if sources else {},
                partition_racks=self._racks(prepared) if prepared.needs_racks else {},
            )
        except RetriableError as problem:
            log.warning(LogEvent("offsets-not-fetched", problem=problem))
            return None

    def _racks(self, prepared: PreparedRebalance) -> dict[TopicPartition, frozenset[str]]:
        """Racks of the replicas of all that the tasks read and write; brokers without broker.rack leave theirs out."""
        plan = prepared.plan
        read = {partition.topic for partitions in plan.tasks.values() for partition in partitions}
        written = {partition.topic for partitions in plan.changelogs.values() for partition in partitions}
        described = self._admin.describe_topics(sorted(read | written))
        return {
            TopicPartition(topic, number): state.racks
            for topic, states in described.items()
            for number, state in enumerate(states or ())
        }


_OTHER_PARTITIONS = (
    "partitions were added to it, or the topics that it follows have another number of them now, so keys belong to other tasks "
    "than their state does. The topic holds the application's state or records on their way: don't delete it. Stop all "
    "instances, and run the program under another application.id until it has caught up; or give the state up and start over: "
    "tidemill reset APP.py --execute --local-state"
)


_HAS_RUN = "the group has committed offsets, and this topic did not exist"
_LOST_RECORDS = (
    "if it was deleted, the records in it that were not processed yet are lost; a thread that keeps its task goes on at the "
    "offset that it had reached"
)
_LOST_STATE = "if it was deleted, its store begins empty"
_IF_DELETED = (
    "nothing, if it is of an operator that is new in the program; else, to compute the results again from the source topics: "
    "tidemill reset APP.py --execute --local-state"
)


def _say(member: str, line: LogLine) -> None:
    log.log(_LEVELS[line.level], "stream-thread [%s] %s", member, line.text)
