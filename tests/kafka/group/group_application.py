"""A small application around a group member, for the tests: shares partitions cooperatively and records what happens.

Run as a program it is one member in a process of its own, to be killed or frozen: it prints one line for each event.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.member_config import GroupMemberConfig
from tidemill.kafka.group.protocol import Failed, GroupAssignment, GroupEvent, MemberAssignment, MemberSubscription
from tidemill.membership.member_state import Assigned, MembershipLost, RevokeAllRequested

SESSION_TIMEOUT_MS = 60_000
"""Nobody is thrown out because the machine is busy; a test that waits for the end of a session has a shorter one."""
SHORT_SESSION_MS = 3_000
HEARTBEAT_INTERVAL_MS = 250
LIMIT_S = 240.0


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> list[TopicPartition]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(LIMIT_S)
    # Made by the controller: who joins before the broker has heard of it is assigned nothing, and then joins again.
    Admin({"bootstrap.servers": bootstrap_servers}).wait_for_leaders([topic], timeout_s=LIMIT_S)
    return [TopicPartition(topic, number) for number in range(partitions)]


def shared_out(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
    """Each partition keeps its owner while shares stay equal; one that must move is withheld until it is free."""
    claimed = {p: m for m, said in sorted(members.items()) for p in said.owned_partitions}
    partitions = [TopicPartition(topic, number) for topic, count in sorted(counts.items()) for number in range(count)]
    share = -(-len(partitions) // len(members))
    given: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    moving = []
    for partition in partitions:
        owner = claimed.get(partition)
        if owner is not None and len(given[owner]) < share:
            given[owner].append(partition)
        else:
            moving.append(partition)
    for partition in moving:
        if partition not in claimed:
            given[min(given, key=lambda member: (len(given[member]), member))].append(partition)
    answers = {m: MemberAssignment(partitions=tuple(ps), user_data=b"for " + m.encode()) for m, ps in given.items()}
    return GroupAssignment(members=answers, partition_counts=counts)


@dataclass
class Application:
    """Implements GroupProtocol; ``run`` follows the events as a stream thread does between its batches."""

    topics: Sequence[str]
    owned: frozenset[TopicPartition] = frozenset()
    assignor: Callable[[Mapping[str, int], Mapping[str, MemberSubscription]], GroupAssignment] = shared_out
    events: list[GroupEvent] = field(default_factory=list)
    seen_subscriptions: list[Mapping[str, MemberSubscription]] = field(default_factory=list)
    member: GroupMember | None = None
    closed: bool = False
    reads_events: threading.Event = field(default_factory=threading.Event)
    may_join: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_join.set()

    def wait_until_taken_up(self) -> None:
        """It joins at once, whatever it still has to do, unless a test holds it back."""
        self.may_join.wait(LIMIT_S)

    def user_data(self) -> bytes:
        return b"said by the test"

    def owned_partitions(self) -> Sequence[TopicPartition]:
        return sorted(self.owned)

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> GroupAssignment:
        self.seen_subscriptions.append(members)
        return self.assignor(partition_counts, members)

    def run(self) -> None:
        while not self.closed:
            self.reads_events.wait()
            assert self.member is not None
            self.member.alive()
            while not self.member.events.empty():
                self.handle(self.member.events.get())
            time.sleep(0.02)

    def handle(self, event: GroupEvent) -> None:
        assert self.member is not None
        if isinstance(event, Assigned):
            revoked = self.owned - set(event.partitions)
            self.owned = frozenset(event.partitions)
            if revoked:
                self.member.request_rejoin("gave up what was revoked")
        elif isinstance(event, MembershipLost):
            self.owned = frozenset()
        elif isinstance(event, RevokeAllRequested):
            self.owned = frozenset()
            self.member.revoked_all()
        self.events.append(event)

    def of_kind(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def assigned(self) -> list[Assigned]:
        return self.of_kind(Assigned)

    @property
    def failed(self) -> list[Failed]:
        return self.of_kind(Failed)


def joined(bootstrap_servers: str, application: Application, group: str, name: str, **options: Any) -> GroupMember:
    """A started member, and a thread that reads its events."""
    settings = {"bootstrap_servers": bootstrap_servers, **options.pop("client_settings", {})}
    config: dict[str, Any] = {
        "client_settings": settings,
        "group_id": group,
        "client_id": name,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        **options,
    }
    application.member = GroupMember(GroupMemberConfig(**config), application)
    application.reads_events.set()
    threading.Thread(target=application.run, name=f"{name}-application", daemon=True).start()
    application.member.start()
    return application.member


def main(bootstrap_servers: str, topic: str, group: str, name: str) -> None:
    application = Application(topics=[topic])
    joined(bootstrap_servers, application, group, name, session_timeout_ms=SHORT_SESSION_MS)
    printed = 0
    while True:
        for event in application.events[printed:]:
            printed += 1
            print(type(event).__name__, getattr(event, "generation", 0), len(application.owned), flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
