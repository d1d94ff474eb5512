"""The instance's leader in a real group: other versions of the protocol, and the racks of the brokers' replicas."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from tests.kafka.group.acting_member import ActingMember
from tests.kafka.group.group_application import Application, create_topic, joined
from tests.waiting import until
from tidemill.kafka.admin.client import Admin, PartitionState
from tidemill.kafka.group.protocol import GroupAssignment, MemberAssignment, MemberSubscription
from tidemill.membership.wire import LATEST_SUPPORTED_VERSION, AssignmentInfo, encode_assignment

pytestmark = pytest.mark.broker

FUTURE, OLD = LATEST_SUPPORTED_VERSION + 1, 8
TASKS = ["0_0", "0_1", "0_2", "0_3"]


class Group:
    """Members on a topic of their own; all are closed in the end."""

    def __init__(self, servers: str, application: str) -> None:
        self.servers, self.application, self.topic = servers, application, f"{application}-input"
        create_topic(servers, self.topic, len(TASKS))
        self.members: list[Any] = []

    def join(self, number: int, **options: Any) -> ActingMember:
        member = ActingMember(self.servers, self.application, self.topic, number, **options).start()
        self.members.append(member)
        return member

    def join_as_leader(self, application: Application) -> None:
        self.members.append(joined(self.servers, application, self.application, "old"))
        assert until(lambda: bool(application.assigned))


@pytest.fixture
def group(bootstrap_servers: str, unique_name: Callable[[str], str]) -> Iterator[Group]:
    made = Group(bootstrap_servers, unique_name("led"))
    yield made
    for member in made.members:
        member.close()


def version(user_data: bytes) -> int:
    return int(struct.unpack_from(">i", user_data)[0])


def test_a_member_of_a_future_version_is_told_ours_and_costs_nobody_its_tasks(group: Group) -> None:
    old = group.join(1)
    assert until(lambda: old.tasks == TASKS)
    is_future = True

    def as_in_the_future(user_data: bytes) -> bytes:
        return struct.pack(">ii", FUTURE, FUTURE) + user_data[8:] if is_future else user_data

    new = group.join(2, said=as_in_the_future)
    assert until(lambda: bool(new.told))
    assert (new.told[0].version, new.told[0].commonly_supported_version) == (LATEST_SUPPORTED_VERSION,) * 2
    assert until(lambda: len(old.told) > 1)
    assert not new.tasks or set(new.tasks).isdisjoint(old.tasks)
    is_future = False
    new.member.request_rejoin("the group speaks an older version")  # as the answer's version makes a later Tidemill do
    assert until(lambda: len(old.tasks) == len(new.tasks) == 2)
    assert sorted(old.tasks + new.tasks) == TASKS


def test_a_member_that_is_answered_in_a_lower_version_rejoins_with_it_and_goes_up_when_it_leads(group: Group) -> None:
    heard: list[int] = []

    def as_in_the_past(_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        heard.extend(version(said.user_data) for said in members.values() if said.user_data != old.user_data())
        info = AssignmentInfo(version=OLD, commonly_supported_version=OLD)
        answer = MemberAssignment(user_data=encode_assignment(info))
        return GroupAssignment(members=dict.fromkeys(members, answer), partition_counts=dict(_counts))

    old = Application(topics=[group.topic], assignor=as_in_the_past)
    group.join_as_leader(old)
    member = group.join(1)
    assert until(lambda: heard[-1:] == [OLD])
    assert heard == [LATEST_SUPPORTED_VERSION, OLD], "one rebalance in our version, one in the group's"
    old.closed = True
    group.members[0].close()
    assert until(lambda: member.tasks == TASKS)
    assert until(lambda: member.told[-1].version == LATEST_SUPPORTED_VERSION)


class AdminWithRacks(Admin):
    """Replicas of the first half of a topic's partitions stand in rack a, of the second in b."""

    asked: Collection[str] = ()

    def describe_topics(
        self, topics: Collection[str], *, timeout_s: float | None = None
    ) -> dict[str, tuple[PartitionState, ...] | None]:
        AdminWithRacks.asked = topics
        found = super().describe_topics(topics, timeout_s=timeout_s)
        return {
            topic: states and tuple(
                PartitionState(leader=state.leader, racks=frozenset("a" if number < len(states) / 2 else "b"))
                for number, state in enumerate(states)
            )
            for topic, states in found.items()
        }  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "first"), [("none", ["0_0", "0_2"]), ("min_traffic", ["0_0", "0_1"])], ids=["without racks", "with racks"]
)
def test_tasks_go_where_the_replicas_of_their_partitions_are(group: Group, strategy: str, first: list[str]) -> None:
    settings: dict[str, Any] = {"make_admin": AdminWithRacks, "rack__aware__assignment__strategy": strategy}
    in_a = group.join(1, client__rack="a", **settings)
    in_b = group.join(2, client__rack="b", **settings)
    assert until(lambda: len(in_a.tasks) == len(in_b.tasks) == 2)
    assert in_a.tasks == first
    assert sorted(in_a.tasks + in_b.tasks) == TASKS
    assert strategy == "none" or group.topic in AdminWithRacks.asked
