"""Members and leader together, driven by a seeded random schedule of joins, late batches, losses and newcomers.

The coordinator is a stand-in of a few lines: it collects joins, lets the leader decide once all have joined, and posts
the assignments; members read them whenever the schedule lets them.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest

from tests.membership.two_subtopologies import CHANGELOG, FACTS
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import LONG_MAX, AssignmentConfig
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.joined_group import Subscription
from tidemill.membership.leader import LeaderConfig, complete, prepare
from tidemill.membership.member import step
from tidemill.membership.member_state import (
    Assigned,
    AssignTasks,
    CloseRequested,
    CloseStandbys,
    Drain,
    DrainRequested,
    GiveUpTasks,
    Hold,
    LeaveGroup,
    MemberConfig,
    MembershipLost,
    RejoinNow,
    RevokeTasks,
    TasksReleased,
    TimePassed,
    new_member,
)
from tidemill.membership.member_subscription import may_commit, next_subscription
from tidemill.membership.topic_plan import ClusterMetadata

PARTITIONS = 4
TASKS = [TaskId(subtopology, number) for subtopology in (0, 1) for number in range(PARTITIONS)]
OFFSETS = FetchedOffsets(end_offsets={TopicPartition(CHANGELOG, number): 100 for number in range(PARTITIONS)})


@dataclass
class Member:
    """One stream thread with its machine, and what the group knows of it."""

    name: str
    process: ProcessId
    state: object
    events: deque = field(default_factory=deque)
    under_way: list = field(default_factory=list)
    incarnation: int = 0
    assigned_in: int = -1
    claimable: tuple = ()
    joined: Subscription | None = None
    has_left: bool = False


class Group:
    def __init__(self, seed: int, settings: AssignmentConfig) -> None:
        self.random = Random(seed)
        self.settings = settings
        self.members: dict[str, Member] = {}
        self.now_ms = 0
        self.generation = 0
        self.is_rebalancing = False
        self.rebalances = 0
        self.history: list[str] = []

    # the group

    def add(self) -> None:
        number = len(self.members)
        process = ProcessId(number // 2 + 1, 0)
        state = new_member(MemberConfig(process_id=process))
        self.members[f"m{number}"] = Member(name=f"m{number}", process=process, state=state)
        self.rebalance()

    @property
    def present(self) -> list[Member]:
        return [member for member in self.members.values() if not member.has_left]

    def rebalance(self) -> None:
        self.is_rebalancing = True
        for member in self.present:
            member.joined = None

    def evict(self, member: Member) -> None:
        member.incarnation += 1
        member.assigned_in, member.claimable = -1, ()
        member.events.append(MembershipLost(reason="evicted", incarnation=member.incarnation))
        self.rebalance()

    def join(self, member: Member) -> None:
        """What was assigned is claimed even before the member reads of it; after a loss nothing is."""
        running = frozenset(task for task, had in member.state.held.items() if had.hold is Hold.OPEN)
        sums = {task: 100 for task in member.state.held if task.subtopology == 1}
        member.state, own = next_subscription(
            member.state,
            generation=member.assigned_in,
            incarnation=member.incarnation,
            offset_sums=sums,
            running=running,
        )
        owned = {*own.owned_partitions, *member.claimable}
        member.joined = Subscription(
            user_data=own.user_data, owned_partitions=tuple(sorted(owned)), generation=member.assigned_in
        )
        if all(other.joined for other in self.present):
            self.lead()

    def lead(self) -> None:
        self.is_rebalancing = False
        self.rebalances += 1
        self.generation += 1
        leader = min(self.present, key=lambda member: member.name)
        config = LeaderConfig(
            leader_process_id=leader.process, assignor=HighAvailabilityTaskAssignor(), settings=self.settings
        )
        prepared = prepare(
            {member.name: member.joined for member in self.present},
            ClusterMetadata(partition_counts={"in": PARTITIONS}),
            FACTS,
            config,
        )
        answer = complete(prepared, OFFSETS, self.now_ms)
        assert answer.refusal is None
        for member in self.present:
            told = answer.members[member.name]
            member.assigned_in, member.claimable = self.generation, told.partitions
            member.events.append(
                Assigned(
                    generation=self.generation,
                    member_id=member.name,
                    incarnation=member.incarnation,
                    partitions=told.partitions,
                    user_data=told.user_data,
                )
            )

    # the members' own side

    def feed(self, member: Member, event: object) -> None:
        member.state, instructions = step(member.state, event, self.now_ms)
        for instruction in instructions:
            self.history.append(f"{self.now_ms} {member.name} {instruction}")
            match instruction:
                case RevokeTasks(tasks=tasks) | CloseStandbys(tasks=tasks) | GiveUpTasks(tasks=tasks):
                    member.under_way += [task for task in sorted(tasks) if task not in member.under_way]
                case RejoinNow():
                    self.rebalance()
                case LeaveGroup():
                    member.has_left = True
                    if self.present:
                        self.rebalance()
                case AssignTasks(active=active, standby=standby):
                    assert not {*active, *standby} & {*member.under_way}

    def actions(self, busy: Member | None = None) -> list:
        """Everything that could happen next, as (weight, what to do); ``busy`` does not finish its batch."""
        found = []
        for member in self.present:
            if self.is_rebalancing and member.joined is None:
                found.append((4, lambda member=member: self.join(member)))
        for member in self.members.values():
            if member.events:
                found.append((3, lambda member=member: self.feed(member, member.events.popleft())))
            if member.under_way and member is not busy:
                found.append((1, lambda member=member: self.release(member)))
        found.append((1, self.tick))
        return found

    def release(self, member: Member) -> None:
        task = member.under_way.pop(self.random.randrange(len(member.under_way)))
        self.feed(member, TasksReleased(tasks=frozenset({task})))

    def tick(self) -> None:
        self.now_ms += self.random.choice([1, 20, 150])
        for member in self.present:
            self.feed(member, TimePassed())

    def act(self, busy: Member | None = None) -> None:
        weights, actions = zip(*self.actions(busy), strict=True)
        self.random.choices(actions, weights)[0]()
        self.check()

    def check(self) -> None:
        """No partition has two members that the group would let commit."""
        owners: dict[TopicPartition, str] = {}
        for member in self.members.values():
            for task, had in member.state.held.items():
                if may_commit(
                    member.state, [task], began_incarnation=member.state.incarnation, incarnation=member.incarnation
                ):
                    for partition in had.partitions:
                        other = owners.setdefault(partition, member.name)
                        assert other == member.name, (
                            f"{partition} of {other} and {member.name}:\n" + "\n".join(self.history[-40:])
                        )

    def settle(self) -> None:
        """Until nothing is left to do but to let time pass, and until no rebalance is due within seconds."""
        for _ in range(4_000):
            busy = self.is_rebalancing or any(m.events or m.under_way for m in self.members.values())
            soon = [m.state.next_rebalance_ms for m in self.present if m.state.next_rebalance_ms < self.now_ms + 5_000]
            if not busy and not soon:
                return
            if not busy:
                self.now_ms = min(soon)
            self.act()
        raise AssertionError("the group does not settle:\n" + "\n".join(self.history[-40:]))


SETTINGS = {
    "tasks move at once": AssignmentConfig(acceptable_recovery_lag=LONG_MAX),
    "with standbys": AssignmentConfig(acceptable_recovery_lag=10, num_standby_replicas=1),
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("seed", range(20))
def test_no_partition_ever_has_two_owners_and_the_group_settles(seed, settings):
    group = Group(seed, settings)
    for _ in range(3):
        group.add()
    disturbances = 0
    for _ in range(300):
        group.act()
        roll = group.random.random()
        if roll < 0.02 and len(group.present) < 6:
            group.add()
            disturbances += 1
        elif roll < 0.04:
            group.evict(group.random.choice(group.present))
            disturbances += 1
        elif roll < 0.05 and len(group.present) > 2:
            group.feed(group.random.choice(group.present), CloseRequested())
            disturbances += 1
    assert disturbances
    before = group.rebalances
    group.settle()
    held = [task for m in group.present for task, had in m.state.held.items() if had.role.value == "active"]
    assert sorted(held) == TASKS
    assert all(had.hold is Hold.OPEN for m in group.present for had in m.state.held.values())
    assert group.rebalances - before < 25, "\n".join(group.history[-60:])


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("seed", range(10))
def test_members_that_drain_and_change_their_minds_trouble_nobody(seed, settings):
    group = Group(seed, settings)
    for _ in range(4):
        group.add()
    seen = set()
    for _ in range(400):
        group.act()
        roll = group.random.random()
        if roll < 0.03:
            group.feed(group.random.choice(group.present), DrainRequested(is_wanted=roll < 0.02))
        elif roll < 0.04:
            group.evict(group.random.choice(group.present))
        seen.update(member.state.drain for member in group.present)
    assert Drain.UNDER_WAY in seen
    for member in group.present:
        group.feed(member, DrainRequested(is_wanted=False))
    group.settle()
    held = [task for m in group.present for task, had in m.state.held.items() if had.role.value == "active"]
    assert sorted(held) == TASKS
    assert {member.state.drain for member in group.present} == {Drain.NONE}


def test_a_slow_batch_of_the_old_owner_does_not_make_the_group_rebalance_without_end():
    group = Group(1, SETTINGS["tasks move at once"])
    group.add()
    group.settle()
    group.add()
    group.add()
    slow = group.members["m0"]
    while not slow.under_way:
        group.act()
    before, began_ms = group.rebalances, group.now_ms
    while group.now_ms < began_ms + 10_000:
        group.act(busy=slow)
    assert slow.under_way
    assert 5 < group.rebalances - before < 60
    group.settle()
