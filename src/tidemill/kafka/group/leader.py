"""The leader's part of a rebalance: decode what all members said, have the application assign, check, encode.

Decides whether the application's answer may be sent (it names every member; in a cooperative group nothing changes
hands while its old owner claims it) and whether a change of partition counts calls for another rebalance. Any member
may find itself leader in one generation and not in the next. What one member says, readable or not, never ends the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.errors import StopError
from tidemill.kafka.group.coordinator import GroupCoordinator, JoinAnswer
from tidemill.kafka.group.protocol import (
    GroupAssignment,
    GroupProtocol,
    MemberSubscription,
    encode_assignment,
    handed_over_too_early,
    read_subscription,
)


@dataclass(frozen=True, slots=True)
class _Watch:
    """Partition counts behind the last assignment. A topic that was created for it counts as deleted only once it was seen."""

    topics: tuple[str, ...]
    counts: Mapping[str, int]
    seen: frozenset[str]

    @property
    def awaits_a_topic(self) -> bool:
        return not self.seen.issuperset(self.topics)

    def changes(self, now: Mapping[str, int]) -> list[str]:
        return [
            f"{topic} {self.counts.get(topic, 'missing')} -> {now.get(topic, 'missing')}"
            for topic in self.topics
            if now.get(topic) != self.counts.get(topic) and (topic in now or topic in self.seen)
        ]


class GroupLeader:
    """Used by the membership thread only; ``is_alone`` may be read by any."""

    def __init__(self, coordinator: GroupCoordinator, protocol: GroupProtocol, *, group_id: str, eager: bool) -> None:
        self._coordinator = coordinator
        self._protocol = protocol
        self._group_id = group_id
        self._eager = eager
        self._watch: _Watch | None = None
        self.is_alone = False
        """True if the group had no other member at the last assignment."""

    def follow(self) -> None:
        """Another member leads this generation."""
        self._watch, self.is_alone = None, False

    def keep(self, topics: Iterable[str]) -> None:
        """Leads without assigning: the broker still has the assignment of this static member, which came back."""
        self.is_alone = False  # the others do not learn it
        names = tuple(sorted(topics))
        counts = self._coordinator.partition_counts(names)
        self._watch = _Watch(topics=names, counts=counts, seen=frozenset(counts))

    def assign(self, joined: JoinAnswer) -> Mapping[str, bytes]:
        """Assignments for SyncGroup, by member. Blocks for as long as the application's assignor takes.

        Raises StopError for an answer that must not be sent, and whatever the application raises.
        """
        members = {
            member_id: read_subscription(member_id, instance_id, data, generation=joined.generation)
            for member_id, instance_id, data in joined.members
        }
        topics = tuple(sorted({topic for member in members.values() for topic in member.topics}))
        counts = self._coordinator.partition_counts(topics, theirs=set(topics).difference(self._protocol.topics))
        assignment = self._protocol.assign(counts, members)
        self._check(members, assignment)
        self.is_alone = len(members) == 1
        self._watch = _Watch(topics=topics, counts=assignment.partition_counts, seen=frozenset(counts))
        return {member_id: encode_assignment(answer) for member_id, answer in assignment.members.items()}

    @property
    def watches(self) -> bool:
        return self._watch is not None

    @property
    def awaits_a_topic(self) -> bool:
        """A subscribed topic has not been seen yet: look again soon."""
        return self._watch is not None and self._watch.awaits_a_topic

    def changes(self) -> list[str]:
        """Differences from the partition counts behind the last assignment, one text per topic."""
        if self._watch is None:
            return []
        topics = self._watch.topics
        now = self._coordinator.partition_counts(topics, theirs=set(topics).difference(self._protocol.topics))
        self._watch = _Watch(
            topics=self._watch.topics, counts=self._watch.counts, seen=self._watch.seen | frozenset(now)
        )
        return self._watch.changes(now)

    def _check(self, members: Mapping[str, MemberSubscription], assignment: GroupAssignment) -> None:
        if assignment.members.keys() != members.keys():
            raise StopError(
                f"The assignor of group {self._group_id} answered for the members {sorted(assignment.members)}; "
                f"expected {sorted(members)}. This is a fault of the assignor."
            )
        counting = {member: said for member, said in members.items() if member not in assignment.left_out}
        early = () if self._eager else handed_over_too_early(counting, assignment.members)
        if early:
            raise StopError(
                f"The assignor of group {self._group_id} gives {', '.join(map(str, early))} to new owners while the "
                f"old ones still claim them; expected them to be withheld for one rebalance. This is a fault of the "
                f"assignor."
            )
