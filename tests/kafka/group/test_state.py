"""What a member makes of news that comes late, twice, or out of order: events in, snapshots and events out."""

from __future__ import annotations

import math
import queue
import threading
import time
from itertools import pairwise

import pytest

from tidemill.errors import StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.metadata import Membership
from tidemill.kafka.group.protocol import Failed, GroupEvent, MemberAssignment
from tidemill.kafka.group.state import GroupPhase, MembershipState, heartbeat_due
from tidemill.membership.member_state import Assigned, MembershipLost, RevokeAllRequested

ONE = TopicPartition("t", 1)


@pytest.fixture
def events() -> queue.SimpleQueue[GroupEvent]:
    return queue.SimpleQueue()


@pytest.fixture
def state(events: queue.SimpleQueue[GroupEvent]) -> MembershipState:
    return MembershipState(None, events.put)


def _sent(state: MembershipState) -> Membership:
    membership = state.join_sent(state.begin_join()[1])
    assert membership is not None
    return membership


def _synced(state: MembershipState, generation: int, member_id: str = "m") -> Membership:
    membership = state.joined(_sent(state), generation=generation, member_id=member_id)
    assert membership is not None
    return membership


def _stable(state: MembershipState, generation: int) -> Membership:
    assert state.assigned(_synced(state, generation), MemberAssignment(partitions=(ONE,)))
    return state.membership


def _read(events: queue.SimpleQueue[GroupEvent]) -> list[GroupEvent]:
    read = []
    while not events.empty():
        read.append(events.get())
    return read


def test_a_membership_goes_on_while_a_join_under_it_waits_for_its_answer(state: MembershipState) -> None:
    """The broker may count the next generation already when it refuses a commit of this one."""
    before = _stable(state, 1)
    assert not state.is_rejoining_from(before, or_has=True)
    sent = _sent(state)
    assert state.is_rejoining_from(before, or_has=False)
    assert state.is_rejoining_from(sent, or_has=False)
    state.joined(sent, generation=2, member_id="m")
    assert state.is_rejoining_from(before, or_has=True)
    assert not state.is_rejoining_from(before, or_has=False)
    assert not state.is_rejoining_from(state.membership, or_has=True)
    assert state.lost(state.membership, "thrown out")
    assert not state.is_rejoining_from(before, or_has=True)


def test_the_new_generation_is_known_before_its_assignment(state: MembershipState) -> None:
    assert state.membership == Membership()
    _synced(state, 1)
    assert state.membership == Membership(generation=1, member_id="m", is_stable=False)
    assert state.assigned_in == -1
    assert state.assigned(state.membership, MemberAssignment(partitions=(ONE,)))
    assert state.membership == Membership(generation=1, member_id="m", is_stable=True)
    assert (state.assigned_in, state.assigned_partitions) == (1, (ONE,))


def test_a_rejoin_keeps_the_generation_until_the_next_is_known(state: MembershipState) -> None:
    _stable(state, 1)
    state.request_rejoin("test")
    _sent(state)
    assert state.membership == Membership(generation=1, member_id="m", is_stable=False)
    assert state.assigned_in == 1


def test_news_of_a_rebalance_counts_once_and_only_in_a_stable_generation(state: MembershipState) -> None:
    first = _stable(state, 1)
    assert not state.wait_to_join(0)
    assert state.rebalancing(first, "told by a heartbeat")
    assert state.wait_to_join(0)
    assert state.begin_join()[0] == "told by a heartbeat"
    assert not state.rebalancing(first, "told again while the subscription is made")
    sent = state.join_sent(first)
    assert sent is not None
    assert not state.rebalancing(first, "told by a heartbeat that was under way")
    second = state.joined(sent, generation=2, member_id="m")
    assert second is not None
    assert not state.rebalancing(second, "told before the assignment: SyncGroup will tell it too")
    assert state.assigned(second, MemberAssignment())
    assert not state.rebalancing(first, "told by a heartbeat of the last generation")
    assert not state.wait_to_join(0)


def test_a_request_during_a_join_leads_to_another_join(state: MembershipState) -> None:
    membership = _synced(state, 1)
    state.request_rejoin("asked meanwhile")
    assert state.assigned(membership, MemberAssignment())
    assert state.wait_to_join(0)
    assert state.begin_join()[0] == "asked meanwhile"


def test_a_join_that_failed_is_tried_again_for_its_reason(state: MembershipState) -> None:
    _stable(state, 1)
    state.request_rejoin("the reason")
    _sent(state)
    assert not state.wait_to_join(0)
    state.join_failed()
    assert state.wait_to_join(0)
    assert state.begin_join()[0] == "the reason"


def test_a_loss_raises_the_incarnation_and_is_reported_once(
    state: MembershipState, events: queue.SimpleQueue[GroupEvent]
) -> None:
    membership = _stable(state, 4)
    _read(events)
    assert state.lost(membership, "evicted")
    assert not state.lost(membership, "evicted, says a commit too")
    assert state.membership == Membership(incarnation=1)
    assert (state.assigned_in, state.assigned_partitions) == (-1, ())
    assert _read(events) == [MembershipLost(reason="evicted", incarnation=1)]
    assert state.wait_to_join(0)


def test_a_generation_that_went_on_alone_keeps_the_member_id_and_loses_the_rest(state: MembershipState) -> None:
    assert state.lost(_stable(state, 4), "illegal generation", keeps_member_id=True)
    assert state.membership == Membership(member_id="m", incarnation=1)


def test_a_late_eviction_does_not_throw_out_the_member_that_came_back(state: MembershipState) -> None:
    old = _stable(state, 1)
    assert state.lost(old, "evicted")
    new = _stable(state, 2)
    assert not state.lost(old, "evicted, says a heartbeat sent before")
    assert state.membership is new
    assert new.incarnation == 1


def test_a_loss_while_the_subscription_is_made_voids_that_subscription(state: MembershipState) -> None:
    before = _stable(state, 1)
    state.request_rejoin("test")
    _, taken = state.begin_join()
    assert taken is before
    assert state.lost(before, "evicted")
    assert state.join_sent(taken) is None
    state.join_failed()
    assert state.begin_join() == ("evicted", Membership(incarnation=1))
    assert not state.wait_to_join(0)  # one join serves both


def test_a_loss_during_the_leaders_assign_voids_the_assignment(
    state: MembershipState, events: queue.SimpleQueue[GroupEvent]
) -> None:
    membership = _synced(state, 2)
    assert state.lost(membership, "evicted")
    assert not state.assigned(membership, MemberAssignment(partitions=(ONE,)))
    assert [type(event) for event in _read(events)] == [MembershipLost]


def test_a_pending_member_id_that_expires_is_no_loss(state: MembershipState, events: queue.SimpleQueue[GroupEvent]) -> None:
    pending = state.given_member_id(_sent(state), "pending")
    assert pending is not None
    assert state.lost(pending, "unknown member")
    assert state.membership == Membership()
    assert _read(events) == []


def test_a_parked_member_waits_for_a_sign_of_life(state: MembershipState, events: queue.SimpleQueue[GroupEvent]) -> None:
    assert state.parked(_stable(state, 1), "no poll")
    assert state.phase is GroupPhase.PARKED
    state.request_rejoin("test")
    assert not state.wait_to_join(0)
    state.unpark()
    assert state.wait_to_join(0)
    assert [type(event) for event in _read(events)] == [Assigned, MembershipLost]


def test_a_fatal_end_is_reported_after_the_loss_and_nothing_follows(
    state: MembershipState, events: queue.SimpleQueue[GroupEvent]
) -> None:
    membership = _stable(state, 1)
    error = StopError("fenced")
    _read(events)
    assert state.end(error) is membership
    assert state.end() is None
    state.request_rejoin("test")
    assert not state.lost(state.membership, "evicted")
    assert _read(events) == [MembershipLost(reason="fenced", incarnation=1), Failed(error=error, fatal=True)]
    assert not state.wait_to_join(0)
    assert not state.wait_to_heartbeat(0, 0)


def test_a_plain_close_posts_nothing_and_voids_the_membership(
    state: MembershipState, events: queue.SimpleQueue[GroupEvent]
) -> None:
    _stable(state, 1)
    _read(events)
    state.end()
    assert _read(events) == []
    assert state.membership == Membership(incarnation=1)


def test_heartbeats_are_due_from_joined_to_the_next_join(state: MembershipState) -> None:
    waiting = threading.Thread(target=state.wait_to_heartbeat, args=(0.0, 0.0), daemon=True)
    waiting.start()
    _sent(state)
    waiting.join(0.05)
    assert waiting.is_alive()
    joined = state.joined(state.membership, generation=1, member_id="m")
    assert joined is not None
    waiting.join(60)
    assert not waiting.is_alive()
    assert state.wait_to_heartbeat(time.monotonic(), 0.01)


def test_a_new_assignment_makes_the_next_heartbeat_due_soon(state: MembershipState) -> None:
    _sent(state)
    joined = state.joined(state.membership, generation=1, member_id="m")
    assert joined is not None
    waiting = threading.Thread(target=state.wait_to_heartbeat, args=(time.monotonic(), 3600.0), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    assert state.assigned(joined, MemberAssignment(partitions=(), user_data=b""))
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_rebalance_that_is_expected_makes_the_next_heartbeat_due_soon(state: MembershipState) -> None:
    _stable(state, 1)
    state._expected_at_s = -math.inf  # the last assignment was long ago
    waiting = threading.Thread(target=state.wait_to_heartbeat, args=(time.monotonic(), 3600.0), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    state.expect_rebalance()
    waiting.join(60)
    assert not waiting.is_alive()


def test_an_eager_group_has_no_follow_up_to_look_for() -> None:
    state = MembershipState(None, queue.SimpleQueue().put, has_follow_ups=False)
    _stable(state, 1)
    waiting = threading.Thread(target=state.wait_to_heartbeat, args=(time.monotonic(), 3600.0), daemon=True)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    state.end()
    waiting.join(60)
    assert not waiting.is_alive()


def test_pauses_between_heartbeats_grow_from_an_assignment_to_the_interval() -> None:
    sent = [heartbeat_due(99.0, 100.0, 3.0)]
    while sent[-1] < 130:
        sent.append(heartbeat_due(sent[-1], 100.0, 3.0))
    pauses = [later - earlier for earlier, later in pairwise([100.0, *sent])]
    assert pauses[0] == pytest.approx(0.025)
    assert pauses == pytest.approx(sorted(pauses))
    assert all(pause <= max(0.025, (at - 100) / 4) + 1e-9 for at, pause in zip([100.0, *sent], pauses, strict=False))
    assert pauses[-1] == pytest.approx(3.0)
    assert sum(at < 112 for at in sent) < 30
    assert heartbeat_due(50.0, -math.inf, 3.0) == 53.0


def test_eager_revocation_waits_for_the_application(
    state: MembershipState, events: queue.SimpleQueue[GroupEvent]
) -> None:
    _stable(state, 1)
    _read(events)
    answer: list[bool] = []
    waiting = threading.Thread(target=lambda: answer.append(state.wait_until_revoked("test")), daemon=True)
    waiting.start()
    assert events.get(timeout=60) == RevokeAllRequested(reason="test")
    waiting.join(0.05)
    assert waiting.is_alive()
    state.revoked_all()
    waiting.join(60)
    assert answer == [True]
    assert state.assigned_partitions == ()


def test_a_loss_ends_the_wait_for_a_revocation(state: MembershipState, events: queue.SimpleQueue[GroupEvent]) -> None:
    membership = _stable(state, 1)
    _read(events)
    answer: list[bool] = []
    waiting = threading.Thread(target=lambda: answer.append(state.wait_until_revoked("test")), daemon=True)
    waiting.start()
    assert isinstance(events.get(timeout=60), RevokeAllRequested)
    state.lost(membership, "evicted")
    waiting.join(60)
    assert answer == [False]


def test_a_join_is_timed_from_when_it_was_sent_until_it_is_answered_or_has_failed(state: MembershipState) -> None:
    assert state.joining_since_s is None
    before_s = time.monotonic()
    membership = _synced(state, 1)
    assert state.joining_since_s is not None
    assert before_s <= state.joining_since_s <= time.monotonic()
    state.assigned(membership, MemberAssignment(partitions=(ONE,)))
    assert state.joining_since_s is None
    _sent(state)
    assert state.joining_since_s is not None
    state.join_failed()
    assert state.joining_since_s is None, "no answer is owed before the next one is sent"
    _sent(state)
    assert state.joining_since_s is not None
    state.lost(state.membership, "thrown out")
    assert state.joining_since_s is None
