"""The task manager under any order of events: what must hold after each, whatever the group says, however late stores close."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.errors import UnexpectedEventError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.member_state import (
    ApplicationShutdownRequested,
    Assigned,
    CloseRequested,
    ConfirmRevoked,
    Hold,
    LeaveGroup,
    MemberConfig,
    MemberPhase,
    MembershipLost,
    RevokeAllRequested,
    Role,
    TimePassed,
)
from tidemill.membership.wire import AssignmentInfo, encode_assignment
from tidemill.task import lifecycle, standby
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, StorePositions
from tidemill.task.lifecycle import Bounds
from tidemill.task.manager import handle
from tidemill.task.tasks import (
    BatchLost,
    BatchReported,
    BoundsFetched,
    CloseTasks,
    CommitOffsets,
    Event,
    ForgetOffsets,
    PositionsRead,
    RunTasks,
    TaskLayout,
    TasksClosed,
    no_tasks,
    violations,
)

TASKS = [TaskId(0, 0), TaskId(1, 0), TaskId(1, 1)]
LAYOUT = TaskLayout(changelogs={1: {"counts": "log"}}, has_stores=frozenset({1}), directory="/state")
SOME = st.sets(st.sampled_from(TASKS))


class TaskManagerRules(RuleBasedStateMachine):
    """Instructions are carried out late and in any order, as a paused process would; ``open`` is what workers have open."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = no_tasks(MemberConfig(process_id=ProcessId(1, 2)), LAYOUT, session="s")
        self.now_ms, self.generation, self.incarnation = 0, 0, 0
        self.closing: list[CloseTasks] = []
        self.open: dict[TaskId, str] = {}
        self.may_commit = True
        self.is_asked_to_revoke = self.has_left = False

    def feed(self, event: Event) -> None:
        self.now_ms += 10
        self.tasks, instructions = handle(self.tasks, event, self.now_ms)
        for instruction in instructions:
            assert not self.has_left, f"{instruction} after the last one"
            match instruction:
                case CloseTasks():
                    self.closing.append(instruction)
                case RunTasks(new=new):
                    assert not new & self.open.keys(), "a task is opened twice"
                    self.open |= {task: self.epoch(task) for task in new}
                case CommitOffsets():
                    assert self.may_commit, "a commit after a loss of membership"
                case ForgetOffsets():
                    self.may_commit = False
                case ConfirmRevoked():
                    assert self.is_asked_to_revoke
                    held = self.tasks.member.held.values()
                    assert not any(had.role is Role.ACTIVE and had.hold is Hold.RELEASING for had in held)
                    self.is_asked_to_revoke = False
                case LeaveGroup():
                    assert self.open == {}, "it leaves with stores open"
                    self.has_left = True

    def epoch(self, task: TaskId) -> str:
        return (self.tasks.active.get(task) or self.tasks.standby[task]).epoch

    # --- the group, the user, the clock

    @rule(active=SOME, copies=SOME, skipped=st.sampled_from([False] * 7 + [True]))
    def assign(self, active: set[TaskId], copies: set[TaskId], skipped: bool) -> None:
        self.generation += 1
        actives = sorted(active)
        partitions = tuple(TopicPartition(f"in{task.subtopology}", task.partition) for task in actives)
        info = AssignmentInfo(
            active_tasks=tuple(actives), standby_tasks={task: () for task in copies - active if task.subtopology == 1}
        )
        if skipped and not self.has_left:
            self.incarnation += 1  # its loss was never read of
            self.may_commit = False
        event = Assigned(
            generation=self.generation,
            member_id="m",
            incarnation=self.incarnation,
            partitions=partitions,
            user_data=encode_assignment(info),
        )
        self.feed(event)
        self.may_commit = True

    @rule()
    def swap(self) -> None:
        """What is active is to be standby, and the other way round: as when warm-ups are done."""
        self.assign({*self.tasks.member.standby}, {*self.tasks.member.active}, skipped=False)

    @rule()
    def lose(self) -> None:
        self.incarnation += 1
        self.feed(MembershipLost(reason="expired", incarnation=self.incarnation))
        self.is_asked_to_revoke = False

    @rule()
    def revoke_all(self) -> None:
        self.is_asked_to_revoke = True
        self.feed(RevokeAllRequested(reason="eager"))

    @rule(event=st.sampled_from([TimePassed(), ApplicationShutdownRequested()]))
    def pass_time(self, event: TimePassed | ApplicationShutdownRequested) -> None:
        self.feed(event)

    @precondition(lambda self: self.generation > 5)
    @rule()
    def close(self) -> None:
        self.feed(CloseRequested())

    # --- the stream thread

    @precondition(lambda self: self.closing)
    @rule(which=st.integers(0, 100))
    def closed(self, which: int) -> None:
        told = self.closing.pop(which % len(self.closing))
        for task in told.tasks:
            del self.open[task]
        self.feed(TasksClosed(tasks=told.tasks, kept=told.kept))

    @rule(task=st.sampled_from(TASKS), position=st.integers(0, 20))
    def read_positions(self, task: TaskId, position: int) -> None:
        self.feed(PositionsRead(stores={task: {"counts": position}}))

    @rule(end=st.integers(0, 20))
    def fetch_bounds(self, end: int) -> None:
        found = {
            name: Bounds(inputs=dict.fromkeys(task.inputs, 0), changelog_ends=dict.fromkeys(task.changelogs.values(), end))
            for name, task in self.tasks.active.items()
            if task.needs_bounds
        }
        self.feed(BoundsFetched(bounds=found))

    @rule(position=st.integers(0, 20), outcome=st.sampled_from([Outcome.COMMITTED, Outcome.LOST]))
    def report(self, position: int, outcome: Outcome) -> None:
        worked_on = [run.task for run in self.request().tasks]
        stores = tuple(StorePositions(task=task, changelog={"counts": position}) for task in worked_on if task.subtopology == 1)
        self.feed(BatchReported(report=BatchReport(batch_id=1, outcome=outcome, stores=stores)))

    @rule()
    def lose_batch(self) -> None:
        self.feed(BatchLost(reason="the worker died"))

    @rule(task=st.sampled_from(TASKS))
    def prove_what_was_not_asked(self, task: TaskId) -> None:
        before = self.tasks
        if task not in before.closing:
            with pytest.raises(UnexpectedEventError):
                self.feed(TasksClosed(tasks={task: "?"}))
            assert self.tasks is before

    def request(self) -> BatchRequest:
        active, copies = self.tasks.at_work
        made = lifecycle.request(
            active, batch_id=1, internal=frozenset(), max_records=1, max_restore_records=1, wait_ms=0, now_ms=0, incarnation=0
        )
        return standby.with_standbys(made, copies.values(), max_records=1)

    # --- what holds

    @invariant()
    def nothing_contradicts_itself(self) -> None:
        assert violations(self.tasks) == []

    @invariant()
    def what_is_held_is_what_is_open(self) -> None:
        assert {task: self.epoch(task) for task in self.tasks.ids} == self.open
        assert self.tasks.member.held.keys() == self.open.keys(), "nothing is given up before its stores are closed"

    @invariant()
    def no_batch_works_on_what_was_revoked(self) -> None:
        request = self.request()
        assert not {run.task for run in request.tasks} & self.tasks.closing.keys()
        revoked = {
            partition
            for had in self.tasks.member.held.values()
            if had.hold is not Hold.OPEN and had.role is Role.ACTIVE
            for partition in had.partitions
        }
        assert not request.inputs.keys() & revoked

    def teardown(self) -> None:
        """However late: everything that was to be closed is, and a thread that was to end has left."""
        while self.closing:
            self.closed(0)
        assert self.tasks.closing == {}
        assert all(had.hold is Hold.OPEN for had in self.tasks.member.held.values())
        assert self.has_left is (self.tasks.member.phase is MemberPhase.ENDED)
        if self.tasks.member.phase is MemberPhase.CLOSING:
            raise AssertionError("everything is closed, and it has not left")


TestTaskManagerRules = TaskManagerRules.TestCase
TestTaskManagerRules.settings = settings(max_examples=400, stateful_step_count=30, deadline=None)
