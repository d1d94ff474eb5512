"""The leader's part of a rebalance: decode what all members said, have the application assign, check, encode.

Decides whether the application's answer may be sent (it names every member; in a cooperative group nothing changes
hands while its old owner claims it) and whether a change of partition counts calls for another rebalance. Any member
may find itself leader in one generation and not in the next. What one member says, readable or not, never ends the leader.
A topic that was deleted and created again with the same number of partitions is warned of: no consumer notices, and each goes on
at the offset that it had reached.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidemill.errors import StopError
from tidemill.kafka.group.coordinator import FoundTopic, GroupCoordinator, JoinAnswer
from tidemill.kafka.group.protocol import (
    GroupAssignment,
    GroupProtocol,
    MemberSubscription,
    encode_assignment,
    handed_over_too_early,
    read_subscription,
)
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.group")
_CREATED_AGAIN = (
    "it was deleted and created again while the group read it: tasks go on at the offsets that they had reached, so that earlier "
    "records of the new topic are not processed, unless those offsets are gone, too (auto.offset.reset holds then). To process "
    "them, stop all instances and set the group's offsets: "
    "tidemill reset APP.py --input-topics TOPIC --to-offset 0"
)
_LOOKS_FOR_A_CREATED_TOPIC = 5
"""After these, 2 s apart, it was deleted before any look: without a rebalance its tasks would wait forever."""


@dataclass(frozen=True, slots=True)
class _Watch:
    """Partition counts behind the last assignment. A topic that was created for it counts as deleted only once it was ``seen``,
    which has the topic as it was last, or when as many ``looks`` have not found it as brokers may need to learn of it."""

    topics: tuple[str, ...]
    counts: Mapping[str, int]
    seen: Mapping[str, FoundTopic]
    looks: int = 0

    @property
    def awaits_a_topic(self) -> bool:
        """During the first looks only: a topic of a pattern that was deleted may never come back, and members subscribe to it."""
        return self.looks <= _LOOKS_FOR_A_CREATED_TOPIC and not self.seen.keys() >= set(self.topics)

    def changes(self, now: Mapping[str, FoundTopic]) -> list[str]:
        counts = _counts(now)
        return [
            f"{topic} {self.counts.get(topic, 'missing')} -> {counts.get(topic, 'missing')}"
            for topic in self.topics
            if counts.get(topic) != self.counts.get(topic)
            and (topic in now or topic in self.seen or self.looks > _LOOKS_FOR_A_CREATED_TOPIC)
        ]

    def created_again(self, now: Mapping[str, FoundTopic]) -> list[str]:
        """Topics that the group reads and that are others of the same name by now."""
        ids = {topic: found.topic_id for topic, found in self.seen.items() if found.topic_id}
        return [topic for topic in self.topics if topic in ids and topic in now and now[topic].topic_id not in ("", ids[topic])]


def _counts(found: Mapping[str, FoundTopic]) -> dict[str, int]:
    return {name: topic.partitions for name, topic in found.items()}


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
        found = self._coordinator.found_topics(names)
        self._watch = _Watch(topics=names, counts=_counts(found), seen=found)

    def assign(self, joined: JoinAnswer) -> Mapping[str, bytes]:
        """Assignments for SyncGroup, by member. Blocks for as long as the application's assignor takes.

        Raises StopError for an answer that must not be sent, and whatever the application raises.
        """
        members = {
            member_id: read_subscription(member_id, instance_id, data, generation=joined.generation)
            for member_id, instance_id, data in joined.members
        }
        topics = tuple(sorted({topic for member in members.values() for topic in member.topics}))
        found = self._look_at(topics)
        assignment = self._protocol.assign(_counts(found), members)
        self._check(members, assignment)
        self.is_alone = len(members) == 1
        self._watch = _Watch(topics=topics, counts=assignment.partition_counts, seen=found)
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
        now = self._look_at(self._watch.topics)
        self._watch = replace(self._watch, seen={**self._watch.seen, **now}, looks=self._watch.looks + 1)
        return self._watch.changes(now)

    def _look_at(self, topics: tuple[str, ...]) -> dict[str, FoundTopic]:
        found = self._coordinator.found_topics(topics, theirs=set(topics).difference(self._protocol.topics))
        for topic in [] if self._watch is None else self._watch.created_again(found):
            log.warning(LogEvent("topic-created-again", group=self._group_id, topic=topic, note=_CREATED_AGAIN))
        return found

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
