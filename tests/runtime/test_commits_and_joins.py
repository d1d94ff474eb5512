"""Commits and joins are kept apart: a generation that is read for a commit is still the group's when the offsets arrive."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tidemill.ids import ProcessId
from tidemill.kafka.group_metadata import Membership
from tidemill.membership.member_state import MemberConfig
from tidemill.runtime.group_side import GroupSide


class Group:
    """What the group says of the member."""

    def __init__(self) -> None:
        self.membership = Membership(generation=1, member_id="m")
        identity = MemberConfig(process_id=ProcessId.parse("00000000-0000-0000-0000-000000000001"))
        leader: Any = None
        self.side = GroupSide("thread", ["in"], identity, leader, lambda: ({}, frozenset()))
        self.side.membership = lambda: self.membership


@pytest.fixture
def group() -> Group:
    return Group()


def begun(action: Any) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_a_join_says_what_is_owned_only_when_the_commit_under_way_is_over(group: Group) -> None:
    group.side.begin_commit()
    join = begun(group.side.user_data)
    join.join(0.1)
    assert join.is_alive()
    group.side.end_commit()
    join.join(0.5)
    assert not join.is_alive()


def test_a_join_does_not_wait_for_ever(group: Group) -> None:
    group.side.begin_commit()
    join = begun(group.side.user_data)
    join.join(5)
    assert not join.is_alive()


def test_a_commit_waits_for_the_generation_of_a_join_under_way(group: Group) -> None:
    group.side.user_data()
    commit = begun(group.side.begin_commit)
    commit.join(0.03)
    assert commit.is_alive()
    group.membership = Membership(generation=2, member_id="m")
    commit.join(0.05)
    assert not commit.is_alive()


def test_while_a_group_waits_for_others_only_one_commit_of_the_join_is_held_up(group: Group) -> None:
    group.side.user_data()
    for at_least, at_most in ((0.05, 1.0), (0.0, 0.05)):
        began = time.monotonic()
        group.side.begin_commit()
        group.side.end_commit()
        assert at_least <= time.monotonic() - began <= at_most
