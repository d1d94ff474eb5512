"""The whole leader, decode to encode, at the size that the project promises."""

from random import Random
from uuid import UUID

from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import AssignmentConfig
from tidemill.ids import ProcessId, TopicPartition
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.joined_group import Subscription
from tidemill.membership.leader import LeaderConfig, complete, prepare
from tidemill.membership.topic_plan import ClusterMetadata
from tidemill.membership.topology_metadata import TopicsInfo, TopologyMetadata
from tidemill.membership.wire import SubscriptionInfo, encode_subscription

MEMBERS, SUBTOPOLOGIES, PARTITIONS = 1_000, 10, 1_000


def test_a_thousand_members_are_assigned_ten_thousand_tasks_and_keep_them():
    random = Random(1)
    processes = [ProcessId.of(UUID(int=random.getrandbits(128))) for _ in range(MEMBERS)]
    facts = TopologyMetadata(
        subtopologies=tuple(
            TopicsInfo(
                subtopology=number, source_topics=frozenset({f"in{number}"}), changelog_topics=frozenset({f"log{number}"})
            )
            for number in range(SUBTOPOLOGIES)
        )
    )
    metadata = ClusterMetadata(partition_counts={f"in{number}": PARTITIONS for number in range(SUBTOPOLOGIES)})
    ends = {TopicPartition(f"log{s}", p): 100_000 for s in range(SUBTOPOLOGIES) for p in range(PARTITIONS)}
    config = LeaderConfig(
        leader_process_id=processes[0],
        assignor=HighAvailabilityTaskAssignor(),
        settings=AssignmentConfig(num_standby_replicas=1),
    )
    members = {
        f"app-{process}-StreamThread-1-consumer": _said(process, number) for number, process in enumerate(processes)
    }
    for _ in ("fresh", "steady"):
        answer = complete(prepare(members, metadata, facts, config), FetchedOffsets(end_offsets=ends), 0)
        assert sum(len(told.partitions) for told in answer.members.values()) == SUBTOPOLOGIES * PARTITIONS
        members = {
            member: _said(process, number, answer.members[member])
            for number, (process, member) in enumerate(zip(processes, members, strict=True))
        }


def _said(process, number, told=None):
    sums = {}
    if told is not None:
        sums = dict.fromkeys(told.info.active_tasks, -2) | dict.fromkeys(told.info.standby_tasks, 99_990)
    info = SubscriptionInfo(process_id=process, user_endpoint=f"host{number}:9000", task_offset_sums=sums)
    return Subscription(user_data=encode_subscription(info), owned_partitions=told.partitions if told else ())
