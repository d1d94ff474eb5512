"""A member that drains: what its joins say, what the leader answers, and when it has nothing left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.membership.test_leader import CONFIG, FETCHED, METADATA, NOW, P1, P2, said
from tests.membership.two_subtopologies import FACTS
from tidemill.assignment.model import LATEST_OFFSET, LONG_MAX
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.group_assignment import StreamsGroupAssignment
from tidemill.membership.leader import DRAIN_PROBING_INTERVAL_MS, PreparedRebalance, complete, prepare
from tidemill.membership.member import DRAINS, STAYS, step
from tidemill.membership.member_state import (
    ApplicationShutdownRequested,
    Assigned,
    CloseRequested,
    Drain,
    DrainRequested,
    MemberConfig,
    MembershipLost,
    MemberState,
    RejoinNow,
    ReportFatal,
    new_member,
)
from tidemill.membership.member_subscription import OwnSubscription, next_subscription
from tidemill.membership.wire import AssignmentInfo, SubscriptionInfo, decode_assignment, encode_assignment
from tidemill.membership.wire.assignment import AssignorError


def lead(*members: object) -> StreamsGroupAssignment:
    prepared = prepare({f"m{at}": one for at, one in enumerate(members, 1)}, METADATA, FACTS, CONFIG)  # type: ignore[misc]
    assert isinstance(prepared, PreparedRebalance)
    return complete(prepared, FETCHED, NOW)


def member() -> MemberState:
    return new_member(MemberConfig(process_id=P1))


def joined(state: MemberState, generation: int = 1) -> tuple[MemberState, OwnSubscription]:
    return next_subscription(state, generation=generation, incarnation=0, offset_sums={}, running=frozenset())


def answered(state: MemberState, *, generation: int, code: AssignorError = AssignorError.NONE, **info: object) -> MemberState:
    told = AssignmentInfo(error_code=code, next_rebalance_ms=LONG_MAX, **info)  # type: ignore[arg-type]
    event = Assigned(generation=generation, member_id="m", incarnation=0, user_data=encode_assignment(told))
    return step(state, event, NOW)[0]


def test_a_drain_is_said_with_the_next_join_and_acknowledged_with_its_answer() -> None:
    state, instructions = step(member(), DrainRequested(), NOW)
    assert instructions == (RejoinNow(reason=DRAINS),)
    state, own = joined(state)
    assert own.info.error_code == AssignorError.DRAINING
    assert state.drain is Drain.SAID
    state = answered(state, generation=2, code=AssignorError.DRAINING)
    assert state.drain is Drain.UNDER_WAY
    assert state.is_drained


def test_a_leader_that_knows_no_drains_is_noticed() -> None:
    state, _ = joined(step(member(), DrainRequested(), NOW)[0])
    state = answered(state, generation=2)
    assert state.drain is Drain.IGNORED
    assert not state.is_drained


def test_the_answer_to_an_earlier_join_says_nothing_of_a_drain() -> None:
    state, _ = joined(step(member(), DrainRequested(), NOW)[0], generation=3)
    state = answered(state, generation=3)
    assert state.drain is Drain.SAID
    assert answered(state, generation=4, code=AssignorError.DRAINING).drain is Drain.UNDER_WAY


def test_a_drain_that_is_asked_for_during_a_join_waits_for_the_next_one() -> None:
    state, own = joined(member())
    assert own.info.error_code == AssignorError.NONE
    state, _ = step(state, DrainRequested(), NOW)
    assert answered(state, generation=2).drain is Drain.ASKED


def test_asked_again_nothing_happens_and_called_off_the_member_says_so() -> None:
    state, _ = step(member(), DrainRequested(), NOW)
    assert step(state, DrainRequested(), NOW) == (state, ())
    state, instructions = step(state, DrainRequested(is_wanted=False), NOW)
    assert instructions == (RejoinNow(reason=STAYS),)
    assert joined(state)[1].info.error_code == AssignorError.NONE
    assert step(member(), DrainRequested(is_wanted=False), NOW) == (member(), ())


def test_a_member_that_still_holds_a_task_has_not_drained() -> None:
    state, _ = joined(step(member(), DrainRequested(), NOW)[0])
    task, partition = TaskId(0, 0), TopicPartition("in", 0)
    told = AssignmentInfo(error_code=AssignorError.DRAINING, active_tasks=(task,))
    event = Assigned(
        generation=2, member_id="m", incarnation=0, partitions=(partition,), user_data=encode_assignment(told)
    )
    state, _ = step(state, event, NOW)
    assert state.active == {task: (partition,)}
    assert not state.is_drained


def test_after_a_loss_of_membership_the_next_join_says_it_again() -> None:
    state, _ = joined(step(member(), DrainRequested(), NOW)[0])
    state, _ = step(state, MembershipLost(reason="fenced", incarnation=1), NOW)
    _, own = next_subscription(state, generation=-1, incarnation=1, offset_sums={}, running=frozenset())
    assert own.info.error_code == AssignorError.DRAINING


def test_that_all_shall_shut_down_comes_first() -> None:
    state, _ = step(member(), DrainRequested(), NOW)
    state, _ = step(state, ApplicationShutdownRequested(), NOW)
    assert joined(state)[1].info.error_code == AssignorError.SHUTDOWN_REQUESTED


def test_other_codes_still_end_the_member() -> None:
    told = encode_assignment(AssignmentInfo(error_code=AssignorError.ASSIGNMENT_ERROR))
    event = Assigned(generation=2, member_id="m", incarnation=0, user_data=told)
    _, instructions = step(member(), event, NOW)
    assert any(isinstance(one, ReportFatal) for one in instructions)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_member_that_closes_has_nothing_more_to_drain(wanted: bool) -> None:
    state, _ = step(member(), CloseRequested(), NOW)
    assert step(state, DrainRequested(is_wanted=wanted), NOW) == (state, ())


RUNS = {TaskId(1, number): LATEST_OFFSET for number in range(3)}


def drains(**info: object) -> object:
    return said(P2, sums=RUNS, error_code=AssignorError.DRAINING, **info)


def test_the_leader_acknowledges_keeps_the_tasks_and_has_the_member_ask_again_soon() -> None:
    done = lead(said(P1), drains())
    told = decode_assignment(done.members["m2"].user_data)
    assert told.error_code == AssignorError.DRAINING
    assert {task for task in told.active_tasks if isinstance(task, TaskId)} == set(RUNS)
    assert told.next_rebalance_ms == NOW + DRAIN_PROBING_INTERVAL_MS
    assert decode_assignment(done.members["m1"].user_data).error_code == AssignorError.NONE
    assert not done.is_stable


def test_a_client_that_has_given_everything_up_asks_for_nothing() -> None:
    done = lead(said(P1, sums=RUNS), said(P2, error_code=AssignorError.DRAINING))
    told = decode_assignment(done.members["m2"].user_data)
    assert (told.active_tasks, dict(told.standby_tasks), told.next_rebalance_ms) == ((), {}, LONG_MAX)
    assert done.is_stable


def test_one_thread_that_drains_drains_its_client() -> None:
    prepared = prepare({"m1": said(P1), "m2": drains(), "m3": said(P2)}, METADATA, FACTS, CONFIG)  # type: ignore[dict-item]
    assert isinstance(prepared, PreparedRebalance)
    assert {client.process_id: client.is_draining for client in prepared.group.clients} == {P1: False, P2: True}


def test_a_version_without_error_codes_can_not_say_it() -> None:
    state, _ = step(replace(member(), used_version=8), DrainRequested(), NOW)
    state, own = joined(state)
    assert own.info.version == 8
    assert isinstance(own.info, SubscriptionInfo)
    assert b"\x01\xb9" not in own.user_data
    assert answered(state, generation=2, version=8).drain is Drain.IGNORED
