"""State of one group member: its phase, its Membership and whether it must join again.

Decides which responses of the broker count. The membership thread joins and syncs, the heartbeat thread sees evictions and
rebalances; both send a request for the Membership of that time, and pass it back with the response. A response for a Membership
that was replaced meanwhile is dropped: so a late heartbeat response neither starts a second rebalance nor removes a member that
has just rejoined.

    OUT      not in the group, or about to join          -> JOINING, ENDED
    JOINING  JoinGroup sent, or held by the broker         -> SYNCING, OUT, ENDED
    SYNCING  generation known, assignment awaited          -> STABLE, JOINING, OUT, PARKED, ENDED
    STABLE   assigned                                      -> JOINING, OUT, PARKED, ENDED
    PARKED   has left because its stream thread stopped polling -> OUT, ENDED
    ENDED    closed, or failed for good

Heartbeats are sent in SYNCING and STABLE. Every loss of a generation raises the incarnation and posts MembershipLost; events are
posted under the lock, so their order is the order in which things happened. What to do about any of it is the
application's decision: nothing here changes what is owned.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum

from tidemill.errors import TidemillError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.metadata import NO_GENERATION, NO_MEMBER_ID, Membership
from tidemill.kafka.group.protocol import Failed, GroupEvent, MemberAssignment
from tidemill.membership.member_state import Assigned, MembershipLost, RevokeAllRequested


class GroupPhase(Enum):
    OUT = "out"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    PARKED = "parked"
    ENDED = "ended"


_NEXT: Mapping[GroupPhase, frozenset[GroupPhase]] = {
    GroupPhase.OUT: frozenset({GroupPhase.JOINING, GroupPhase.ENDED}),
    GroupPhase.JOINING: frozenset({GroupPhase.SYNCING, GroupPhase.OUT, GroupPhase.ENDED}),
    GroupPhase.SYNCING: frozenset({GroupPhase.STABLE, GroupPhase.JOINING, GroupPhase.OUT, GroupPhase.PARKED, GroupPhase.ENDED}),
    GroupPhase.STABLE: frozenset({GroupPhase.JOINING, GroupPhase.OUT, GroupPhase.PARKED, GroupPhase.ENDED}),
    GroupPhase.PARKED: frozenset({GroupPhase.OUT, GroupPhase.ENDED}),
    GroupPhase.ENDED: frozenset(),
}
_HEARTBEATS = frozenset({GroupPhase.SYNCING, GroupPhase.STABLE})
_UNANSWERED = frozenset({GroupPhase.JOINING, GroupPhase.SYNCING})


_SHORTEST_PAUSE_S = 0.025


def heartbeat_due(last_s: float, expected_s: float, interval_s: float) -> float:
    """Time of the next heartbeat: the pause is a quarter of the time since a rebalance was expected, up to the interval.

    One is expected after each assignment: a cooperative rebalance is followed by another one as soon as the moving tasks are
    revoked, and all members must notice it before the new owners get them. With pauses of the whole interval that alone would
    stop every moving task for seconds. This costs some 25 heartbeats for each rebalance.
    """
    since_s = max(0.0, last_s - expected_s)
    return max(last_s, expected_s) + min(interval_s, max(_SHORTEST_PAUSE_S, since_s / 4))


class MembershipState:
    """Thread-safe. Methods that take a Membership return False, or None, if it is no longer the current one.

    ``has_follow_ups``: one rebalance is followed by another when what moves has been given up (not in an eager group)."""

    def __init__(
        self, group_instance_id: str | None, post: Callable[[GroupEvent], None], *, has_follow_ups: bool = True
    ) -> None:
        self._changed = threading.Condition()
        self._post, self._has_follow_ups = post, has_follow_ups
        self._membership = Membership(group_instance_id=group_instance_id)
        self._phase = GroupPhase.OUT
        self._assigned_in = NO_GENERATION
        self._expected_at_s = -math.inf
        self._joining_since_s: float | None = None
        self._assigned_partitions: tuple[TopicPartition, ...] = ()
        self._rejoin: str | None = "first join"
        self._joining_for: str | None = None
        self._revocation_awaited = False

    @property
    def membership(self) -> Membership:
        return self._membership

    @property
    def phase(self) -> GroupPhase:
        return self._phase

    @property
    def joining_since_s(self) -> float | None:
        """Time (time.monotonic) of the join that waits for an assignment; None if there is none."""
        return self._joining_since_s

    @property
    def assigned_in(self) -> int:
        """The generation of the last assignment that still holds, -1 if there is none."""
        return self._assigned_in

    @property
    def assigned_partitions(self) -> tuple[TopicPartition, ...]:
        """Partitions that the assignment lets this member own, whether or not the application has read the event yet."""
        return self._assigned_partitions

    # Waiting

    def wait_to_join(self, timeout_s: float | None) -> bool:
        """True as soon as a join is wanted and possible; False after the time, or when ENDED."""
        with self._changed:
            self._changed.wait_for(self._is_join_due, timeout_s)
            return self._is_join_due() and self._phase is not GroupPhase.ENDED

    def wait_to_heartbeat(self, last_s: float, interval_s: float) -> bool:
        """True when the next heartbeat is due after the one at ``last_s`` (time.monotonic); False when ENDED."""
        with self._changed:
            while self._phase is not GroupPhase.ENDED:
                left_s = heartbeat_due(last_s, self._expected_at_s, interval_s) - time.monotonic()
                if self._phase not in _HEARTBEATS:
                    self._changed.wait()
                elif left_s <= 0:
                    return True
                else:
                    self._changed.wait(left_s)
            return False

    def expect_rebalance(self) -> None:
        """Another member is about to join or leave: heartbeats follow each other quickly for a while, as after an assignment."""
        with self._changed:
            self._expected_at_s = time.monotonic()
            self._changed.notify_all()

    def wait_ended(self, timeout_s: float) -> bool:
        """True as soon as the member is ENDED; False after the time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._phase is GroupPhase.ENDED, timeout_s)

    def wait_until_revoked(self, reason: str) -> bool:
        """Posts RevokeAllRequested and waits for ``revoked_all``; False if the membership went meanwhile (nothing is left)."""
        with self._changed:
            before = self._membership
            self._revocation_awaited = True
            self._post(RevokeAllRequested(reason=reason))
            self._changed.wait_for(lambda: not self._revocation_awaited or self._membership is not before)
            self._revocation_awaited = False
            if self._membership is not before:
                return False
            self._assigned_partitions = ()
            return True

    # Called by the membership thread

    def begin_join(self) -> tuple[str, Membership]:
        """Takes the request for a join; one that comes later asks for another join after this one."""
        with self._changed:
            self._joining_for, self._rejoin = self._rejoin or "unknown reason", None
            return self._joining_for, self._membership

    def join_sent(self, membership: Membership) -> Membership | None:
        """The identity to join with; from here to ``joined`` no heartbeat is sent.

        None if the membership was lost since ``begin_join``: its owned partitions must not be claimed any more.
        """
        with self._changed:
            if self._membership is not membership or self._phase is GroupPhase.ENDED:
                return None
            if self._phase is not GroupPhase.JOINING:
                self._enter(GroupPhase.JOINING)
            self._membership = replace(membership, is_stable=False)
            self._joining_since_s = time.monotonic()
            return self._membership

    def given_member_id(self, membership: Membership, member_id: str) -> Membership | None:
        """The identity for the second JoinGroup, with the member id that the broker has returned to the first one (KIP-394)."""
        with self._changed:
            if self._membership is not membership:
                return None
            self._membership = replace(membership, member_id=member_id)
            return self._membership

    def joined(self, membership: Membership, *, generation: int, member_id: str) -> Membership | None:
        """The Membership of the new generation: the one that commits must carry from now on."""
        with self._changed:
            if self._membership is not membership:
                return None
            self._membership = replace(membership, generation=generation, member_id=member_id)
            self._enter(GroupPhase.SYNCING)
            return self._membership

    def assigned(self, membership: Membership, assignment: MemberAssignment) -> bool:
        """The response of SyncGroup: the member is STABLE, and Assigned is posted."""
        with self._changed:
            if self._membership is not membership:
                return False
            self._membership = replace(membership, is_stable=True)
            self._assigned_in = membership.generation
            if self._has_follow_ups:
                self._expected_at_s = time.monotonic()
            self._assigned_partitions = assignment.partitions
            self._joining_for = None
            self._enter(GroupPhase.STABLE)
            self._post(
                Assigned(
                    generation=membership.generation,
                    member_id=membership.member_id,
                    incarnation=membership.incarnation,
                    partitions=assignment.partitions,
                    user_data=assignment.user_data,
                )
            )
            return True

    def join_failed(self) -> None:
        """The join must be tried again, for the reason that it had."""
        with self._changed:
            self._rejoin = self._rejoin or self._joining_for
            self._joining_for = self._joining_since_s = None

    # Called by any thread

    def request_rejoin(self, reason: str) -> None:
        """Requests a join; the first reason counts until the join begins."""
        with self._changed:
            if self._phase is not GroupPhase.ENDED:
                self._rejoin = self._rejoin or reason
                self._changed.notify_all()

    def rebalancing(self, membership: Membership, reason: str) -> bool:
        """A heartbeat or commit was answered with a rebalance; dropped if a join that serves it is under way."""
        with self._changed:
            if self._membership is not membership or not membership.is_stable or self._joining_for is not None:
                return False
            self._rejoin = self._rejoin or reason
            self._changed.notify_all()
            return True

    def is_rejoining_from(self, membership: Membership, *, or_has: bool) -> bool:
        """True if a join under this membership is under way (``or_has``: or was answered since). That the broker no longer knows
        its generation is then no loss of membership: if it is one, the response of the join says so."""
        with self._changed:
            now = self._membership
            if now.incarnation != membership.incarnation:
                return False
            if now.generation == membership.generation:
                return self._phase is GroupPhase.JOINING
            return or_has

    def lost(self, membership: Membership, reason: str, *, keeps_member_id: bool = False) -> bool:
        """The membership is over (evicted, fenced or unknown to the broker): posts MembershipLost and requests a join.

        ``keeps_member_id``: the broker still knows the member, only its generation is outdated; the join uses the same id.
        """
        with self._changed:
            if self._membership is not membership or self._phase is GroupPhase.ENDED:
                return False
            self._lose(reason, membership.member_id if keeps_member_id else NO_MEMBER_ID)
            if self._phase is not GroupPhase.OUT:
                self._enter(GroupPhase.OUT)
            self._rejoin = self._rejoin or reason
            return True

    def parked(self, membership: Membership, reason: str) -> bool:
        """The member leaves by its own decision (``max.poll.interval.ms``) and joins again only after ``unpark``."""
        with self._changed:
            if self._membership is not membership or self._phase not in _HEARTBEATS:
                return False
            self._lose(reason, NO_MEMBER_ID)
            self._enter(GroupPhase.PARKED)
            self._rejoin = self._rejoin or reason
            return True

    def unpark(self) -> None:
        """The stream thread polls again: a parked member may join."""
        with self._changed:
            if self._phase is GroupPhase.PARKED:
                self._enter(GroupPhase.OUT)

    def revoked_all(self) -> None:
        """The answer to RevokeAllRequested; ends ``wait_until_revoked``."""
        with self._changed:
            self._revocation_awaited = False
            self._changed.notify_all()

    def report(self, error: TidemillError) -> None:
        """Posts an error that does not end the member: it passes by itself, or needs an operator."""
        self._post(Failed(error=error, fatal=False))

    def end(self, error: TidemillError | None = None) -> Membership | None:
        """No more joins and heartbeats; returns the Membership that was given up, None when ENDED before."""
        with self._changed:
            if self._phase is GroupPhase.ENDED:
                return None
            given_up = self._membership
            self._lose(None if error is None else str(error), NO_MEMBER_ID)
            self._enter(GroupPhase.ENDED)
            if error is not None:
                self._post(Failed(error=error, fatal=True))
            return given_up

    def _is_join_due(self) -> bool:
        return self._phase is GroupPhase.ENDED or (self._rejoin is not None and self._phase is not GroupPhase.PARKED)

    def _lose(self, reason: str | None, member_id: str) -> None:
        """Called under the lock. The incarnation is raised only if there was a generation: only then could a batch have begun
        under it. Without ``reason`` (a clean end) no MembershipLost is posted."""
        before = self._membership
        had_generation = before.generation != NO_GENERATION
        self._membership = replace(
            before,
            generation=NO_GENERATION,
            member_id=member_id,
            incarnation=before.incarnation + (1 if had_generation else 0),
            is_stable=False,
        )
        self._assigned_in = NO_GENERATION
        self._assigned_partitions = ()
        if had_generation and reason is not None:
            self._post(MembershipLost(reason=reason, incarnation=self._membership.incarnation))

    def _enter(self, phase: GroupPhase) -> None:
        if phase not in _NEXT[self._phase]:
            raise AssertionError(f"a group member can't go from {self._phase.value} to {phase.value}")
        if phase not in _UNANSWERED:
            self._joining_since_s = None
        self._phase = phase
        self._changed.notify_all()
