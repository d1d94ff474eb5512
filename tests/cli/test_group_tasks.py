"""`tidemill group members`: roles and lags of one member's tasks, as the leader's own functions see them."""

from __future__ import annotations

from dataclasses import replace

from tidemill.assignment.model import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    Assignment,
    ClientAssignment,
    ClientState,
)
from tidemill.cli.group_tasks import task_rows, with_time_left
from tidemill.ids import ProcessId, TaskId
from tidemill.task.progress import CopyProgress

PROCESS = ProcessId(0, 1)
STATELESS, RUNS, RESTORES, STANDBY, WARMUP, OLD = (
    TaskId(0, 0), TaskId(1, 0), TaskId(1, 1), TaskId(1, 2), TaskId(1, 3), TaskId(1, 4)
)  # fmt: skip
STATEFUL = frozenset({RUNS, RESTORES, STANDBY, WARMUP, OLD})


def test_actives_come_first_and_each_copy_has_its_role_and_lag() -> None:
    lags = {RUNS: LATEST_OFFSET, RESTORES: 7, STANDBY: 0, OLD: UNKNOWN_OFFSET_SUM}
    client = ClientState(process_id=PROCESS, capacity=1, lags=lags)
    state = ApplicationState(
        clients=(client,),
        tasks=(STATELESS, *sorted(STATEFUL)),
        stateful_tasks=STATEFUL,
        end_offset_sums=dict.fromkeys(STATEFUL, 90),
    )
    assigned = ClientAssignment(standby=frozenset({STANDBY, WARMUP, OLD}), warmup=frozenset({WARMUP}))
    assignment = Assignment(clients={PROCESS: assigned}, followup_needed=True)
    rows = list(task_rows(client, {RESTORES, STATELESS, RUNS}, {WARMUP, STANDBY, OLD}, state, assignment))
    assert rows == [
        ("0_0", "active", "-"),
        ("1_0", "active", "-"),
        ("1_1", "restoring", "7"),
        ("1_2", "standby", "0"),
        ("1_3", "warm-up", "90"),
        ("1_4", "standby", "unknown"),
    ]


def test_the_time_left_is_lag_by_measured_speed_and_an_instances_own_lag_wins() -> None:
    row = ("1_3", "warm-up", "90")
    fast = CopyProgress(task=WARMUP, is_active=False, lag=60, offsets_per_s=5.0)
    assert with_time_left(row, fast) == ("1_3", "warm-up", "60", "12 s")
    assert with_time_left(row, replace(fast, offsets_per_s=None)) == ("1_3", "warm-up", "60", "unknown")
    assert with_time_left(row, None) == ("1_3", "warm-up", "90", "-")
