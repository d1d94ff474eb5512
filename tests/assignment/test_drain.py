"""What a client that drains keeps: its tasks until others have caught-up copies, within KIP-441's promises."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.assignment.balanced.assignor import BalancedTaskAssignor
from tidemill.assignment.custom import InvalidAssignmentError
from tidemill.assignment.drain import assign_with_drains
from tidemill.assignment.invariants import guarantee_violations, violations
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    Assignment,
    AssignmentConfig,
    ClientAssignment,
    ClientState,
    CopyRole,
)
from tidemill.assignment.sticky.assignor import StickyTaskAssignor
from tidemill.ids import ProcessId, TaskId

A, B, C = (ProcessId(number, 0) for number in (1, 2, 3))
T = [TaskId(0, number) for number in range(6)]
END = 1_000


def client(process: ProcessId, *, drains: bool = False, **lags: int) -> ClientState:
    """``t0=LATEST_OFFSET``: runs task 0_0; others: its lag."""
    of_tasks = {T[int(name[1:])]: lag for name, lag in lags.items()}
    running = frozenset(task for task, lag in of_tasks.items() if lag == LATEST_OFFSET)
    return ClientState(
        process_id=process, capacity=1, previous_active=running, previous_standby=frozenset(of_tasks) - running, lags=of_tasks,
        is_draining=drains,
    )  # fmt: skip


def state(*clients: ClientState, tasks: int = 2, end: int = END, **config: int) -> ApplicationState:
    settings = {"acceptable_recovery_lag": 100, **config}
    return ApplicationState(
        clients=clients, tasks=tuple(T[:tasks]), stateful_tasks=frozenset(T[:tasks]),
        end_offset_sums=dict.fromkeys(T[:tasks], end), config=AssignmentConfig(**settings),
    )  # fmt: skip


def answer(asked: ApplicationState) -> Assignment:
    found = assign_with_drains(HighAvailabilityTaskAssignor(), asked)
    assert violations(asked, found) == []
    assert guarantee_violations(asked, found) == []
    return found


def held(found: Assignment, process: ProcessId) -> tuple[set[TaskId], set[TaskId]]:
    return set(found.clients[process].active), set(found.clients[process].standby)


def test_a_task_stays_with_the_client_that_drains_until_its_target_has_caught_up() -> None:
    asked = state(client(A, t0=LATEST_OFFSET), client(B, drains=True, t1=LATEST_OFFSET))
    found = answer(asked)
    assert held(found, B) == ({T[1]}, set())
    assert held(found, A) == ({T[0]}, {T[1]})
    assert found.clients[A].warmup == {T[1]}
    assert found.followup_needed


@pytest.mark.parametrize(("lag", "stays"), [(101, True), (100, False), (0, False)])
def test_it_moves_at_kip_441s_acceptable_lag(lag: int, stays: bool) -> None:
    found = answer(state(client(A, t0=LATEST_OFFSET, t1=lag), client(B, drains=True, t1=LATEST_OFFSET)))
    assert (T[1] in found.clients[B].active) is stays
    assert found.followup_needed is stays


def test_a_client_without_any_state_is_not_caught_up_however_small_the_changelog_is() -> None:
    small = state(client(A, t0=LATEST_OFFSET), client(B, drains=True, t1=LATEST_OFFSET), end=50)
    assert held(answer(small), B) == ({T[1]}, set())
    empty = state(client(A, t0=LATEST_OFFSET), client(B, drains=True, t1=LATEST_OFFSET), end=0)
    assert held(answer(empty), B) == (set(), set())


def test_stateless_tasks_go_at_once() -> None:
    asked = replace(state(client(A), client(B, drains=True, t0=LATEST_OFFSET, t1=LATEST_OFFSET)), stateful_tasks=frozenset())
    found = assign_with_drains(HighAvailabilityTaskAssignor(), replace(asked, end_offset_sums={}))
    assert held(found, B) == (set(), set())
    assert not found.followup_needed


def test_warm_ups_of_a_drain_come_first_and_stay_within_the_budget() -> None:
    running = {f"t{number}": LATEST_OFFSET for number in range(3)}
    found = answer(state(client(A), client(B, drains=True, **running), client(C), tasks=3, max_warmup_replicas=2))
    assert held(found, B)[0] == set(T[:3])
    assert sum(len(one.warmup) for one in found.clients.values()) == 2


def test_the_nearest_to_being_caught_up_is_served_first() -> None:
    running = {f"t{number}": LATEST_OFFSET for number in range(3)}
    found = answer(state(client(A, t2=300), client(B, drains=True, **running), tasks=3, max_warmup_replicas=1))
    assert found.clients[A].warmup == {T[2]}


def test_a_copy_is_kept_until_the_standby_that_replaces_it_has_caught_up() -> None:
    clients = client(A, t0=LATEST_OFFSET), client(C)
    standby = client(B, drains=True, t0=5)
    found = answer(state(*clients, standby, tasks=1, num_standby_replicas=1))
    assert held(found, B) == (set(), {T[0]})
    assert held(found, C) == (set(), {T[0]})
    ready = answer(state(clients[0], client(C, t0=10), standby, tasks=1, num_standby_replicas=1))
    assert held(ready, B) == (set(), set())


def test_a_standby_that_nobody_else_can_have_is_given_up() -> None:
    found = answer(state(client(A, t0=LATEST_OFFSET), client(B, drains=True, t0=5), tasks=1, num_standby_replicas=1))
    assert held(found, B) == (set(), set())


def test_where_all_drain_none_does() -> None:
    asked = state(client(A, drains=True, t0=LATEST_OFFSET), client(B, drains=True, t1=LATEST_OFFSET))
    assert assign_with_drains(HighAvailabilityTaskAssignor(), asked) == HighAvailabilityTaskAssignor().assign(asked)


def test_without_lags_nothing_is_drained() -> None:
    asked = state(client(A, t0=UNKNOWN_OFFSET_SUM), client(B, drains=True, t1=UNKNOWN_OFFSET_SUM), end=UNKNOWN_OFFSET_SUM)
    assert assign_with_drains(StickyTaskAssignor(), asked) == StickyTaskAssignor().assign(asked)


def test_the_assignor_is_not_asked_about_clients_that_drain() -> None:
    class Records:
        def assign(self, asked: ApplicationState) -> Assignment:
            self.seen = [one.process_id for one in asked.clients]
            return HighAvailabilityTaskAssignor().assign(asked)

    records = Records()
    assign_with_drains(records, state(client(A, t0=LATEST_OFFSET), client(B, drains=True, t1=LATEST_OFFSET)))
    assert records.seen == [A]


def test_an_answer_that_can_not_be_carried_out_is_refused() -> None:
    class Forgets:
        def assign(self, asked: ApplicationState) -> Assignment:
            return Assignment(clients={A: ClientAssignment()}, followup_needed=False)

    with pytest.raises(InvalidAssignmentError, match="0_0 is active nowhere"):
        assign_with_drains(Forgets(), state(client(A), client(B, drains=True)))


def test_the_decisions_say_who_waits_for_whom() -> None:
    found = answer(state(client(A, t0=LATEST_OFFSET, t1=400), client(B, drains=True, t1=LATEST_OFFSET)))
    of_task = [one for one in found.explain() if one.task == T[1]]
    assert [(one.role, one.chosen, one.target) for one in of_task] == [(CopyRole.ACTIVE, B, A), (CopyRole.WARM_UP, A, A)]
    assert "which drains" in of_task[0].reason
    assert "lags by 400 offsets" in of_task[0].reason
    others = [one for one in found.explain() if one.task == T[0]]
    assert [(one.role, one.chosen) for one in others] == [(CopyRole.ACTIVE, A)]


@st.composite
def groups(draw: st.DrawFn) -> ApplicationState:
    processes = [ProcessId(number, 0) for number in range(1, draw(st.integers(2, 5)) + 1)]
    tasks = draw(st.integers(1, 6))
    owner = {at: draw(st.sampled_from([*processes, None])) for at in range(tasks)}
    lag = st.one_of(st.none(), st.integers(0, END))
    clients = []
    for process in processes:
        lags = {at: LATEST_OFFSET if owner[at] == process else draw(lag) for at in range(tasks)}
        told = {f"t{at}": found for at, found in lags.items() if found is not None}
        clients.append(client(process, drains=draw(st.booleans()), **told))
    config = {"max_warmup_replicas": draw(st.integers(1, 3)), "num_standby_replicas": draw(st.integers(0, 2))}
    return state(*clients, tasks=tasks, **config)


@settings(max_examples=300, deadline=None)
@given(groups(), st.sampled_from([HighAvailabilityTaskAssignor(), BalancedTaskAssignor()]))
def test_of_any_group_the_answer_keeps_kip_441s_promises_and_no_running_task_waits(
    asked: ApplicationState, assignor: HighAvailabilityTaskAssignor | BalancedTaskAssignor
) -> None:
    found = assign_with_drains(assignor, asked)
    assert violations(asked, found) == []
    assert guarantee_violations(asked, found) == []
    for one in asked.clients:
        for task in one.previous_active if one.is_draining else ():
            [owner] = [other for other in asked.clients if task in found.clients[other.process_id].active]
            is_ready = one is owner or owner.is_draining or owner.lags.get(task, END) <= 100
            assert is_ready, "a draining client hands a task that it runs to one that has caught up"
