"""When a thread that shall end may begin to give its tasks up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tidemill.kafka.group.metadata import Membership
from tidemill.runtime.thread.leaving import Leaving

INTERVAL_MS = 3_000


@dataclass
class Member:
    """What is asked of a group's member. ``others``: whether it has any to hand over to."""

    membership: Membership = field(default_factory=lambda: Membership(generation=4, member_id="m", is_stable=True))
    others: bool = True
    asked: list[str] = field(default_factory=list)

    def hands_over(self, leave: bool | None) -> bool:
        return self.others and leave is not False

    def request_rejoin(self, reason: str) -> None:
        self.asked.append(reason)


class Watch:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def leaving(member: Any, watch: Watch | None = None) -> Leaving:
    return Leaving("thread-1", member, INTERVAL_MS, watch or Watch())


def test_tasks_are_kept_until_the_group_has_gathered_once() -> None:
    member, watch = Member(), Watch()
    goes = leaving(member, watch)
    assert not goes.may_begin(None, has_tasks=True)
    watch.now_s += 2
    assert not goes.may_begin(None, has_tasks=True)
    member.membership = replace(member.membership, is_stable=False)
    assert not goes.may_begin(None, has_tasks=True)
    member.membership = replace(member.membership, generation=5)
    assert not goes.may_begin(None, has_tasks=True)  # some have joined, and wait for the leader's answer
    assert not goes.has_gathered
    member.membership = replace(member.membership, is_stable=True)
    assert goes.may_begin(None, has_tasks=True)
    assert goes.has_gathered
    assert member.asked == ["it is about to leave"]


@pytest.mark.parametrize(
    ("member", "leave", "has_tasks"),
    [
        (Member(), None, False),
        (Member(), False, True),
        (Member(others=False), None, True),
        (Member(membership=Membership()), None, True),
    ],
    ids=["no tasks", "stays in the group", "alone", "no member yet"],
)
def test_it_leaves_at_once_where_that_makes_nobody_wait(member: Member, leave: bool | None, has_tasks: bool) -> None:
    assert leaving(member).may_begin(leave, has_tasks=has_tasks)
    assert member.asked == []


def test_it_does_not_wait_forever_for_members_that_say_nothing() -> None:
    member, watch = Member(), Watch()
    goes = leaving(member, watch)
    assert not goes.may_begin(True, has_tasks=True)
    watch.now_s += INTERVAL_MS / 1e3 + 1
    assert not goes.may_begin(True, has_tasks=True)
    watch.now_s += 0.1
    assert goes.may_begin(True, has_tasks=True)
    assert not goes.has_gathered
    assert len(member.asked) == 1


@pytest.mark.parametrize(("within_s", "limit_s"), [(60.0, INTERVAL_MS / 1e3 + 1), (1.0, 0.5)])
def test_who_waits_for_a_thread_only_so_long_leaves_it_time_to_close(within_s: float, limit_s: float) -> None:
    watch = Watch()
    goes = leaving(Member(), watch)
    goes.hurry(within_s)
    assert not goes.may_begin(None, has_tasks=True)
    watch.now_s += limit_s - 0.1
    assert not goes.may_begin(None, has_tasks=True)
    watch.now_s += 0.2
    assert goes.may_begin(None, has_tasks=True)
