"""A consumer as everybody writes it (subscribe, poll, process each record, commit), on Tidemill's group client, not Kafka's.

Decides what ``poll`` does before it fetches: the rebalance, on the caller's thread, with the listener's callbacks; and the commit
styles, each as Kafka's consumer has it. Run as a program it is one consumer in a process of its own, which writes a line for all
that it does (`ConsumerLog` reads them), each with one system call, so that nothing is missing after a SIGKILL:

    J thread            joins                  P number            a poll has returned so many records
    A thread p,p        was assigned           R partition offset  a record has been processed
    V thread p,p        gives up               C p:offset,...      these offsets are committed
    X why               a commit was refused   L why               the membership was lost, and all partitions with it

Orders on standard input: ``leave`` closes it in good order, ``crash`` has it killed by SIGKILL half-way through a poll's records.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as ClientPartition

from tidemill.errors import CommitRefusedError, RejoinError, TidemillError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.member_config import GroupMemberConfig
from tidemill.kafka.group.metadata import Membership, OffsetAndMetadata
from tidemill.kafka.group.protocol import Failed, GroupAssignment, MemberAssignment, MemberSubscription
from tidemill.membership.member_state import Assigned, MembershipLost, RevokeAllRequested

_COMMIT_LIMIT_S = 10.0
_RETRY_S = 0.02
_METADATA_LIMIT_S = 10.0
_FETCH_S = 0.1
_CRASH_SHARE = 0.7
"""An auto committer is killed when so much of its interval has gone: the worst moment is what the table is about."""


class CommitStyle(Enum):
    """When offsets are committed."""

    AUTO = "auto commit"
    SYNC = "commitSync before each poll"
    SYNC_EACH = "commitSync after each record"
    ASYNC = "commitAsync before each poll"
    ASYNC_LATE = "commitAsync, each request 300 ms late"
    ASYNC_REVOKED = "the same, and commitSync in onPartitionsRevoked"

    @property
    def is_async(self) -> bool:
        return self in (CommitStyle.ASYNC, CommitStyle.ASYNC_LATE, CommitStyle.ASYNC_REVOKED)

    @property
    def late_s(self) -> float:
        return 0.3 if self in (CommitStyle.ASYNC_LATE, CommitStyle.ASYNC_REVOKED) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """``record_s``, ``busy_s``: how long the application works on a record, and after the records of each poll."""

    servers: str
    topic: str
    group: str
    name: str
    log: str
    style: str = CommitStyle.SYNC.name
    eager: bool = True
    record_s: float = 0.004
    busy_s: float = 0.0
    auto_commit_interval_s: float = 1.0
    max_poll_records: int = 20
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 3_000
    heartbeat_interval_ms: int = 300


@dataclass(frozen=True, slots=True)
class Record:
    partition: TopicPartition
    offset: int


# --- the consumer ------------------------------------------------------------------------------------------------------


class PlainConsumer:
    """Kafka's consumer in outline. Everything happens on the caller's thread, but for joins, heartbeats and late commits.

    ``on_revoked(partitions)`` is called before these are given up, ``on_assigned`` after; a lost membership calls neither.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        note: Callable[[str], None],
        on_revoked: Callable[[Sequence[TopicPartition]], None],
        on_assigned: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        self._settings, self._note = settings, note
        self._on_revoked, self._on_assigned = on_revoked, on_assigned
        self._style = CommitStyle[settings.style]
        self._positions: dict[TopicPartition, int] = {}
        self._owned: frozenset[TopicPartition] = frozenset()
        self.committed_at_s = time.monotonic()
        config = GroupMemberConfig(
            client_settings={"bootstrap_servers": settings.servers},
            group_id=settings.group,
            client_id=settings.name,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            eager=settings.eager,
        )
        self._member = GroupMember(config, self)
        self._late: queue.Queue[tuple[float, Membership, dict[TopicPartition, int]]] = queue.Queue()
        threading.Thread(target=self._commit_late, name="async commits", daemon=True).start()
        self._fetcher = Consumer(
            {
                "bootstrap.servers": settings.servers,
                "group.id": "fetches only",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        # Else it looks for the partitions' leaders when they are assigned, and if that fails once, again after a second.
        self._fetcher.list_topics(settings.topic, _METADATA_LIMIT_S)

    def subscribe(self) -> None:
        self._member.start()

    def poll(self, timeout_s: float) -> list[Record]:
        """Rebalances if the group does; then records, at most max.poll.records of them."""
        deadline = time.monotonic() + timeout_s
        self._member.alive()
        if self._style is CommitStyle.AUTO and self._since_commit_s >= self._settings.auto_commit_interval_s:
            self.commit_sync()
        while True:
            self._rebalance()
            found = self._fetcher.consume(self._settings.max_poll_records, _FETCH_S) if self._owned else []
            records = [_record(message) for message in found if message.error() is None]
            self._positions |= {record.partition: record.offset + 1 for record in records}
            if records or time.monotonic() > deadline:
                return records
            if not self._owned:
                time.sleep(_RETRY_S)

    def commit_sync(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """All that the polls have returned, or ``offsets``; returns when it is committed or refused for good."""
        wanted = dict(self._positions if offsets is None else offsets)
        self._late.join()  # as Kafka's: what commitAsync has sent before is answered before
        deadline = time.monotonic() + _COMMIT_LIMIT_S
        self.committed_at_s = time.monotonic()
        while wanted:
            try:
                self._commit(wanted)
                return
            except CommitRefusedError as error:
                self._note(f"X {error}")
                return
            except RejoinError as error:  # between JoinGroup and SyncGroup: the next generation will be asked
                if time.monotonic() > deadline:
                    self._note(f"X {error}")
                    return
                time.sleep(_RETRY_S)

    def commit_async(self) -> None:
        """The request is made now and sent by another thread."""
        if self._positions:
            self._late.put((time.monotonic() + self._style.late_s, self._member.membership, dict(self._positions)))

    def close(self) -> None:
        """Leaves the group at once. Waits for no commitAsync, as Kafka's consumer did not in the article's version."""
        if self._style is CommitStyle.AUTO:
            self.commit_sync()
        self._on_revoked(sorted(self._owned))
        self._member.close(leave=True)
        self._fetcher.close()

    @property
    def _since_commit_s(self) -> float:
        return time.monotonic() - self.committed_at_s

    @property
    def is_late_in_its_interval(self) -> bool:
        """Of auto commit; others have none."""
        return self._style is not CommitStyle.AUTO or self._since_commit_s > _CRASH_SHARE * self._settings.auto_commit_interval_s

    def _commit(self, offsets: Mapping[TopicPartition, int], membership: Membership | None = None) -> None:
        self._member.commit({tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}, membership)
        self._note("C " + ",".join(f"{tp.partition}:{offset}" for tp, offset in sorted(offsets.items())))

    def _commit_late(self) -> None:
        while True:
            due, membership, offsets = self._late.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._commit(offsets, membership)
            except TidemillError as error:
                self._note(f"X {error}")
            finally:
                self._late.task_done()

    # --- the rebalance ---------------------------------------------------------------------------------------------

    def _rebalance(self) -> None:
        while not self._member.events.empty():
            event = self._member.events.get()
            if isinstance(event, Assigned):
                self._take(frozenset(event.partitions))
            elif isinstance(event, RevokeAllRequested):
                self._give_up(self._owned)
                self._member.revoked_all()
            elif isinstance(event, MembershipLost):
                self._note(f"L {event.reason}")
                self._drop(self._owned)
            elif isinstance(event, Failed) and event.fatal:
                raise event.error

    def _take(self, assigned: frozenset[TopicPartition]) -> None:
        revoked, added = self._owned - assigned, assigned - self._owned
        if revoked:
            self._give_up(revoked)
            self._member.request_rejoin("gave up what was revoked")
        if added:
            committed = self._member.committed(sorted(added), require_stable=False)
            starts = {tp: committed[tp].offset if tp in committed else 0 for tp in added}
            self._positions |= {tp: committed[tp].offset for tp in committed}
            self._owned |= added
            self._fetcher.incremental_assign([ClientPartition(tp.topic, tp.partition, at) for tp, at in starts.items()])
        self._on_assigned(sorted(added))

    def _give_up(self, revoked: frozenset[TopicPartition]) -> None:
        """With auto commit, what was processed is committed first: Kafka's onJoinPrepare."""
        if revoked and self._style is CommitStyle.AUTO:
            self.commit_sync()
        self._on_revoked(sorted(revoked))
        self._drop(revoked)

    def _drop(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            self._fetcher.incremental_unassign([ClientPartition(tp.topic, tp.partition) for tp in partitions])
        self._owned -= partitions
        self._positions = {tp: at for tp, at in self._positions.items() if tp not in partitions}

    # --- GroupProtocol ---------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Sequence[str]:
        return (self._settings.topic,)

    def wait_until_taken_up(self) -> None:
        """Joins at once: what it has not given up yet it claims."""

    def user_data(self) -> bytes:
        return b""

    def owned_partitions(self) -> Sequence[TopicPartition]:
        return sorted(self._owned)

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        partitions = [TopicPartition(t, number) for t, count in sorted(partition_counts.items()) for number in range(count)]
        given = _ranges(partitions, members) if self._settings.eager else _sticky(partitions, members)
        answers = {name: MemberAssignment(partitions=tuple(own)) for name, own in given.items()}
        return GroupAssignment(members=answers, partition_counts=partition_counts)


def _record(message: Message) -> Record:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Record(TopicPartition(topic, partition), offset)


def _ranges(partitions: Sequence[TopicPartition], members: Mapping[str, MemberSubscription]) -> dict[str, list[TopicPartition]]:
    """Kafka's RangeAssignor for one topic, whatever was owned before."""
    each, more = divmod(len(partitions), len(members))
    given, at = {}, 0
    for number, member in enumerate(sorted(members)):
        size = each + (number < more)
        given[member] = list(partitions[at : at + size])
        at += size
    return given


def _sticky(partitions: Sequence[TopicPartition], members: Mapping[str, MemberSubscription]) -> dict[str, list[TopicPartition]]:
    """Who has a partition keeps it while shares stay equal; what is to move is withheld until its owner has let go."""
    owner_of = {partition: member for member, said in sorted(members.items()) for partition in said.owned_partitions}
    share = -(-len(partitions) // len(members))
    given: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    for partition in partitions:
        owner = owner_of.get(partition)
        if owner is not None and len(given[owner]) < share:
            given[owner].append(partition)
    for partition in partitions:
        if partition not in owner_of:
            given[min(given, key=lambda member: (len(given[member]), member))].append(partition)
    return given


# --- the application ---------------------------------------------------------------------------------------------------


class _Application:
    """The article's loop."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings, self._style = settings, CommitStyle[settings.style]
        self._out = os.open(settings.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._wants_to_leave, self._is_to_crash = threading.Event(), threading.Event()
        self._consumer = PlainConsumer(settings, self._note, self._revoked, self._assigned)

    def run(self) -> None:
        threading.Thread(target=self._obey, name="orders", daemon=True).start()
        self._note(f"J {threading.current_thread().name}")
        self._consumer.subscribe()
        while not self._wants_to_leave.is_set():
            records = self._consumer.poll(1.0)
            self._note(f"P {len(records)}")
            for number, record in enumerate(records):
                self._process(record, is_half_way=number >= len(records) // 2)
            if records:
                time.sleep(self._settings.busy_s)
            if self._style is CommitStyle.SYNC:
                self._consumer.commit_sync()
            elif self._style.is_async:
                self._consumer.commit_async()
        self._consumer.close()

    def _process(self, record: Record, *, is_half_way: bool) -> None:
        time.sleep(self._settings.record_s)
        self._note(f"R {record.partition.partition} {record.offset}")
        if self._is_to_crash.is_set() and is_half_way and self._consumer.is_late_in_its_interval:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._style is CommitStyle.SYNC_EACH:
            self._consumer.commit_sync({record.partition: record.offset + 1})

    def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if self._style is CommitStyle.ASYNC_REVOKED and partitions:
            self._consumer.commit_sync()
        self._note(f"V {threading.current_thread().name} {_listed(partitions)}")

    def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._note(f"A {threading.current_thread().name} {_listed(partitions)}")

    def _note(self, text: str) -> None:
        os.write(self._out, f"{time.time():.4f} {text}\n".encode())

    def _obey(self) -> None:
        for line in sys.stdin:
            (self._wants_to_leave if line.strip() == "leave" else self._is_to_crash).set()
        os._exit(3)


def _listed(partitions: Sequence[TopicPartition]) -> str:
    return ",".join(str(tp.partition) for tp in partitions) or "-"


if __name__ == "__main__":
    _Application(ConsumerSettings(**json.loads(sys.argv[1]))).run()
    os._exit(0)
