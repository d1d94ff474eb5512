"""Joins begin between other things: a generation that is read for a commit is still the group's when the offsets arrive, and
what the last assignment takes away is given up before the next join tells what is owned."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.errors import BatchLostError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka.group.metadata import Membership
from tidemill.membership.member_state import Assigned, MemberConfig
from tidemill.membership.wire import AssignmentInfo, encode_assignment
from tidemill.runtime.thread import thread_membership
from tidemill.runtime.thread.batch_runner import BatchRunner
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.runtime.thread.thread_membership import ThreadMembership
from tidemill.task.batch import BatchReport, Outcome
from tidemill.task.tasks import CloseTasks, Instruction, TaskLayout, TasksClosed, no_tasks

LIMIT_S = 30.0
"""Of what comes at once on any machine that is not standing still."""


class Group:
    """What the group says of the member."""

    def __init__(self) -> None:
        self.membership = Membership(generation=1, member_id="m")
        self.confirmed_for_s = 6.0
        identity = MemberConfig(process_id=ProcessId.parse("00000000-0000-0000-0000-000000000001"))
        leader: Any = None
        self.tasks = TaskRegistry(no_tasks(identity, TaskLayout()))
        self.thread = ThreadMembership("thread", ["in"], self.tasks, leader, lambda: ({}, frozenset()))
        self.thread.bind(self)  # it has a membership


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    """Who is held up is so for longer than a test that stands still for a while."""
    monkeypatch.setattr(thread_membership, "_COMMIT_LIMIT_S", 10 * LIMIT_S)
    monkeypatch.setattr(thread_membership, "_TAKE_UP_LIMITS_S", (10 * LIMIT_S,))
    return Group()


def begun(action: Any) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_a_join_says_what_is_owned_only_when_the_commit_under_way_is_over(group: Group) -> None:
    group.thread.begin_commit()
    join = begun(group.thread.user_data)
    join.join(0.1)
    assert join.is_alive()
    group.thread.end_commit()
    join.join(LIMIT_S)
    assert not join.is_alive()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_batch_is_applied_when_it_is_reported(is_lost: bool) -> None:
    """Standbys may have a batch as soon as it is committed; reads of the owner wait until its store has it. Of one that is lost
    that is never known."""
    seen: list[bool] = []
    group = SimpleNamespace(begin_commit=lambda: None)
    runner: Any = SimpleNamespace(_under_way="a batch", _group=group, _batch_lost=lambda lost: None)

    def run(batch: object) -> BatchReport:
        BatchRunner.begin_commit(runner)
        seen.append(runner.applied.is_set())
        if is_lost:
            raise BatchLostError("a worker died")
        return BatchReport(batch_id=1, outcome=Outcome.COMMITTED)

    runner._run = run
    batch: Any = SimpleNamespace(request=SimpleNamespace(batch_id=1))
    BatchRunner._execute(runner, batch)
    assert seen == [False]
    assert runner.applied.is_set() is not is_lost


def test_a_join_does_not_wait_for_the_commit_of_a_batch_that_was_given_up(group: Group) -> None:
    late: Any = SimpleNamespace(_under_way=None, _group=group.thread)
    BatchRunner.begin_commit(late)
    join = begun(group.thread.user_data)
    join.join(LIMIT_S)
    assert not join.is_alive()


def test_a_join_does_not_wait_forever(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_membership, "_COMMIT_LIMIT_S", 0.2)
    group.thread.begin_commit()
    join = begun(group.thread.user_data)
    join.join(LIMIT_S)
    assert not join.is_alive()


def test_a_commit_waits_for_the_generation_of_a_join_under_way(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_membership, "_JOIN_LIMIT_S", 10 * LIMIT_S)
    group.thread.user_data()
    commit = begun(group.thread.begin_commit)
    commit.join(0.03)
    assert commit.is_alive()
    group.membership = Membership(generation=2, member_id="m")
    commit.join(LIMIT_S)
    assert not commit.is_alive()


def test_while_a_group_waits_for_others_only_one_commit_of_the_join_is_held_up(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.thread.user_data()
    began = time.monotonic()
    group.thread.begin_commit()
    group.thread.end_commit()
    assert time.monotonic() - began >= 0.05
    monkeypatch.setattr(thread_membership, "_JOIN_LIMIT_S", 10 * LIMIT_S)
    commit = begun(group.thread.begin_commit)
    commit.join(LIMIT_S)
    assert not commit.is_alive()


# --- joins and assignments -----------------------------------------------------------------------------------------------

TASK = TaskId(0, 0)
INPUT = TopicPartition("in", 0)


def is_held_up(join: threading.Thread) -> bool:
    join.join(0.1)
    return join.is_alive()


def is_let_begin(join: threading.Thread) -> bool:
    join.join(LIMIT_S)
    return not join.is_alive()


def assigned(group: Group, *, generation: int, active: tuple[TaskId, ...] = ()) -> tuple[Instruction, ...]:
    """The stream thread reads it."""
    data = encode_assignment(AssignmentInfo(active_tasks=active, standby_tasks={}))
    partitions = tuple(INPUT for _ in active)
    event = Assigned(generation=generation, member_id="m", incarnation=0, partitions=partitions, user_data=data)
    return group.tasks.handle(event)


def test_a_join_waits_until_the_thread_has_read_the_assignment_before(group: Group) -> None:
    join = begun(group.thread.wait_until_taken_up)
    assert is_held_up(join)
    assigned(group, generation=1)
    with group.thread.acting():
        pass
    assert is_let_begin(join)


def test_a_join_waits_until_what_is_revoked_is_given_up(group: Group) -> None:
    assigned(group, generation=1, active=(TASK,))
    group.membership = Membership(generation=2, member_id="m")
    _, close = assigned(group, generation=2)
    assert isinstance(close, CloseTasks)
    join = begun(group.thread.wait_until_taken_up)
    assert is_held_up(join)
    with group.thread.acting():
        group.tasks.handle(TasksClosed(tasks=close.tasks))
    assert is_let_begin(join)


def test_no_join_begins_while_instructions_are_carried_out(group: Group) -> None:
    """One of them asks for a join, and those after it change what the join must tell."""
    with group.thread.acting():
        with group.thread.acting():
            assigned(group, generation=1)
        join = begun(group.thread.wait_until_taken_up)
        assert is_held_up(join)
    assert is_let_begin(join)


def test_the_group_is_not_held_up_forever_by_a_thread_in_a_long_batch(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_membership, "_TAKE_UP_LIMITS_S", (0.2,))
    join = begun(group.thread.wait_until_taken_up)
    join.join(LIMIT_S)
    assert not join.is_alive()


def test_joins_one_after_the_other_in_a_long_batch_wait_longer_each_up_to_a_limit(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_membership, "_TAKE_UP_LIMITS_S", (1, 2, 4, 8))
    limits: list[float] = []
    answers = iter((False, False, False, False, False, True, False))

    def wait_for(_predicate: Callable[[], bool], limit_s: float) -> bool:
        limits.append(limit_s)
        return next(answers)

    monkeypatch.setattr(group.thread._gate, "wait_for", wait_for)
    for _ in range(7):
        group.thread.wait_until_taken_up()
    assert limits == [1, 2, 4, 8, 8, 8, 1]


def test_who_is_no_member_has_nothing_to_take_up(group: Group) -> None:
    group.membership = Membership()
    assert is_let_begin(begun(group.thread.wait_until_taken_up))


@pytest.mark.parametrize("comes", [True, False])
def test_a_member_that_was_silent_for_its_session_waits_for_the_next_heartbeat(
    group: Group, comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without transactions nothing else keeps an owner that was frozen from writing behind the next one."""
    monkeypatch.setattr(thread_membership, "_HEARTBEAT_LIMIT_S", 10 * LIMIT_S if comes else 0.05)
    group.confirmed_for_s = 0.0
    answers: list[float] = []
    asks = begun(lambda: answers.append(group.thread.confirmed_for_s()))
    if comes:
        asks.join(0.05)
        assert asks.is_alive()
        group.confirmed_for_s = 5.0
    asks.join(LIMIT_S)
    assert answers == [5.0 if comes else 0.0]


def test_a_member_that_the_group_has_forgotten_waits_for_no_heartbeat(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_membership, "_HEARTBEAT_LIMIT_S", 10 * LIMIT_S)
    group.confirmed_for_s, group.membership = 0.0, Membership()
    assert group.thread.confirmed_for_s() == 0
