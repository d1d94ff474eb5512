"""A group member's state machine: ``step(state, event, now_ms) -> (state', instructions)``. No I/O, no clock.

    event \\ phase                 MEMBER                         CLOSING                        ENDED
    Assigned                      take up the difference         adopt the generation only      -
    MembershipLost                give everything up uncommitted the same                       -
    TasksReleased                 drop, open what waited, rejoin drop; leave when nothing left  drop
    RevokeAllRequested            revoke everything              the same                       -
    TimePassed                    rejoin if the time has come    -                              -
    ApplicationShutdownRequested  rejoin with error code 4       -                              -
    DrainRequested                rejoin, saying so              -                              -
    TopicsAdded                   rejoin, subscribing to them    -                              -
    CloseRequested                revoke everything              -                              -

Rules
1. A task is held from the instruction that assigns it to the TasksReleased that names it, however long its last batch
   takes. A task that is on its way out is taken up again only after that.
2. Cooperative: actives that the assignment lacks are revoked, the intersection is left alone. Once all of them are
   released, the member rejoins, so that their next owners get them; it does not rejoin for the tasks that it still waits for.
3. One rejoin for all causes, and never while an active is being revoked: the next subscription would claim it still.
4. After a loss of membership nothing is claimed and nothing is committed. What comes late is ignored: anything of an
   older incarnation, and an assignment that a join has overtaken, because that join claimed a later one instead.
5. The next rebalance is, in this order: at once if the version changes, if the own endpoint is missing among the hosts,
   if the leader says 0 or a time that has passed; at the time that the leader says; else none. Each assignment replaces what
   was scheduled. An assignment that asks for it at once right after another that did is answered after a pause, because an
   owner may need longer for its last batch than a rebalance takes; that owner's own rejoin usually comes first.
6. An error code ends the member in good order: what it holds is committed and released before it leaves.
7. A draining member says so in each join and continues as before; the leader's answer shows whether it knows of drains.

An event that is in no line is a fault, and raises.

Invariant: owned partitions are derived from the state alone (see ``member_subscription``). Sources: KIP-429, KIP-441,
StreamsPartitionAssignor.onAssignment, StreamThread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from tidemill.assignment.model import LONG_MAX
from tidemill.errors import UnexpectedEventError, WireFormatError
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.member_state import (
    ApplicationShutdownRequested,
    Assigned,
    AssignTasks,
    CloseRequested,
    CloseStandbys,
    ConfirmRevoked,
    Drain,
    DrainRequested,
    Event,
    GiveUpTasks,
    HeldTask,
    Hold,
    Instruction,
    LeaveGroup,
    MemberPhase,
    MembershipLost,
    MemberState,
    RejoinNow,
    ReportFatal,
    RevokeAllRequested,
    RevokeTasks,
    Role,
    ScheduleRejoin,
    ShutDownApplication,
    TasksReleased,
    TimePassed,
    TopicsAdded,
)
from tidemill.membership.received_assignment import check_fits, next_version, received_assignment
from tidemill.membership.wire import AssignmentInfo
from tidemill.membership.wire.assignment import AssignorError

FIRST_PAUSE_MS = 100
LONGEST_PAUSE_MS = 1_000
"""Before a follow-up rebalance that is asked for again and again; doubled from the first to the longest."""

REVOKED = "partitions were revoked and are free for their next owners"
"""Why a member rejoins after rule 2."""

DRAINS, STAYS = "this instance drains", "this instance does not drain any more"
"""Reasons to rejoin by rule 7."""

TOPICS_ADDED = "topics have appeared that a pattern of the program matches"
"""Why a member rejoins when its plan reads more topics."""

AT_ONCE = "the leader asks for it: tasks of this member must be revoked by their owners first, or its assignor wants it"
"""Reason of a rejoin that was scheduled for 0."""

Step: TypeAlias = tuple[MemberState, tuple[Instruction, ...]]


def step(state: MemberState, event: Event, now_ms: int) -> Step:
    """The next state and what to do about ``event``; UnexpectedEventError for one that is none of ``Event``."""
    transition = _TRANSITIONS.get((state.phase, type(event)))
    if transition is None:
        raise UnexpectedEventError(f"a member that is {state.phase.value} has no rule for {event!r}")
    return transition(state, event, now_ms)


def _nothing(state: MemberState, _event: Event, _now_ms: int) -> Step:
    return state, ()


# --- assignments -------------------------------------------------------------------------------------------------------


def _on_assigned(state: MemberState, event: Assigned, now_ms: int) -> Step:
    if _is_void(state, event):
        return state, ()
    given_up: tuple[Instruction, ...] = ()
    if event.incarnation > state.incarnation:
        state, given_up = _lose(state, event.incarnation, "the membership was replaced")
    try:
        received = received_assignment(event, used_version=state.used_version)
        if state.config.topology is not None:
            check_fits(received, state.config.topology)
    except WireFormatError as error:
        state, ending = _fail(_adopt(state, event), AssignorError.ASSIGNMENT_ERROR, str(error))
        return state, (*given_up, *ending)
    if received.info.error_code not in (AssignorError.NONE, AssignorError.DRAINING):
        state, ending = _end_for_code(_adopt(state, event), received.info.error_code)
        return state, (*given_up, *ending)
    state = replace(
        _adopt(state, event),
        drain=_drain_after(state, event, received.info),
        active=received.active,
        standby=received.standby,
        partitions_by_host=received.info.partitions_by_host,
        standby_partitions_by_host=received.info.standby_partitions_by_host,
        rejoin_reason=state.error_code.sentence if state.error_code is not AssignorError.NONE else None,
    )
    state, changes = _reconcile(state)
    state, schedule = _schedule(state, received.info, now_ms)
    state, rejoin = _rejoin_if_due(state)
    return state, (*given_up, *changes, *schedule, *rejoin)


def _on_assigned_while_closing(state: MemberState, event: Assigned, _now_ms: int) -> Step:
    """The last commits need the new generation; after a loss there is nothing left to commit."""
    if _is_void(state, event):
        return state, ()
    given_up: tuple[Instruction, ...] = ()
    if event.incarnation > state.incarnation:
        state, given_up = _lose(state, event.incarnation, "the membership was replaced")
    return _adopt(state, event), given_up


def _is_void(state: MemberState, event: Assigned) -> bool:
    """Rule 4."""
    return event.incarnation < state.incarnation or (event.incarnation, event.generation) < state.claimed


def _adopt(state: MemberState, event: Assigned) -> MemberState:
    """The event's membership."""
    return replace(state, generation=event.generation, member_id=event.member_id, is_joining=False)


def _drain_after(state: MemberState, event: Assigned, info: AssignmentInfo) -> Drain:
    """Rule 7. An assignment that a join has claimed answers an earlier one."""
    answers_the_last_join = (event.incarnation, event.generation) > state.claimed
    if state.drain in (Drain.NONE, Drain.ASKED) or not answers_the_last_join:
        return state.drain
    return Drain.UNDER_WAY if info.error_code == AssignorError.DRAINING else Drain.IGNORED


def _schedule(state: MemberState, info: AssignmentInfo, now_ms: int) -> Step:
    """Rule 5."""
    used_version = next_version(info, used_version=state.used_version)
    hosts = info.partitions_by_host
    if used_version is not None:
        at_once = f"the group's common version is {used_version}"
        state = replace(state, used_version=used_version)
    elif hosts and state.config.host is not None and state.config.host not in hosts:
        at_once = f"the group does not know the endpoint {state.config.endpoint} yet"
    elif info.next_rebalance_ms <= 0:
        at_once = AT_ONCE
    elif info.next_rebalance_ms < now_ms:
        at_once = f"the followup rebalance was due at {info.next_rebalance_ms} ms already"
    else:
        if (state.next_rebalance_ms, state.immediate_followups) != (info.next_rebalance_ms, 0):
            state = replace(state, next_rebalance_ms=info.next_rebalance_ms, immediate_followups=0)
        return state, () if info.next_rebalance_ms == LONG_MAX else (ScheduleRejoin(at_ms=info.next_rebalance_ms),)
    row = state.immediate_followups
    state = replace(state, immediate_followups=row + 1, next_rebalance_ms=LONG_MAX)
    if row == 0:
        return replace(state, rejoin_reason=at_once), ()
    at_ms = now_ms + min(FIRST_PAUSE_MS * 2 ** min(row - 1, 10), LONGEST_PAUSE_MS)
    return replace(state, next_rebalance_ms=at_ms), (ScheduleRejoin(at_ms=at_ms),)


# --- what is held against what is wanted -------------------------------------------------------------------------------


def _reconcile(state: MemberState) -> Step:
    """Revoke and close what is not wanted, open what is wanted and not on its way out (rules 1 and 2)."""
    if _holds_what_it_should(state):
        return state, ()
    held = dict(state.held)
    revoked, closed = set(), set()
    active: dict[TaskId, tuple[TopicPartition, ...]] = {}
    standby: dict[TaskId, tuple[TopicPartition, ...]] = {}
    for task in sorted(held):
        had = held[task]
        if had.hold is not Hold.OPEN:
            continue  # on its way out already: what follows from this assignment is found again when it is released
        if had.role is Role.ACTIVE and state.active.get(task) != had.partitions:
            # Also where the same task is assigned with other partitions: its batches would continue with the old ones.
            revoked.add(task)
            held[task] = replace(had, hold=Hold.RELEASING)
        elif had.role is Role.STANDBY and task in state.active:
            del held[task]  # and taken up again below, in the other role
        elif had.role is Role.STANDBY and task not in state.standby:
            closed.add(task)
            held[task] = replace(had, hold=Hold.RELEASING)
    for wanted, found, role in ((state.active, active, Role.ACTIVE), (state.standby, standby, Role.STANDBY)):
        for task in sorted(wanted):
            if task not in held:
                found[task] = wanted[task]
                held[task] = HeldTask(role=role, partitions=wanted[task])
    if not (revoked or closed or active or standby):
        return state, ()
    instructions: list[Instruction] = []
    if revoked:
        demoted = frozenset(revoked & state.standby.keys())
        instructions.append(RevokeTasks(tasks=frozenset(revoked), becomes_standby=demoted))
    if closed:
        instructions.append(CloseStandbys(tasks=frozenset(closed)))
    if active or standby:
        instructions.append(AssignTasks(active=active, standby=standby))
    return replace(state, held=held), tuple(instructions)


def _holds_what_it_should(state: MemberState) -> bool:
    """True if the tasks held are the assigned ones, with nothing to open, close or promote: the case after most rebalances."""
    if len(state.held) != len(state.active) + len(state.standby):
        return False
    for task, had in state.held.items():
        if had.hold is not Hold.OPEN:
            return False
        if had.role is Role.ACTIVE:
            if state.active.get(task) != had.partitions:
                return False
        elif task not in state.standby:
            return False
    return True


def _on_released(state: MemberState, event: TasksReleased, _now_ms: int) -> Step:
    going = {task: had for task, had in state.held.items() if task in event.tasks and had.hold is not Hold.OPEN}
    if not going:
        return state, ()
    # A task that comes back to this member has freed nothing for others, so it is no reason for a rebalance. Nor are tasks
    # released for a join that waits: it is that rebalance.
    given_away = any(
        partition not in state.active.get(task, ())
        for task, had in going.items()
        for partition in had.partitions
        if had.role is Role.ACTIVE and had.hold is Hold.RELEASING
    )
    state = replace(
        state,
        held={task: had for task, had in state.held.items() if task not in going},
        owes_rejoin=state.owes_rejoin or (given_away and not state.must_confirm_revocation),
    )
    state, changes = _reconcile(state)
    state, confirmed = _confirm_if_revoked(state)
    state, rejoin = _rejoin_if_due(state)
    return state, (*changes, *confirmed, *rejoin)


def _on_released_while_closing(state: MemberState, event: TasksReleased, _now_ms: int) -> Step:
    held = {task: had for task, had in state.held.items() if task not in event.tasks}
    state, confirmed = _confirm_if_revoked(replace(state, held=held))
    state, left = _leave_if_empty(state)
    return state, (*confirmed, *left)


def _rejoin_if_due(state: MemberState) -> Step:
    """Rule 3."""
    reason = state.rejoin_reason or (REVOKED if state.owes_rejoin else None)
    if reason is None or is_revoking(state):
        return state, ()
    return replace(state, rejoin_reason=None, owes_rejoin=False), (RejoinNow(reason=reason),)


def is_revoking(state: MemberState) -> bool:
    """Actives are on their way out."""
    return any(had.role is Role.ACTIVE and had.hold is Hold.RELEASING for had in state.held.values())


# --- losses, deadlines, endings ----------------------------------------------------------------------------------------


def _on_lost(state: MemberState, event: MembershipLost, _now_ms: int) -> Step:
    if event.incarnation <= state.incarnation:
        return state, ()
    return _lose(state, event.incarnation, event.reason)


def _lose(state: MemberState, incarnation: int, reason: str) -> Step:
    """Rule 4; whatever was being released is lost as well."""
    lost = frozenset(task for task, had in state.held.items() if had.hold is not Hold.LOST)
    state = replace(
        state,
        generation=-1,
        incarnation=incarnation,
        held={task: replace(had, hold=Hold.LOST) for task, had in state.held.items()},
        active={},
        standby={},
        is_joining=False,
        rejoin_reason=None,
        owes_rejoin=False,
        next_rebalance_ms=LONG_MAX,
        immediate_followups=0,
        must_confirm_revocation=False,
    )
    return state, (GiveUpTasks(tasks=lost, reason=reason),) if lost else ()


def _on_revoke_all(state: MemberState, _event: RevokeAllRequested, _now_ms: int) -> Step:
    """The join that waits for it serves every wish for a rebalance that there was until now."""
    state = replace(state, active={}, standby={}, must_confirm_revocation=True, next_rebalance_ms=LONG_MAX, rejoin_reason=None)
    state, changes = _reconcile(state)
    state, confirmed = _confirm_if_revoked(state)
    return state, (*changes, *confirmed)


def _confirm_if_revoked(state: MemberState) -> Step:
    if not state.must_confirm_revocation or is_revoking(state):
        return state, ()
    return replace(state, must_confirm_revocation=False), (ConfirmRevoked(),)


def _on_time(state: MemberState, _event: TimePassed, now_ms: int) -> Step:
    """Ignored while joining: the pending assignment sets the time of the next rebalance."""
    if state.is_joining or now_ms <= state.next_rebalance_ms:
        return state, ()
    reason = f"Triggering the followup rebalance scheduled for {state.next_rebalance_ms} ms."
    return _rejoin_if_due(replace(state, rejoin_reason=reason, next_rebalance_ms=LONG_MAX))


def _on_application_shutdown(state: MemberState, _event: ApplicationShutdownRequested, _now_ms: int) -> Step:
    code = AssignorError.SHUTDOWN_REQUESTED
    if state.error_code is code:
        return state, ()
    return _rejoin_if_due(replace(state, error_code=code, rejoin_reason=code.sentence))


def _on_drain(state: MemberState, event: DrainRequested, _now_ms: int) -> Step:
    if event.is_wanted == (state.drain is not Drain.NONE):
        return state, ()  # asked for twice
    drain, reason = (Drain.ASKED, DRAINS) if event.is_wanted else (Drain.NONE, STAYS)
    return _rejoin_if_due(replace(state, drain=drain, rejoin_reason=state.rejoin_reason or reason))


def _on_topics_added(state: MemberState, event: TopicsAdded, _now_ms: int) -> Step:
    config = replace(state.config, topology=event.topology)
    return _rejoin_if_due(replace(state, config=config, rejoin_reason=state.rejoin_reason or TOPICS_ADDED))


def _end_for_code(state: MemberState, code: int) -> Step:
    """Rule 6; a code that this version does not know is fatal too."""
    if code == AssignorError.SHUTDOWN_REQUESTED:
        closing, instructions = _close(state)
        return closing, (ShutDownApplication(reason=AssignorError.SHUTDOWN_REQUESTED.sentence), *instructions)
    known = code in set(AssignorError)
    sentence = AssignorError(code).sentence if known else f"the leader sent the unknown error code {code}"
    return _fail(state, AssignorError(code) if known else AssignorError.ASSIGNMENT_ERROR, sentence)


def _fail(state: MemberState, code: AssignorError, reason: str) -> Step:
    state, instructions = _close(state)
    return state, (ReportFatal(code=code, reason=reason), *instructions)


def _on_close(state: MemberState, _event: CloseRequested, _now_ms: int) -> Step:
    return _close(state)


def _close(state: MemberState) -> Step:
    state = replace(state, phase=MemberPhase.CLOSING, active={}, standby={}, next_rebalance_ms=LONG_MAX)
    state, changes = _reconcile(state)
    state, left = _leave_if_empty(state)
    return state, (*changes, *left)


def _leave_if_empty(state: MemberState) -> Step:
    if state.held:
        return state, ()
    return replace(state, phase=MemberPhase.ENDED), (LeaveGroup(),)


_TRANSITIONS: Mapping[tuple[MemberPhase, type[Event]], Callable[..., Step]] = {
    (MemberPhase.MEMBER, Assigned): _on_assigned,
    (MemberPhase.MEMBER, MembershipLost): _on_lost,
    (MemberPhase.MEMBER, TasksReleased): _on_released,
    (MemberPhase.MEMBER, RevokeAllRequested): _on_revoke_all,
    (MemberPhase.MEMBER, TimePassed): _on_time,
    (MemberPhase.MEMBER, ApplicationShutdownRequested): _on_application_shutdown,
    (MemberPhase.MEMBER, DrainRequested): _on_drain,
    (MemberPhase.MEMBER, TopicsAdded): _on_topics_added,
    (MemberPhase.MEMBER, CloseRequested): _on_close,
    (MemberPhase.CLOSING, Assigned): _on_assigned_while_closing,
    (MemberPhase.CLOSING, MembershipLost): _on_lost,
    (MemberPhase.CLOSING, TasksReleased): _on_released_while_closing,
    (MemberPhase.CLOSING, RevokeAllRequested): _on_revoke_all,
    (MemberPhase.CLOSING, TimePassed): _nothing,
    (MemberPhase.CLOSING, ApplicationShutdownRequested): _nothing,
    (MemberPhase.CLOSING, DrainRequested): _nothing,
    (MemberPhase.CLOSING, TopicsAdded): _nothing,
    (MemberPhase.CLOSING, CloseRequested): _nothing,
    (MemberPhase.ENDED, Assigned): _nothing,
    (MemberPhase.ENDED, MembershipLost): _nothing,
    (MemberPhase.ENDED, TasksReleased): _nothing,
    (MemberPhase.ENDED, RevokeAllRequested): _nothing,
    (MemberPhase.ENDED, TimePassed): _nothing,
    (MemberPhase.ENDED, ApplicationShutdownRequested): _nothing,
    (MemberPhase.ENDED, DrainRequested): _nothing,
    (MemberPhase.ENDED, TopicsAdded): _nothing,
    (MemberPhase.ENDED, CloseRequested): _nothing,
}
