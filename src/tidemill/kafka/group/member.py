"""A member of a Kafka consumer group with an assignor of its own: the group half of one stream thread.

Decides when the member joins, syncs, sends heartbeats, commits and leaves; never what is owned. It posts events, and the
application finishes its batches, gives partitions up and asks for another rebalance in its own time: a running batch is never
interrupted, and no callback ever takes a partition away. ``GroupMemberConfig`` has its settings; names are
Kafka's, in underscores.

It has three threads. The membership thread joins, asks the application (GroupProtocol) and, if the member leads, watches the
partition counts. The heartbeat thread keeps the session alive meanwhile, whatever the application or the leader's assignor is
doing. The network thread is the client library's.

Invariants: heartbeats are sent from the response to JoinGroup to the next JoinGroup. Owned partitions are claimed only while the
membership lasts in which they were assigned. Every request carries the Membership that was current when it was decided on
(``state`` says what becomes of the answer).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping

from tidemill.deadline import Deadline
from tidemill.errors import (
    BatchLostError,
    CommitRefusedError,
    InstanceIdInUseError,
    RejoinError,
    RetriableError,
    StopError,
    TidemillError,
)
from tidemill.ids import TopicPartition
from tidemill.kafka.group.client import ClientClosedError, GroupClient, UnreachableError
from tidemill.kafka.group.coordinator import (
    FencedInstanceError,
    GroupCoordinator,
    JoinAnswer,
    MemberIdRequiredError,
    MembershipLostError,
    NotThereError,
    RebalancingError,
)
from tidemill.kafka.group.leader import GroupLeader
from tidemill.kafka.group.member_config import GroupMemberConfig
from tidemill.kafka.group.metadata import NO_GENERATION, NO_MEMBER_ID, Membership, OffsetAndMetadata
from tidemill.kafka.group.protocol import (
    GroupEvent,
    GroupProtocol,
    MemberSubscription,
    encode_subscription,
    own_assignment,
)
from tidemill.kafka.group.state import GroupPhase, MembershipState
from tidemill.log_format import LogEvent
from tidemill.start_trace import span

log = logging.getLogger("tidemill.group")

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 100, 1_000
_NEWS_LIMIT_S = 3.0
"""Time within which a broker knows a new partition. After it the partition counts as gone: a stream thread that tried to commit
its offset for longer would take up no other assignment."""
_COUNTS_CHECK_MS = 10_000
"""Kafka Streams sees that a source topic was deleted when a fetch fails, librdkafka's consumer passes such an error over; so the
leader looks more often than ``metadata.max.age.ms`` asks for, and sees added partitions sooner as well."""
_MISSING_TOPIC_CHECK_MS = 2_000
_LEFT_BEHIND = "the stream thread has not polled for max.poll.interval.ms"
_LEFT_BEHIND_DO = (
    "the functions of one batch take longer than max.poll.interval.ms: raise it, or have them take less; the log names the "
    "first record of the batch when they are done"
)


class _OvertakenError(Exception):
    """The membership went while a join was under way: what that join said and learned is void."""


def _still(membership: Membership | None) -> Membership:
    if membership is None:
        raise _OvertakenError("the membership was lost meanwhile")
    return membership


class GroupMember:
    """Thread-safe. ``start`` and ``close`` once each; a closed member stays closed."""

    def __init__(self, config: GroupMemberConfig, protocol: GroupProtocol) -> None:
        self.events: queue.SimpleQueue[GroupEvent] = queue.SimpleQueue()
        self._config = config
        self._protocol = protocol
        self._state = MembershipState(config.instance_id, self._post, has_follow_ups=not config.eager)
        self._client = GroupClient(
            config.client_settings,
            group_id=config.group_id,
            client_id=config.client_id,
            report_unreachable_after_ms=config.report_unreachable_after_ms,
            report=self._report,
        )
        self._coordinator = GroupCoordinator(
            self._client,
            group_id=config.group_id,
            group_instance_id=config.instance_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
        )
        self._leader = GroupLeader(self._coordinator, protocol, group_id=config.group_id, eager=config.eager)
        asked_ms = int(str(config.client_settings.get("metadata_max_age_ms", _COUNTS_CHECK_MS)))
        self._counts_check_ms = min(asked_ms, _COUNTS_CHECK_MS)
        self._said_by = f"[Consumer clientId={config.client_id}, groupId={config.group_id}]"
        self._polled_at = time.monotonic()
        self._threads: tuple[threading.Thread, ...] = ()
        self.confirmed_s = float("-inf")
        """Time (time.monotonic) at which the last heartbeat was sent that the coordinator has accepted, or the assignment came.
        Until a session timeout later no other member is assigned this member's partitions."""
        self.on_heartbeat: Callable[[float], None] = lambda _ms: None
        """Called on the heartbeat thread with the ms that each answer has taken. It must not block."""
        self.on_event: Callable[[], None] = lambda: None
        """Called when there is another event. It must not block."""

    def _post(self, event: GroupEvent) -> None:
        self.events.put(event)
        self.on_event()

    # For the application

    @property
    def membership(self) -> Membership:
        """A snapshot, at the cost of reading an attribute."""
        return self._state.membership

    @property
    def joining_since_s(self) -> float | None:
        """Since when (time.monotonic) the broker owes the answer to JoinGroup, or to the SyncGroup that follows."""
        return self._state.joining_since_s

    @property
    def confirmed_for_s(self) -> float:
        """Seconds from now for which the coordinator gives this member's partitions to no other; 0 if it may have done so, as it
        has not heard from the member for the session timeout. It waits for members that join."""
        session_s = self._config.session_timeout_ms / 1e3
        silent_s = 0 if self.joining_since_s is not None else time.monotonic() - self.confirmed_s
        return max(0.0, session_s - silent_s)

    def start(self) -> None:
        """Returns at once; the first join, and all that can go wrong with it, comes as events.

        Raises ConfigError for client settings that can't work.
        """
        self._client.open()
        self._polled_at = time.monotonic()
        name = self._config.client_id
        self._threads = (
            threading.Thread(target=self._run, args=(self._membership_loop,), name=f"{name}-membership", daemon=True),
            threading.Thread(target=self._run, args=(self._heartbeat_loop,), name=f"{name}-heartbeat", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def expect_rebalance(self) -> None:
        """Another member of this process is about to join or leave: the next heartbeats follow quickly."""
        self._state.expect_rebalance()

    def alive(self) -> None:
        """The stream thread's sign of life, due more often than every max.poll.interval.ms; else the member leaves."""
        self._polled_at = time.monotonic()
        if self._state.phase is GroupPhase.PARKED:
            self._state.unpark()

    def request_rejoin(self, reason: str) -> None:
        """Asks for a rebalance; during one, for another after it."""
        self._state.request_rejoin(reason)

    def revoked_all(self) -> None:
        """The answer to RevokeAllRequested (eager members only)."""
        self._state.revoked_all()

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        membership: Membership | None = None,
        *,
        timeout_ms: int = 30_000,
    ) -> None:
        """Commits under ``membership``, the current one by default; works during a rebalance too, up to its sync phase.

        Raises RejoinError if the group is between JoinGroup and SyncGroup, or counts a generation that this member is
        about to learn; CommitRefusedError if the generation is stale or the membership lost; BatchLostError if no
        answer came in time (committing again does no harm).
        """
        who = membership or self._state.membership
        deadline, news = Deadline.after(timeout_ms / 1000), Deadline.after(_NEWS_LIMIT_S)
        while True:
            if not who.is_member or who.incarnation != self._state.membership.incarnation:
                raise CommitRefusedError(
                    f"Group {self._config.group_id}: no commit under {who}, which is not a membership any more "
                    f"(now: {self._state.membership}). Go back to the committed offsets."
                )
            try:
                return self._coordinator.commit(who, offsets)
            except RebalancingError as error:
                self._state.rebalancing(who, str(error))
                raise RejoinError(f"{error}: commit again after the next assignment.") from error
            except MembershipLostError as error:
                if error.keeps_member_id and self._state.is_rejoining_from(who, or_has=membership is None):
                    raise RejoinError(f"{error}: it has just joined again, commit after the next assignment.") from error
                self._lost(who, error)
                raise CommitRefusedError(f"{error}. Go back to the committed offsets.") from error
            except FencedInstanceError as error:
                raise self._fenced(error) from error
            except ClientClosedError as error:
                raise StopError(f"The member of group {self._config.group_id} is closed.") from error
            except UnreachableError as error:
                if (news if isinstance(error, NotThereError) else deadline).left_s < _FIRST_PAUSE_MS / 1000:
                    raise BatchLostError(
                        f"A commit to group {self._config.group_id} did not succeed in time ({error}); "
                        f"whether it was carried out is not known."
                    ) from error
                time.sleep(_FIRST_PAUSE_MS / 1000)

    def committed(
        self, partitions: Collection[TopicPartition], *, require_stable: bool = True, timeout_ms: int = 30_000
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets; a partition without one is missing. Needs no membership.

        With ``require_stable``, waits while a transaction that commits offsets of these partitions is open, so that a
        new owner doesn't start before what the old one is about to commit. RetriableError after ``timeout_ms``.
        """
        try:
            return self._coordinator.committed(
                partitions, require_stable=require_stable, deadline=Deadline.after(timeout_ms / 1000)
            )
        except ClientClosedError as error:
            raise StopError(f"The member of group {self._config.group_id} is closed.") from error

    def hands_over(self, leave: bool | None) -> bool:
        """True if there are other members, who take over what this one has as soon as it is closed, and lose nothing by
        joining before (in an eager group all would stop)."""
        return self._leaves(leave) and not self._leader.is_alone and not self._config.eager

    def close(self, *, leave: bool | None = None, timeout_ms: int = 5_000) -> None:
        """Ends the threads and connections. A member that does not leave stays in the group until its session times out;
        ``leave`` overrides what ``leave_on_close`` says."""
        given_up = self._state.end()
        if given_up is not None and self._leaves(leave):
            self._leave(given_up, "the member was closed")
        self._client.close()
        deadline = Deadline.after(timeout_ms / 1000)
        for thread in self._threads:
            thread.join(deadline.left_s)
            if thread.is_alive():
                log.warning(LogEvent("thread-left-behind", group=self._config.group_id, thread=thread.name))

    def _leaves(self, leave: bool | None) -> bool:
        wanted = (leave, self._config.leave_on_close, self._config.instance_id is None)
        return next(wish for wish in wanted if wish is not None)

    # Threads

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except ClientClosedError:
            pass
        except TidemillError as error:
            self._fail(error)
        except Exception as error:
            log.exception(LogEvent("member-crashed", group=self._config.group_id))
            failure = StopError(f"The member of group {self._config.group_id} crashed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._fail(failure)

    def _membership_loop(self) -> None:
        pause_ms = _FIRST_PAUSE_MS
        while self._state.phase is not GroupPhase.ENDED:
            if not self._state.wait_to_join(self._until_next_check_s()):
                self._check_partition_counts()
            elif self._join():
                pause_ms = _FIRST_PAUSE_MS
            else:
                self._state.wait_ended(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)

    def _heartbeat_loop(self) -> None:
        last_s, longest_ms = 0.0, self._config.heartbeat_interval_ms
        while self._state.wait_to_heartbeat(last_s, longest_ms / 1000):
            longest_ms = self._heartbeat(self._state.membership)
            last_s = time.monotonic()

    # Joining

    def _join(self) -> bool:
        """One attempt; False if the next should wait a little. Serves whatever was asked for until it begins."""
        self._protocol.wait_until_taken_up()
        reason, before = self._state.begin_join()
        says = f"{self._said_by} (Re-)joining group"
        log.info(LogEvent("join", says=says, group=self._config.group_id, member=before.member_id, reason=reason))
        try:
            with span("group joined, assignment awaited"):
                is_assigned = self._join_and_sync(before, reason)
            if is_assigned:
                return True
        except RebalancingError as error:
            log.info(LogEvent("join-overtaken", group=self._config.group_id, reason=error))
            self._state.join_failed()
            return True
        except FencedInstanceError as error:
            raise self._fenced(error) from error
        except (UnreachableError, RetriableError, _OvertakenError) as error:
            if self._state.phase is GroupPhase.ENDED:  # closed during the join: what that did to it is no failure
                return False
            log.warning(LogEvent("join-failed", group=self._config.group_id, error=error))
        self._state.join_failed()
        return False

    def _join_and_sync(self, before: Membership, reason: str) -> bool:
        subscription = self._subscription(reason)
        data = encode_subscription(subscription)
        membership = _still(self._state.join_sent(before))
        joined: JoinAnswer | None = None
        try:
            while joined is None:
                try:
                    joined = self._coordinator.join(membership.member_id, data, reason)
                except MemberIdRequiredError as answer:
                    membership = _still(self._state.given_member_id(membership, answer.member_id))
            membership = _still(
                self._state.joined(membership, generation=joined.generation, member_id=joined.member_id)
            )
            assignment = own_assignment(self._coordinator.sync(membership, self._lead(joined, subscription)))
            self.confirmed_s = time.monotonic()
        except MembershipLostError as error:
            self._lost(membership, error)
            return False
        log.info(
            LogEvent(
                "assigned",
                says=f"{self._said_by} Successfully synced group in generation {membership.generation}",
                group=self._config.group_id,
                member=membership.member_id,
                generation=membership.generation,
                partitions=len(assignment.partitions),
            )
        )
        return self._state.assigned(membership, assignment)

    def _subscription(self, reason: str) -> MemberSubscription:
        owned: set[TopicPartition] = set()
        if self._config.eager:
            if self._state.assigned_in != NO_GENERATION:
                self._state.wait_until_revoked(reason)  # then user data are made, which name nothing that is at work
        elif self._state.assigned_in != NO_GENERATION:
            # What was assigned is claimed even if the application has yet to read of it: it will take it up.
            owned = {*self._protocol.owned_partitions(), *self._state.assigned_partitions}
        return MemberSubscription(
            member_id=self._state.membership.member_id,
            topics=tuple(self._protocol.topics),
            user_data=self._protocol.user_data(),
            owned_partitions=tuple(sorted(owned)),
            generation=self._state.assigned_in,
            instance_id=self._config.instance_id,
            rack=self._config.rack,
        )

    def _lead(self, joined: JoinAnswer, subscription: MemberSubscription) -> Mapping[str, bytes]:
        if not joined.is_leader:
            self._leader.follow()
            return {}
        if not joined.must_assign:
            self._leader.keep(subscription.topics)
            return {}
        log.info(LogEvent("assign", group=self._config.group_id, generation=joined.generation, members=len(joined.members)))
        return self._leader.assign(joined)

    def _until_next_check_s(self) -> float | None:
        if not self._leader.watches:
            return None
        return (_MISSING_TOPIC_CHECK_MS if self._leader.awaits_a_topic else self._counts_check_ms) / 1000

    def _check_partition_counts(self) -> None:
        if self._state.phase is not GroupPhase.STABLE:
            return
        try:
            changes = self._leader.changes()
        except UnreachableError as error:
            log.info(LogEvent("partition-counts-unknown", group=self._config.group_id, error=error))
            return
        if changes:
            self._state.request_rejoin(f"partition counts changed: {', '.join(changes)}")

    # Keeping and losing the membership

    def _heartbeat(self, membership: Membership) -> int:
        """One heartbeat; returns the most milliseconds until the next."""
        if (time.monotonic() - self._polled_at) * 1000 > self._config.max_poll_interval_ms:
            self._leave_behind(membership)
            return self._config.heartbeat_interval_ms
        sent_s = time.monotonic()
        try:
            self._coordinator.heartbeat(membership)
            self.confirmed_s = sent_s
            self.on_heartbeat((time.monotonic() - sent_s) * 1e3)
        except RebalancingError as error:
            self.confirmed_s = sent_s
            self._state.rebalancing(membership, str(error))
        except MembershipLostError as error:
            self._lost(membership, error)
        except FencedInstanceError as error:
            raise self._fenced(error) from error
        except UnreachableError as error:
            log.warning(LogEvent("heartbeat-failed", group=self._config.group_id, error=error))
            return min(_LONGEST_PAUSE_MS, self._config.heartbeat_interval_ms)
        return self._config.heartbeat_interval_ms

    def _leave_behind(self, membership: Membership) -> None:
        reason = f"{_LEFT_BEHIND} ({self._config.max_poll_interval_ms})"
        if self._state.parked(membership, reason):
            said = {"group": self._config.group_id, "member": membership.member_id, "reason": reason, "do": _LEFT_BEHIND_DO}
            log.error(LogEvent("left-behind", **said))
            if self._config.instance_id is None:
                self._leave(membership, _LEFT_BEHIND)

    def _leave(self, membership: Membership, reason: str) -> None:
        if membership.member_id == NO_MEMBER_ID and self._config.instance_id is None:
            return
        try:
            self._coordinator.leave(membership, reason)
        except Exception as error:  # whatever it is: the session's end does the same, later
            log.info(LogEvent("leave-failed", group=self._config.group_id, error=error))

    def _lost(self, membership: Membership, error: MembershipLostError) -> None:
        if self._state.lost(membership, str(error), keeps_member_id=error.keeps_member_id):
            log.warning(LogEvent("membership-lost", group=self._config.group_id, reason=error))

    def _fenced(self, error: FencedInstanceError) -> InstanceIdInUseError:
        """Joining again would only fence the other one in turn."""
        return InstanceIdInUseError(
            f"{error}: another member has joined group {self._config.group_id} with group.instance.id="
            f"{self._config.instance_id!r}. Each instance id may be in use once; this member stops."
        )

    def _report(self, error: TidemillError) -> None:
        log.error(LogEvent("unreachable", group=self._config.group_id, error=error))
        self._state.report(error)

    def _fail(self, error: TidemillError) -> None:
        given_up = self._state.end(error)
        if given_up is None:
            return
        log.error(LogEvent("member-failed", group=self._config.group_id, error=error))
        if self._config.instance_id is None:
            self._leave(given_up, str(error))
