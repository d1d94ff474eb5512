"""The member's state machine, event by event."""

from dataclasses import replace

import pytest

from tidemill.assignment.model import LONG_MAX
from tidemill.assignment.task_load import TaskLoad
from tidemill.errors import UnexpectedEventError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.member import AT_ONCE, FIRST_PAUSE_MS, LONGEST_PAUSE_MS, REVOKED, TOPICS_ADDED, step
from tidemill.membership.member_state import (
    ApplicationShutdownRequested,
    Assigned,
    AssignTasks,
    CloseRequested,
    CloseStandbys,
    ConfirmRevoked,
    GiveUpTasks,
    LeaveGroup,
    MemberConfig,
    MemberPhase,
    MembershipLost,
    RejoinNow,
    ReportFatal,
    RevokeAllRequested,
    RevokeTasks,
    ScheduleRejoin,
    ShutDownApplication,
    TasksReleased,
    TimePassed,
    TopicsAdded,
    new_member,
)
from tidemill.membership.member_subscription import may_commit, next_subscription, owned_partitions
from tidemill.membership.topology_metadata import TopicsInfo
from tidemill.membership.wire import AssignmentInfo, HostInfo, NamedTaskId, decode_subscription, encode_assignment
from tidemill.membership.wire.assignment import AssignorError
from tidemill.membership.wire.task_loads import TAG

NOW = 1_000_000
CONFIG = MemberConfig(process_id=ProcessId(1, 2))
JOIN = {"generation": -1, "incarnation": 0, "offset_sums": {}, "running": frozenset()}
A, B, C = TaskId(0, 0), TaskId(1, 0), TaskId(1, 1)


def inputs(task):
    return (TopicPartition(f"in{task.subtopology}", task.partition),)


def assigned(active=(), standby=(), *, generation=5, incarnation=0, partitions=None, **info):
    """What the leader would send: lists parallel, sorted by partition."""
    pairs = sorted((partition, task) for task in active for partition in inputs(task))
    told = AssignmentInfo(
        active_tasks=tuple(task for _, task in pairs), standby_tasks={task: inputs(task) for task in standby}, **info
    )
    return Assigned(
        generation=generation,
        member_id="m",
        incarnation=incarnation,
        partitions=tuple(partition for partition, _ in pairs) if partitions is None else partitions,
        user_data=encode_assignment(told),
    )


def released(*tasks):
    return TasksReleased(tasks=frozenset(tasks))


def run(*events, state=None, now_ms=NOW):
    """The state after all events, and what the last one led to."""
    state = new_member(CONFIG) if state is None else state
    instructions = ()
    for event in events:
        state, instructions = step(state, event, now_ms)
    return state, list(instructions)


def assign(active=(), standby=()):
    return AssignTasks(active={task: inputs(task) for task in active}, standby={task: inputs(task) for task in standby})


def test_the_first_assignment_is_taken_up_whole():
    state, instructions = step(new_member(CONFIG), assigned([A, B], [C]), NOW)
    assert instructions == (assign([A, B], [C]),)
    assert owned_partitions(state, incarnation=state.incarnation) == (*inputs(A), *inputs(B))


def test_partitions_are_matched_to_tasks_in_sorted_order_however_they_arrive():
    event = assigned([A, B, C])
    shuffled = replace(event, partitions=tuple(reversed(event.partitions)))
    assert run(shuffled)[1] == [assign([A, B, C])]


def test_an_unchanged_assignment_changes_nothing_but_the_generation():
    _, instructions = run(assigned([A], [C]), assigned([A], [C], generation=6))
    assert instructions == []


def test_only_the_difference_is_touched():
    _, instructions = run(assigned([A, B]), assigned([B, C], generation=6))
    assert instructions == [RevokeTasks(tasks=frozenset({A})), assign([C])]


def test_a_member_rejoins_once_after_the_last_of_its_revoked_tasks_is_released():
    state, _ = run(assigned([A, B, C]), assigned([C], generation=6))
    state, instructions = run(released(A), state=state)
    assert instructions == []
    assert owned_partitions(state, incarnation=state.incarnation) == (*inputs(B), *inputs(C))
    state, instructions = run(released(B), state=state)
    assert instructions == [RejoinNow(reason=REVOKED)]
    assert run(released(B), TimePassed(), state=state)[1] == []


def test_a_revoked_task_stays_owned_and_may_be_committed_until_it_is_released():
    state, _ = run(assigned([A, B]), assigned([B], generation=6))
    assert inputs(A)[0] in owned_partitions(state, incarnation=state.incarnation)
    assert may_commit(state, [A, B], began_incarnation=0, incarnation=0)
    state, _ = run(released(A), state=state)
    assert not may_commit(state, [A, B], began_incarnation=0, incarnation=0)
    assert may_commit(state, [B], began_incarnation=0, incarnation=0)


def test_a_task_that_comes_back_while_it_is_being_revoked_is_opened_again_and_not_rejoined_for():
    state, instructions = run(assigned([A]), assigned([], generation=6), assigned([A], generation=7))
    assert instructions == []
    _, instructions = run(released(A), state=state)
    assert instructions == [assign([A])]


def test_what_was_given_away_is_rejoined_for_even_if_an_assignment_came_between():
    events = (assigned([A, B]), assigned([], generation=6), released(A), assigned([], generation=7))
    assert run(*events)[1] == []
    assert run(*events, released(B))[1] == [RejoinNow(reason=REVOKED)]


def test_a_standby_becomes_active_without_being_closed():
    state, instructions = run(assigned([], [B]), assigned([B], generation=6))
    assert instructions == [assign([B])]
    assert owned_partitions(state, incarnation=state.incarnation) == inputs(B)


def test_an_active_becomes_a_standby_only_after_its_release():
    state, instructions = run(assigned([B]), assigned([], [B], generation=6))
    assert instructions == [RevokeTasks(tasks=frozenset({B}), becomes_standby=frozenset({B}))]
    _, instructions = run(released(B), state=state)
    assert instructions == [assign([], [B]), RejoinNow(reason=REVOKED)]


def test_a_standby_that_is_not_wanted_is_closed_without_a_rejoin():
    state, instructions = run(assigned([], [B, C]), assigned([], [C], generation=6))
    assert instructions == [CloseStandbys(tasks=frozenset({B}))]
    assert run(released(B), state=state)[1] == []


def test_a_task_whose_partitions_change_is_reopened_with_them():
    wider = (TopicPartition("in0", 0), TopicPartition("more", 0))
    event = Assigned(
        generation=6,
        member_id="m",
        incarnation=0,
        partitions=wider,
        user_data=encode_assignment(AssignmentInfo(active_tasks=(A, A))),
    )
    state, instructions = run(assigned([A]), event)
    assert instructions == [RevokeTasks(tasks=frozenset({A}))]
    assert run(released(A), state=state)[1] == [AssignTasks(active={A: wider})]


def test_added_topics_are_joined_for_once_nothing_is_being_revoked_and_may_be_assigned_then():
    before, after = (
        {
            0: TopicsInfo(subtopology=0, source_topics=frozenset(topics)),
            1: TopicsInfo(subtopology=1, source_topics=frozenset({"in1"})),
        }
        for topics in (["in0"], ["in0", "more"])
    )
    start = new_member(replace(CONFIG, topology=before))
    state, instructions = run(assigned([A, B]), assigned([A]), TopicsAdded(topology=after), state=start)
    assert instructions == []
    state, instructions = run(released(B), state=state)
    assert instructions == [RejoinNow(reason=TOPICS_ADDED)]
    wider = (TopicPartition("in0", A.partition), TopicPartition("more", A.partition))
    data = encode_assignment(AssignmentInfo(active_tasks=(A, A)))
    event = Assigned(generation=9, member_id="m", incarnation=0, partitions=wider, user_data=data)
    assert run(event, state=state)[1] == [RevokeTasks(tasks=frozenset({A}))]
    assert any(isinstance(each, ReportFatal) for each in run(event, state=replace(state, config=start.config))[1])


def test_a_release_of_tasks_that_are_open_or_unknown_changes_nothing():
    state, _ = run(assigned([A]))
    assert step(state, released(A, C), NOW) == (state, ())


# --- losses


def test_after_a_loss_everything_is_given_up_uncommitted_and_nothing_is_claimed():
    state, instructions = run(
        assigned([A, B], [C]), assigned([B], generation=6), MembershipLost(reason="expired", incarnation=1)
    )
    assert instructions == [GiveUpTasks(tasks=frozenset({A, B, C}), reason="expired")]
    assert owned_partitions(state, incarnation=state.incarnation) == ()
    assert not may_commit(state, [B], began_incarnation=0, incarnation=0)
    assert not may_commit(state, [B], began_incarnation=1, incarnation=1)


def test_a_lost_task_that_is_assigned_again_waits_until_it_is_closed():
    state, instructions = run(
        assigned([A, B]), MembershipLost(reason="expired", incarnation=1), assigned([A], generation=9, incarnation=1)
    )
    assert instructions == []
    assert owned_partitions(state, incarnation=state.incarnation) == inputs(A)
    assert not may_commit(state, [A], began_incarnation=1, incarnation=1)
    state, instructions = run(released(A, B), state=state)
    assert instructions == [assign([A])]
    assert may_commit(state, [A], began_incarnation=1, incarnation=1)
    assert not may_commit(state, [A], began_incarnation=0, incarnation=0)


def test_an_assignment_of_an_older_incarnation_is_ignored():
    state, _ = run(assigned([A]), MembershipLost(reason="fenced", incarnation=1))
    assert step(state, assigned([A], generation=6, incarnation=0), NOW) == (state, ())
    assert step(state, MembershipLost(reason="again", incarnation=1), NOW) == (state, ())


def test_a_loss_that_is_not_read_of_yet_ends_all_claims_already():
    state, _ = run(assigned([B]))
    assert owned_partitions(state, incarnation=1) == ()
    assert not may_commit(state, [B], began_incarnation=0, incarnation=1)
    assert not may_commit(state, [B], began_incarnation=1, incarnation=1)
    after, own = next_subscription(state, generation=-1, incarnation=1, offset_sums={B: 90}, running=frozenset({B}))
    assert own.info.task_offset_sums == {B: 90}
    assert own.owned_partitions == ()
    assert step(after, assigned([B, C], generation=6), NOW) == (after, ())


def test_an_assignment_that_a_join_has_overtaken_is_ignored():
    """The join claimed what generation 7 assigned, not what 6 did: that may have a new owner by now."""
    state, _ = next_subscription(run(assigned([A]))[0], **{**JOIN, "generation": 7})
    assert step(state, assigned([A, B], generation=6), NOW) == (state, ())
    assert run(assigned([A, C], generation=7), state=state)[1] == [assign([C])]
    closing, _ = run(CloseRequested(), state=state)
    assert step(closing, assigned([A], generation=6), NOW) == (closing, ())


def test_an_assignment_of_a_newer_incarnation_gives_up_what_was_held_before():
    _, instructions = run(assigned([A]), assigned([A], generation=1, incarnation=2))
    assert instructions == [GiveUpTasks(tasks=frozenset({A}), reason="the membership was replaced")]


# --- when to rejoin


def test_a_followup_asked_for_at_once_is_made_at_once():
    assert run(assigned([A], next_rebalance_ms=0))[1][-1:] == [
        RejoinNow(reason=AT_ONCE)
    ]


def test_a_followup_waits_for_what_is_being_revoked_here():
    state, instructions = run(assigned([A]), assigned([], generation=6, next_rebalance_ms=0))
    assert instructions == [RevokeTasks(tasks=frozenset({A}))]
    assert len([each for each in run(released(A), state=state)[1] if isinstance(each, RejoinNow)]) == 1


def test_followups_asked_for_again_and_again_are_made_after_growing_pauses():
    state, _ = run(assigned(next_rebalance_ms=0))
    pauses = []
    for generation in range(6, 14):
        state, instructions = run(assigned(generation=generation, next_rebalance_ms=0), state=state)
        (scheduled,) = instructions
        pauses.append(scheduled.at_ms - NOW)
        assert run(TimePassed(), state=state, now_ms=scheduled.at_ms)[1] == []
        state, instructions = run(TimePassed(), state=state, now_ms=scheduled.at_ms + 1)
        assert [type(each) for each in instructions] == [RejoinNow]
    assert pauses[:3] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
    assert set(pauses[4:]) == {LONGEST_PAUSE_MS}
    state, _ = run(assigned(generation=14), assigned(generation=15, next_rebalance_ms=0), state=state)
    assert state.immediate_followups == 1


def test_a_probing_rebalance_comes_when_its_time_is_past_and_once():
    deadline = NOW + 60_000
    state, instructions = run(assigned([A], next_rebalance_ms=deadline))
    assert instructions == [assign([A]), ScheduleRejoin(at_ms=deadline)]
    assert run(TimePassed(), state=state, now_ms=deadline)[1] == []
    state, instructions = run(TimePassed(), state=state, now_ms=deadline + 1)
    assert instructions == [RejoinNow(reason=f"Triggering the followup rebalance scheduled for {deadline} ms.")]
    assert run(TimePassed(), state=state, now_ms=deadline + 2)[1] == []


def test_each_assignment_replaces_what_was_scheduled():
    state, _ = run(assigned([A], next_rebalance_ms=NOW + 60_000), assigned([A], generation=6))
    assert state.next_rebalance_ms == LONG_MAX
    assert run(TimePassed(), state=state, now_ms=NOW + 70_000)[1] == []


@pytest.mark.parametrize("due_ms", [NOW - 1, 1, -5, -(2**63)])
def test_a_rebalance_whose_time_has_passed_is_asked_for_at_once_and_again_after_a_pause(due_ms):
    state, instructions = run(assigned([A], next_rebalance_ms=due_ms))
    assert [type(each) for each in instructions] == [AssignTasks, RejoinNow]
    state, instructions = run(assigned([A], next_rebalance_ms=due_ms, generation=6), state=state)
    assert instructions == [ScheduleRejoin(at_ms=NOW + FIRST_PAUSE_MS)]


def test_no_probing_rebalance_is_asked_for_while_a_join_is_under_way_or_after_a_loss():
    state, _ = run(assigned([A], next_rebalance_ms=NOW + 60_000))
    joining, _ = next_subscription(state, **JOIN)
    assert run(TimePassed(), state=joining, now_ms=NOW + 70_000)[1] == []
    lost, _ = run(MembershipLost(reason="expired", incarnation=1), state=state)
    assert run(TimePassed(), state=lost, now_ms=NOW + 70_000)[1] == []


def test_an_endpoint_that_the_group_does_not_list_is_rejoined_for():
    config = replace(CONFIG, endpoint="me:9000")
    others = {HostInfo("you", 1): inputs(B)}
    _, instructions = run(assigned(partitions_by_host=others), state=new_member(config))
    assert instructions == [RejoinNow(reason="the group does not know the endpoint me:9000 yet")]
    listed = {**others, HostInfo("me", 9000): ()}
    assert run(assigned(partitions_by_host=listed), state=new_member(config))[1] == []
    assert run(assigned(), state=new_member(config))[1] == []


# --- versions


def test_a_lower_answer_takes_the_version_down_and_back_up_when_all_can():
    state, instructions = run(assigned(version=8, commonly_supported_version=9))
    assert state.used_version == 9
    assert instructions == [RejoinNow(reason="the group's common version is 9")]
    state, _ = run(assigned(version=9, commonly_supported_version=11, generation=6), state=state)
    assert state.used_version == 11
    info = next_subscription(state, **JOIN)[1].info
    assert (info.version, info.latest_supported_version) == (11, 11)


def test_an_answer_before_version_probing_changes_no_version():
    state, instructions = run(assigned(version=2))
    assert (state.used_version, instructions) == (11, [])


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (assigned(version=11), "subscription of version 9 with an assignment of version 11"),
        (assigned(version=9, commonly_supported_version=12), "support version 12"),
        (assigned([A], version=9, partitions=()), "assigned 0 partitions but names tasks for 1"),
        (replace(assigned(version=9), user_data=b"\0\0\0"), "AssignmentInfo of 3 bytes"),
        (replace(assigned(version=9), user_data=b"", partitions=inputs(A)), "AssignmentInfo of 0 bytes"),
        (
            replace(
                assigned([A]),
                user_data=encode_assignment(AssignmentInfo(version=10, active_tasks=(NamedTaskId("t", 0, 0),))),
            ),
            "assignment of version 10",
        ),
    ],
)
def test_an_answer_that_cannot_be_followed_ends_the_member(event, reason):
    start = new_member(replace(CONFIG, first_version=9))
    state, instructions = run(event, state=start)
    fatal, left = instructions
    assert isinstance(fatal, ReportFatal)
    assert reason in fatal.reason
    assert left == LeaveGroup()
    assert state.phase is MemberPhase.ENDED


def test_a_task_of_a_named_topology_ends_the_member():
    data = encode_assignment(AssignmentInfo(active_tasks=(NamedTaskId("billing", 0, 0),)))
    _, instructions = run(replace(assigned([A]), user_data=data))
    assert "billing__0_0" in instructions[0].reason


def test_no_bytes_and_no_partitions_mean_that_nothing_is_assigned():
    event = Assigned(generation=6, member_id="m", incarnation=0)
    assert run(assigned([A]), event)[1] == [RevokeTasks(tasks=frozenset({A}))]


# --- error codes, shutting down, closing


@pytest.mark.parametrize("code", [1, 2, 3, 17])
def test_an_error_code_ends_the_member_in_good_order(code):
    state, instructions = run(assigned([A], [C]), assigned(generation=6, error_code=code))
    assert [type(each) for each in instructions] == [ReportFatal, RevokeTasks, CloseStandbys]
    assert instructions[0].code == (code if code < 4 else AssignorError.ASSIGNMENT_ERROR)
    assert may_commit(state, [A], began_incarnation=0, incarnation=0)
    state, instructions = run(released(A), released(C), state=state)
    assert instructions == [LeaveGroup()]
    assert state.phase is MemberPhase.ENDED


def test_an_error_code_counts_whatever_the_version_of_the_answer():
    start = new_member(replace(CONFIG, first_version=8))
    _, instructions = run(assigned(error_code=1, version=11), state=start)
    assert instructions[0].code is AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA


def test_the_shutdown_of_the_application_is_followed():
    _, instructions = run(assigned([A]), assigned(generation=6, error_code=4))
    assert [type(each) for each in instructions] == [ShutDownApplication, RevokeTasks]


def test_a_shutdown_request_is_reported_in_every_subscription_until_the_leader_answers_it():
    state, instructions = run(assigned([A]), ApplicationShutdownRequested())
    assert instructions == [RejoinNow(reason=AssignorError.SHUTDOWN_REQUESTED.sentence)]
    assert run(ApplicationShutdownRequested(), state=state)[1] == []
    for generation in (6, 7):
        state, own = next_subscription(state, **JOIN)
        assert own.info.error_code == 4
        state, instructions = run(assigned([A], generation=generation), state=state)
        assert instructions == [RejoinNow(reason=AssignorError.SHUTDOWN_REQUESTED.sentence)]


def test_a_closing_member_leaves_after_its_last_task_and_takes_up_nothing_new():
    state, instructions = run(assigned([A, B]), CloseRequested())
    assert instructions == [RevokeTasks(tasks=frozenset({A, B}))]
    state, instructions = step(state, assigned([A, C], generation=6), NOW)
    assert instructions == ()
    assert state.generation == 6
    state, instructions = run(released(A), state=state)
    assert instructions == []
    state, instructions = run(released(B), state=state)
    assert instructions == [LeaveGroup()]
    assert step(state, assigned([A], generation=7), NOW) == (state, ())


def test_a_closing_member_that_is_thrown_out_commits_nothing_more():
    state, instructions = run(assigned([A]), CloseRequested(), MembershipLost(reason="expired", incarnation=1))
    assert instructions == [GiveUpTasks(tasks=frozenset({A}), reason="expired")]
    assert run(released(A), state=state)[1] == [LeaveGroup()]


def test_a_member_without_tasks_leaves_at_once():
    assert run(CloseRequested())[1] == [LeaveGroup()]


# --- eager groups


def test_an_eager_member_confirms_when_everything_is_released_and_does_not_rejoin_for_it():
    state, instructions = run(assigned([A, B], [C]), RevokeAllRequested(reason="rebalance"))
    assert instructions == [RevokeTasks(tasks=frozenset({A, B})), CloseStandbys(tasks=frozenset({C}))]
    state, instructions = run(released(A), state=state)
    assert instructions == []
    state, instructions = run(released(B), state=state)
    assert instructions == [ConfirmRevoked()]
    assert owned_partitions(state, incarnation=state.incarnation) == ()


def test_the_join_that_an_eager_member_gives_everything_up_for_serves_every_wish_for_one():
    state, _ = run(assigned([A], next_rebalance_ms=NOW + 1), assigned([A], generation=6, next_rebalance_ms=NOW + 2))
    state, _ = run(RevokeAllRequested(reason="rebalance"), state=state)
    assert run(TimePassed(), state=state, now_ms=NOW + 10)[1] == []
    assert run(released(A), state=state)[1] == [ConfirmRevoked()]


def test_an_eager_member_without_tasks_confirms_at_once():
    assert run(RevokeAllRequested(reason="rebalance"))[1] == [ConfirmRevoked()]


# --- subscriptions


def test_a_subscription_tells_restored_actives_as_running_and_all_other_state_as_sums():
    config = replace(CONFIG, endpoint="me:9000", client_tags={"zone": "a"})
    state, _ = run(assigned([A, B], [C]), state=new_member(config))
    left_on_disk = TaskId(2, 7)
    state, own = next_subscription(
        state,
        generation=5,
        incarnation=0,
        offset_sums={C: 40, B: 90, TaskId(1, 5): 12, left_on_disk: 3},
        running=frozenset({A, B, left_on_disk}),
    )
    info = own.info
    assert own.owned_partitions == (*inputs(A), *inputs(B))
    assert decode_subscription(own.user_data) == info
    assert dict(info.task_offset_sums) == {B: -2, C: 40, TaskId(1, 5): 12, left_on_disk: 3}
    assert list(info.task_offset_sums) == sorted(info.task_offset_sums)
    assert (info.process_id, info.user_endpoint, info.client_tags) == (CONFIG.process_id, "me:9000", {"zone": "a"})
    assert state.is_joining


def test_a_lost_task_is_not_told_as_running():
    state, _ = run(assigned([B]), MembershipLost(reason="expired", incarnation=1))
    _, own = next_subscription(state, generation=-1, incarnation=1, offset_sums={B: 90}, running=frozenset({B}))
    assert own.info.task_offset_sums == {B: 90}


def test_the_unique_field_differs_from_join_to_join_and_stays_a_byte():
    state, seen = new_member(CONFIG), []
    for _ in range(257):
        state, own = next_subscription(state, **JOIN)
        seen.append(own.info.unique_field)
    assert seen[:2] == [1, 2]
    assert seen[126:129] == [127, -128, -127]
    assert len(set(seen[:256])) == 256
    assert seen[256] == seen[0]


def test_an_event_that_no_phase_knows_is_a_fault():
    with pytest.raises(UnexpectedEventError, match="a member that is member has no rule for 'rebalance'"):
        step(new_member(CONFIG), "rebalance", NOW)


def test_a_join_says_the_loads_of_tasks_beside_the_tags_and_nothing_where_none_were_measured():
    state = new_member(replace(CONFIG, client_tags={"zone": "a"}))
    _, own = next_subscription(state, **JOIN, loads={B: TaskLoad(records=9, state=3)})
    assert own.info.client_tags == {"zone": "a", TAG: f"{B}=9.3"}
    assert next_subscription(state, **JOIN)[1].info.client_tags == {"zone": "a"}
    assert next_subscription(state, **JOIN, loads={})[1].info.client_tags == {"zone": "a"}
