"""Recompute recorded runs of Kafka's whole StreamsPartitionAssignor, round by round.

Decides only how a line's JSON maps to subscriptions, topics and offsets, and an answer back to JSON; what is assigned is
decided by ``tidemill.membership.leader``. A field that is an answer is never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import AssignmentConfig
from tidemill.documents import Document
from tidemill.errors import AssignmentError
from tidemill.ids import ProcessId, TopicPartition
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.group_assignment import StreamsGroupAssignment, StreamsMemberAssignment
from tidemill.membership.joined_group import Subscription
from tidemill.membership.leader import LeaderConfig, complete, prepare
from tidemill.membership.topic_plan import ClusterMetadata, CopartitionCheck, TopicToEnsure
from tidemill.membership.topology_metadata import InternalTopicConfig, TopicsInfo, TopologyMetadata
from tidemill.membership.wire import decode_assignment
from tidemill.replay.records import topic_partition


def replay_e2e(line: Document, topologies: Mapping[str, Document]) -> list[dict[str, object]]:
    """For each round of ``line`` its ``expected`` (what each member got), or ``{"error": ...}``.

    ``topologies`` are the recorded topologies by id; the line names its own.
    """
    return [result_json(answer) for answer, _ in replay_rounds(line, topologies)]


def replay_rounds(
    line: Document, topologies: Mapping[str, Document]
) -> list[tuple[StreamsGroupAssignment, tuple[TopicToEnsure, ...]]]:
    """For each round the leader's answer and the internal topics that it wanted ready."""
    recorded = topologies.get(line["topology"])
    if recorded is None:
        raise AssignmentError(
            f"the topology {line['topology']} of line {line.get('id')} is not known: {len(topologies)} topologies were "
            "given, expected that one among them"
        )
    topology = topology_of(recorded)
    metadata = ClusterMetadata(partition_counts=line["source_topic_partitions"])
    answers: list[tuple[StreamsGroupAssignment, tuple[TopicToEnsure, ...]]] = []
    for round_ in line["rounds"]:
        config = LeaderConfig(
            leader_process_id=ProcessId.parse(round_["leader_process_id"]),
            assignor=HighAvailabilityTaskAssignor(),
            settings=_settings(line["configs"]),
            copartition_check=CopartitionCheck.AS_KAFKA,
        )
        prepared = prepare(_subscriptions(round_["members"]), metadata, topology, config)
        if isinstance(prepared, StreamsGroupAssignment):
            answers.append((prepared, ()))
        else:
            answers.append((complete(prepared, _offsets(round_), round_["now_ms"]), prepared.internal_topics))
    return answers


def topology_of(topology: Document) -> TopologyMetadata:
    """A recorded topology; its copartition groups may be written as lists or as Java prints sets."""
    return TopologyMetadata(
        subtopologies=tuple(
            TopicsInfo(
                subtopology=part["subtopology"],
                source_topics=frozenset(part["source_topics"]),
                sink_topics=frozenset(part["sink_topics"]),
                changelog_topics=frozenset(part["changelog_topics"]),
            )
            for part in topology["subtopologies"]
            if part["source_topics"]
        ),
        internal_topics={
            name: InternalTopicConfig(
                name=name,
                is_repartition=entry["class"] == "RepartitionTopicConfig",
                enforced_partitions=entry["partitions"] if entry["enforced_partitions"] else None,
                settings=entry["properties"],
            )
            for name, entry in topology["internal_topics"].items()
        },
        copartition_groups=tuple(
            frozenset(group.strip("[]").split(", ") if isinstance(group, str) else group)
            for group in topology["copartition_groups"]
        ),
    )


def result_json(answer: StreamsGroupAssignment) -> dict[str, object]:
    """Assignments, decoded from the members' bytes; an error where Kafka's leader throws."""
    if answer.refusal is not None and answer.refusal.is_thrown_by_kafka:
        return {"error": answer.refusal.reason}
    return {member: _member_json(answer.members[member]) for member in sorted(answer.members)}


def _member_json(given: StreamsMemberAssignment) -> dict[str, object]:
    info = decode_assignment(given.user_data)
    return {
        "partitions": _texts(given.partitions),
        "active_tasks": [str(task) for task in info.active_tasks],
        "standby_tasks": {str(task): _texts(sorted(partitions)) for task, partitions in info.standby_tasks.items()},
        "next_rebalance_ms": info.next_rebalance_ms,
        "error_code": info.error_code,
        "version": info.version,
        "commonly_supported_version": info.commonly_supported_version,
    }


def _subscriptions(members: Iterable[Document]) -> dict[str, Subscription]:
    return {
        entry["member"]: Subscription(
            user_data=bytes.fromhex(entry["user_data_hex"]),
            owned_partitions=tuple(map(topic_partition, entry["owned_partitions"])),
        )
        for entry in members
    }


def _offsets(round_: Document) -> FetchedOffsets | None:
    """None where the run could not fetch them."""
    if round_["end_offsets_fetched"] is None or round_["committed_fetched"] is None:
        return None
    return FetchedOffsets(
        created_topics=frozenset(round_["newly_created_internal_topics"]),
        end_offsets=_by_partition(round_["end_offsets_fetched"]),
        committed_offsets=_by_partition(round_["committed_fetched"]),
    )


def _by_partition(offsets: Mapping[str, int]) -> dict[TopicPartition, int]:
    return {topic_partition(text): offset for text, offset in offsets.items()}


def _settings(configs: Document) -> AssignmentConfig:
    known = {name: configs[name.replace("_", ".")] for name in _SETTINGS if name.replace("_", ".") in configs}
    return AssignmentConfig(**known)


_SETTINGS = (
    "acceptable_recovery_lag",
    "max_warmup_replicas",
    "num_standby_replicas",
    "probing_rebalance_interval_ms",
)


def _texts(partitions: Iterable[TopicPartition]) -> list[str]:
    return [str(partition) for partition in partitions]
