"""Which copies a member asks a rebalance for, and that it asks once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.member_state import MemberConfig, MemberState, new_member
from tidemill.membership.wire import HostInfo
from tidemill.task.promotion import Promotions, is_warm_up

T0, T1 = TaskId(1, 0), TaskId(1, 1)
IN = {T0: (TopicPartition("in", 0),), T1: (TopicPartition("in", 1),)}


def member(**changes: Any) -> MemberState:
    return replace(new_member(MemberConfig(process_id=ProcessId(1, 0))), standby=IN, **changes)


def look(
    promotions: Promotions, state: MemberState, copies: dict[TaskId, str], *caught_up: TaskId, replicas: int = 0
) -> tuple[Promotions, frozenset[TaskId]]:
    return promotions.ask(state, copies, set(caught_up), replicas)


BOTH = {T0: "e1", T1: "e2"}


def test_a_copy_that_has_caught_up_is_asked_for_once() -> None:
    promotions, asked = look(Promotions(), member(), BOTH)
    assert asked == frozenset()
    promotions, asked = look(promotions, member(), BOTH, T0)
    assert asked == {T0}
    promotions, asked = look(promotions, member(), BOTH, T0, T1)
    assert asked == {T1}
    assert look(promotions, member(), BOTH, T0, T1)[1] == frozenset()


def test_a_copy_that_follows_a_busy_changelog_is_not_asked_for_with_each_batch() -> None:
    promotions, _ = look(Promotions(), member(), BOTH, T0)
    promotions, _ = look(promotions, member(), BOTH)
    assert look(promotions, member(), BOTH, T0)[1] == frozenset()


def test_its_next_life_is_asked_for_again() -> None:
    promotions, _ = look(Promotions(), member(), BOTH, T0)
    assert look(promotions, member(), {T0: "e3"}, T0)[1] == {T0}
    gone, _ = look(promotions, member(), {})
    assert gone == Promotions()


def test_during_a_join_nothing_is_asked_and_nothing_is_forgotten() -> None:
    promotions, asked = look(Promotions(), member(is_joining=True), BOTH, T0)
    assert asked == frozenset()
    assert look(promotions, member(), BOTH, T0)[1] == {T0}


def test_a_copy_that_is_to_be_given_up_is_not_asked_for() -> None:
    assert look(Promotions(), replace(member(), standby={}), BOTH, T0)[1] == frozenset()


def test_with_standbys_only_copies_beyond_their_number_are_warm_ups() -> None:
    one, two = HostInfo("one", 1), HostInfo("two", 2)
    alone = member(standby_partitions_by_host={one: (*IN[T0], *IN[T1])})
    both = member(standby_partitions_by_host={one: (*IN[T0], *IN[T1]), two: IN[T1]})
    assert [is_warm_up(alone, task, 1) for task in (T0, T1)] == [False, False]
    assert [is_warm_up(both, task, 1) for task in (T0, T1)] == [False, True]
    assert [is_warm_up(both, task, 0) for task in (T0, T1)] == [True, True]
    assert look(Promotions(), both, BOTH, T0, T1, replicas=1)[1] == {T1}


def test_where_hosts_are_not_told_nobody_asks() -> None:
    assert not is_warm_up(member(), T0, 1)
