"""The task manager, event by event: what a stream thread holds, and what it has to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tidemill.errors import UnexpectedEventError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership import member_state as machine
from tidemill.membership.member_state import Assigned, CloseRequested, MemberConfig, MembershipLost, RejoinNow, TimePassed
from tidemill.membership.wire import AssignmentInfo, encode_assignment
from tidemill.task.batch import BatchReport, Outcome, StorePositions
from tidemill.task.lifecycle import Bounds, Phase
from tidemill.task.manager import NOT_ASSIGNED, REVOKED, handle
from tidemill.task.standby import StandbyBounds
from tidemill.task.tasks import (
    BatchLost,
    BatchReported,
    BoundsFetched,
    CloseTasks,
    CommitOffsets,
    Event,
    ForgetOffsets,
    Instruction,
    LimitsFetched,
    PositionsRead,
    RunTasks,
    StandbyBoundsFetched,
    TaskLayout,
    Tasks,
    TasksClosed,
    ThreadEnded,
    is_other_phase,
    no_tasks,
    violations,
)

NOW = 1_000_000
A, B, C = TaskId(0, 0), TaskId(1, 0), TaskId(1, 1)
"""The first has no stores."""
LAYOUT = TaskLayout(changelogs={1: {"counts": "log"}}, has_stores=frozenset({1}), directory="/state/app")
NONE: frozenset[TaskId] = frozenset()


def source(task: TaskId) -> TopicPartition:
    return TopicPartition(f"in{task.subtopology}", task.partition)


def changelog(task: TaskId) -> TopicPartition:
    return TopicPartition("log", task.partition)


def assigned(
    active: Iterable[TaskId] = (), standby: Iterable[TaskId] = (), *, generation: int = 5, incarnation: int = 0
) -> Assigned:
    actives = sorted(active)
    info = AssignmentInfo(active_tasks=tuple(actives), standby_tasks={task: (source(task),) for task in standby})
    return Assigned(
        generation=generation,
        member_id="m",
        incarnation=incarnation,
        partitions=tuple(source(task) for task in actives),
        user_data=encode_assignment(info),
    )


def run(*events: Event, tasks: Tasks | None = None) -> tuple[Tasks, tuple[Instruction, ...]]:
    """The tasks after all events, and what the last one led to."""
    tasks = tasks or no_tasks(MemberConfig(process_id=ProcessId(1, 2)), LAYOUT, session="s")
    instructions: tuple[Instruction, ...] = ()
    for event in events:
        tasks, instructions = handle(tasks, event, NOW)
        assert violations(tasks) == []
    return tasks, instructions


def bounds(*tasks: TaskId, end: int = 0) -> BoundsFetched:
    found = {
        task: Bounds(inputs={source(task): 0}, changelog_begins={changelog(task): 0}, changelog_ends={changelog(task): end})
        for task in tasks
    }
    return BoundsFetched(bounds=found)


def stores_at(position: int, *tasks: TaskId, outcome: Outcome = Outcome.COMMITTED) -> BatchReported:
    stores = tuple(StorePositions(task=task, changelog={"counts": position}) for task in tasks)
    return BatchReported(report=BatchReport(batch_id=1, outcome=outcome, stores=stores))


# --- tasks come ----------------------------------------------------------------------------------------------------------


def test_what_is_assigned_is_held_at_once_and_looked_for_on_this_machine() -> None:
    tasks, instructions = run(assigned([A, B], [C]))
    assert instructions == (RunTasks(active=frozenset({A, B}), standby=frozenset({C}), new=frozenset({A, B, C})),)
    assert (set(tasks.active), set(tasks.standby), set(tasks.member.held)) == ({A, B}, {C}, {A, B, C})
    assert (tasks.active[A].directory, tasks.active[B].directory) == ("", "/state/app/1_0")
    assert tasks.standby[C].directory == "/state/app/1_1"
    assert tasks.active[B].inputs == (source(B),)
    assert tasks.standby[C].changelogs == {"counts": changelog(C)}


def test_each_task_that_is_taken_up_has_an_epoch_of_its_own_forever() -> None:
    tasks, _ = run(assigned([B]))
    first = tasks.active[B].epoch
    tasks, (_, close) = run(assigned(generation=6), tasks=tasks)
    assert isinstance(close, CloseTasks)
    tasks, _ = run(TasksClosed(tasks=close.tasks), assigned([B], generation=7), tasks=tasks)
    assert tasks.active[B].epoch != first


def test_stores_that_were_left_here_need_not_be_opened_to_know_where_they_are() -> None:
    tasks, _ = run(assigned([B], [C]), PositionsRead(stores={B: {"counts": 7}, C: {"another": 3}}))
    assert tasks.active[B].stores == {"counts": 7}
    assert tasks.standby[C].stores is None, "other stores than the task's tell nothing"


def test_positions_that_come_after_the_stores_were_opened_change_nothing() -> None:
    tasks, _ = run(assigned([B]), stores_at(9, B), PositionsRead(stores={B: {"counts": 7}}))
    assert tasks.active[B].stores == {"counts": 9}


def test_a_restore_goes_on_where_it_is_over_a_rebalance_that_leaves_the_task_here() -> None:
    tasks, _ = run(assigned([B]), bounds(B, end=10), stores_at(0, B), stores_at(4, B))
    before = tasks.active[B]
    assert (before.phase, before.stores) == (Phase.RESTORING, {"counts": 4})
    tasks, instructions = run(assigned([A, B], generation=6), assigned([B], [C], generation=7), tasks=tasks)
    assert tasks.active[B] == before
    assert not any(isinstance(one, CloseTasks) and B in one.tasks for one in instructions)


def test_a_restore_goes_on_where_the_stores_are_when_its_task_comes_back() -> None:
    tasks, _ = run(assigned([B]), bounds(B, end=10), stores_at(4, B))
    tasks, (_, close) = run(assigned(generation=6), tasks=tasks)
    assert isinstance(close, CloseTasks)
    back = (TasksClosed(tasks=close.tasks), assigned([B], generation=7), PositionsRead(stores={B: {"counts": 4}}))
    tasks, _ = run(*back, bounds(B, end=10), stores_at(4, B), tasks=tasks)
    assert (tasks.active[B].phase, tasks.active[B].stores) == (Phase.RESTORING, {"counts": 4})


# --- tasks go ------------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_before_actives_and_standbys_are_closed_together() -> None:
    tasks, instructions = run(assigned([A, B], [C]), assigned([A], generation=6))
    assert instructions == (CommitOffsets(partitions=frozenset({source(B)})), CloseTasks(tasks={B: REVOKED, C: NOT_ASSIGNED}))
    assert set(tasks.closing) == {B, C}
    active, standbys = tasks.at_work
    assert (set(active), set(standbys)) == ({A}, set()), "no batch works on what is closing"
    assert set(tasks.member.held) == {A, B, C}, "it is claimed until it is closed"


def test_when_all_is_closed_the_group_is_asked_for_a_rebalance_so_that_the_next_owner_gets_it() -> None:
    before, (_, close) = run(assigned([A, B], [C]), assigned([A], generation=6))
    assert isinstance(close, CloseTasks)
    tasks, instructions = run(TasksClosed(tasks=close.tasks), tasks=before)
    assert [type(each) for each in instructions] == [RejoinNow]
    assert (set(tasks.member.held), tasks.ids, tasks.closing) == ({A}, {A}, {})


def test_what_goes_is_closed_before_what_comes_is_run() -> None:
    come = RunTasks(active=frozenset({C}), standby=NONE, new=frozenset({C}))
    for held, standby, close in (
        (A, [], CloseTasks(tasks={A: REVOKED}, have_stores=True)),
        (B, [B], CloseTasks(tasks={}, kept=frozenset({B}), have_stores=False)),
    ):
        _, instructions = run(assigned([held]), assigned([C], standby, generation=6))
        assert instructions == (CommitOffsets(partitions=frozenset({source(held)})), close, come)


def test_a_worker_has_something_open_of_a_task_with_stores_or_where_nothing_is_left() -> None:
    for held, left, expected in (([A, B], [A], True), ([A, B], [B], False), ([A], [], True)):
        _, instructions = run(assigned(held), assigned(left, generation=6))
        [close] = [each for each in instructions if isinstance(each, CloseTasks)]
        assert close.have_stores is expected, (held, left)


def test_after_a_loss_of_membership_nothing_is_committed() -> None:
    _, instructions = run(assigned([A], [C]), MembershipLost(reason="expired", incarnation=1))
    assert instructions == (ForgetOffsets(), CloseTasks(tasks={A: "expired", C: "expired"}))


def test_what_is_closing_when_the_membership_is_lost_is_not_closed_twice() -> None:
    tasks, (_, close) = run(assigned([A, B]), assigned([A], generation=6))
    tasks, instructions = run(MembershipLost(reason="expired", incarnation=1), tasks=tasks)
    assert instructions == (ForgetOffsets(), CloseTasks(tasks={A: "expired"}))
    tasks, _ = run(TasksClosed(tasks=close.tasks), tasks=tasks)
    assert (tasks.ids, set(tasks.closing)) == ({A}, {A})


def test_a_task_that_comes_back_while_it_is_closing_is_taken_up_when_that_is_done() -> None:
    tasks, (_, close) = run(assigned([B]), assigned(generation=6))
    tasks, instructions = run(assigned([B], generation=7), tasks=tasks)
    assert instructions == ()
    assert set(tasks.closing) == {B}
    tasks, instructions = run(TasksClosed(tasks=close.tasks), tasks=tasks)
    assert instructions == (RunTasks(active=frozenset({B}), standby=NONE, new=frozenset({B})),)
    assert tasks.closing == {}


def test_a_thread_that_is_to_end_leaves_the_group_when_its_last_task_is_closed() -> None:
    tasks, (commit, close) = run(assigned([A], [C]), CloseRequested())
    assert (commit, close) == (CommitOffsets(partitions=frozenset({source(A)})), CloseTasks(tasks={A: REVOKED, C: NOT_ASSIGNED}))
    assert run(TasksClosed(tasks=close.tasks), tasks=tasks)[1] == (machine.LeaveGroup(),)


def test_a_thread_that_has_ended_holds_nothing() -> None:
    tasks, instructions = run(assigned([A], [C]), assigned([], [C], generation=6), ThreadEnded(reason="the thread ends"))
    assert (bool(tasks), tasks.closing, tasks.member.held, instructions) == (False, {}, {}, ())


# --- roles change --------------------------------------------------------------------------------------------------------


def test_a_standby_that_becomes_active_keeps_its_epoch_and_its_stores() -> None:
    before, _ = run(assigned([], [B]), PositionsRead(stores={B: {"counts": 7}}))
    tasks, instructions = run(assigned([B], generation=6), tasks=before)
    assert instructions == (RunTasks(active=frozenset({B}), standby=NONE, new=NONE),)
    assert (tasks.active[B].epoch, tasks.active[B].stores) == (before.standby[B].epoch, {"counts": 7})
    assert tasks.standby == {}


def test_an_active_one_that_becomes_a_standby_is_committed_and_stays_open() -> None:
    before, _ = run(assigned([A, B]), bounds(A, B), stores_at(0, B))
    tasks, instructions = run(assigned([A], [B], generation=6), tasks=before)
    kept = frozenset({B})
    assert instructions == (CommitOffsets(partitions=frozenset({source(B)})), CloseTasks(tasks={}, kept=kept, have_stores=False))
    assert (set(tasks.active), tasks.standby[B].epoch) == ({A}, before.active[B].epoch)
    tasks, (opened, rejoin) = run(TasksClosed(kept=kept), tasks=tasks)
    assert opened == RunTasks(active=NONE, standby=kept, new=NONE)
    assert isinstance(rejoin, RejoinNow)
    assert tasks.standby[B].epoch == before.active[B].epoch


def test_one_that_nobody_wants_as_a_standby_any_more_is_closed_after_all() -> None:
    tasks, _ = run(assigned([A, B]), assigned([A], [B], generation=6), assigned([A], generation=7))
    tasks, instructions = run(TasksClosed(kept=frozenset({B})), tasks=tasks)
    assert instructions == (CloseTasks(tasks={B: NOT_ASSIGNED}),)
    tasks, _ = run(TasksClosed(tasks={B: NOT_ASSIGNED}), tasks=tasks)
    assert tasks.ids == {A}


def test_one_that_is_lost_while_it_was_kept_open_waits_for_the_proof_of_its_own_closing() -> None:
    tasks, _ = run(assigned([A, B]), assigned([A], [B], generation=6))
    tasks, (_, close) = run(MembershipLost(reason="expired", incarnation=1), tasks=tasks)
    assert close == CloseTasks(tasks={A: "expired", B: "expired"})
    tasks, instructions = run(TasksClosed(kept=frozenset({B})), tasks=tasks)
    assert (set(tasks.closing), instructions) == ({A, B}, ())


def test_a_late_word_of_a_role_that_was_kept_proves_nothing_of_a_later_closing() -> None:
    kept = TasksClosed(kept=frozenset({B}))
    tasks, _ = run(assigned([A, B]), assigned([A], [B], generation=6))
    tasks, (_, lost) = run(MembershipLost(reason="expired", incarnation=1), tasks=tasks)
    assert isinstance(lost, CloseTasks)
    again = [assigned([B], generation=7, incarnation=1), assigned(generation=8, incarnation=1)]
    tasks, instructions = run(TasksClosed(tasks=lost.tasks), *again, kept, tasks=tasks)
    assert (set(tasks.closing), set(tasks.member.held), instructions) == ({B}, {B}, ())


# --- batches and brokers -------------------------------------------------------------------------------------------------


def test_a_task_runs_when_its_offsets_are_known_and_its_stores_are_at_their_end() -> None:
    created, _ = run(assigned([A, B], [C]))
    opened, _ = run(bounds(A, B, end=9), tasks=created)
    assert opened.running == {A}
    restored, _ = run(stores_at(4, B), stores_at(9, B), tasks=opened)
    assert restored.running == {A, B}
    assert is_other_phase(created, opened)
    assert is_other_phase(opened, restored)
    assert not is_other_phase(restored, restored)


def test_a_standby_whose_stores_have_been_opened_is_worth_a_look_too() -> None:
    before, _ = run(assigned([], [C]))
    after, _ = run(stores_at(3, C), tasks=before)
    assert is_other_phase(before, after)


def test_a_lost_batch_sets_back_what_ran_and_asks_standbys_where_they_are() -> None:
    follows = StandbyBoundsFetched(bounds={C: StandbyBounds(begins={changelog(C): 0}, ends={changelog(C): 9})})
    tasks, _ = run(assigned([A], [C]), bounds(A), follows, stores_at(3, C))
    assert (tasks.running, tasks.standby[C].lag, tasks.offset_sums()) == ({A}, 6, {C: 3})
    tasks, _ = run(BatchLost(reason="the worker died"), tasks=tasks)
    assert (tasks.active[A].phase, tasks.standby[C].stores, tasks.offset_sums()) == (Phase.CREATED, None, {C: None})


def test_a_source_topic_that_serves_as_changelog_is_followed_as_far_as_the_group_has_come() -> None:
    limited = StandbyBounds(begins={changelog(C): 0}, ends={changelog(C): 9}, limits={changelog(C): 2})
    tasks, _ = run(assigned([], [C]), StandbyBoundsFetched(bounds={C: limited}), LimitsFetched(committed={changelog(C): 5}))
    assert tasks.standby[C].end_of(changelog(C)) == 5


# --- faults --------------------------------------------------------------------------------------------------------------


def test_a_proof_of_what_is_not_closing_is_a_fault_and_tells_the_story() -> None:
    tasks, _ = run(assigned([A, B]), bounds(A))
    with pytest.raises(UnexpectedEventError) as raised:
        handle(tasks, TasksClosed(tasks={B: REVOKED}), NOW)
    told = str(raised.value)
    assert "expected the proof of tasks that are closing, found one of 1_0; active 0_0, 1_0, standby none, closing none" in told
    first, last = told.splitlines()[1:]
    assert first.startswith(f"  {NOW} Assigned(generation=5")
    assert last.startswith(f"  {NOW} BoundsFetched(")


def test_an_event_that_nobody_knows_is_a_fault_and_so_is_one_of_the_managers_own() -> None:
    tasks, _ = run(assigned([A]))
    for event in ("rebalance", machine.TasksReleased(tasks=frozenset({A}))):
        with pytest.raises(UnexpectedEventError, match="there is no rule for"):
            handle(tasks, event, NOW)  # type: ignore[arg-type]


def test_the_story_is_the_last_twenty_events_and_leaves_out_that_time_has_passed() -> None:
    tasks, _ = run(*(bounds(A) for _ in range(30)), TimePassed())
    assert [type(event) for _, event in tasks.story] == [BoundsFetched] * 20


def test_nothing_new_leaves_the_very_same_value() -> None:
    tasks, _ = run(assigned([A]))
    assert handle(tasks, TimePassed(), NOW)[0] is tasks


def test_what_is_wrong_with_tasks_is_reported_one_by_one() -> None:
    tasks, _ = run(assigned([A, B]))
    copy = replace(tasks, standby=tasks.active, closing={C: "lost"})  # type: ignore[arg-type]
    assert violations(copy)[:2] == [f"{A} is active and standby", f"{B} is active and standby"]
    assert f"{C} is closing but not held" in violations(copy)
    assert violations(replace(tasks, active={A: tasks.active[A]})) == [
        f"{B} is held only",
        f"{B} is active for the group and not here",
    ]
    assert violations(replace(tasks, closing={A: "?"})) == [f"{A} is closing, and the member counts on it"]
    assert violations(replace(tasks, active={A: tasks.active[A], B: replace(tasks.active[B], epoch=tasks.active[A].epoch)}))
