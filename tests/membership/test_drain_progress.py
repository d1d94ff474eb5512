"""When the drain of an instance is over, and when it can't begin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.drain_progress import DrainPhase, DrainProgress, drain_progress, why_no_drain
from tidemill.membership.member_state import Drain, HeldTask, Hold, MemberConfig, MemberState, Role, new_member
from tidemill.membership.wire import SubscriptionInfo
from tidemill.membership.wire.assignment import AssignorError

OWN, OTHER = ProcessId(1, 0), ProcessId(2, 0)
PARTITION = (TopicPartition("in", 0),)


def member(drain: Drain, *held: HeldTask) -> MemberState:
    state = replace(new_member(MemberConfig(process_id=OWN)), drain=drain)
    return replace(state, held={TaskId(0, at): one for at, one in enumerate(held)})


RUNS = HeldTask(role=Role.ACTIVE, partitions=PARTITION)
GOES = HeldTask(role=Role.ACTIVE, partitions=PARTITION, hold=Hold.RELEASING)
COPY = HeldTask(role=Role.STANDBY, partitions=PARTITION)


@pytest.mark.parametrize(
    ("members", "phase", "active", "standby"),
    [
        ((member(Drain.ASKED),), DrainPhase.DRAINING, 0, 0),
        ((member(Drain.SAID),), DrainPhase.DRAINING, 0, 0),
        ((member(Drain.UNDER_WAY, RUNS, COPY, COPY),), DrainPhase.DRAINING, 1, 2),
        ((member(Drain.UNDER_WAY, GOES),), DrainPhase.DRAINING, 1, 0),
        ((member(Drain.UNDER_WAY),), DrainPhase.DRAINED, 0, 0),
        ((member(Drain.UNDER_WAY), member(Drain.UNDER_WAY, RUNS)), DrainPhase.DRAINING, 1, 0),
        ((member(Drain.UNDER_WAY), member(Drain.ASKED)), DrainPhase.DRAINING, 0, 0),
        ((member(Drain.UNDER_WAY, RUNS), member(Drain.IGNORED, RUNS)), DrainPhase.UNKNOWN_TO_LEADER, 2, 0),
        ((), DrainPhase.DRAINED, 0, 0),
    ],
)
def test_a_drain_is_over_when_no_member_holds_anything(
    members: tuple[MemberState, ...], phase: DrainPhase, active: int, standby: int
) -> None:
    assert drain_progress(members) == DrainProgress(phase=phase, active=active, standby=standby)


def test_what_is_assigned_and_not_taken_up_yet_is_not_drained() -> None:
    state = replace(member(Drain.UNDER_WAY), standby={TaskId(0, 0): PARTITION})
    assert drain_progress([state]).phase is DrainPhase.DRAINING


def said(process: ProcessId, *, drains: bool = False, endpoint: str | None = None) -> SubscriptionInfo:
    code = AssignorError.DRAINING if drains else AssignorError.NONE
    return SubscriptionInfo(process_id=process, user_endpoint=endpoint, error_code=code)


def test_an_instance_alone_can_not_drain() -> None:
    assert "no other instance" in why_no_drain(OWN, {"a": said(OWN), "b": said(OWN)})


def test_one_at_a_time() -> None:
    assert "two:1 of the same group drains already" in why_no_drain(
        OWN, {"a": said(OWN), "b": said(OTHER, drains=True, endpoint="two:1")}
    )
    assert str(OTHER) in why_no_drain(OWN, {"a": said(OWN), "b": said(OTHER, drains=True)})


def test_with_others_it_may_whatever_they_speak() -> None:
    assert why_no_drain(OWN, {"a": said(OWN, drains=True), "b": said(OTHER)}) == ""
    assert why_no_drain(OWN, {"a": said(OWN), "b": None}) == ""
