"""`tidemill group members`: roles and lags of one member's tasks, as the leader's own functions see them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.assignment.model import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    Assignment,
    ClientAssignment,
    ClientState,
    ConsumerState,
)
from tidemill.cli import assign_live_group
from tidemill.cli.assign_live_group import LiveExplanation, Question
from tidemill.cli.group_tasks import member_rows, task_rows, with_time_left
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import RetriableError
from tidemill.ids import ProcessId, TaskId
from tidemill.kafka.admin.groups import LiveMember
from tidemill.kafka.group.protocol import MemberAssignment, MemberSubscription
from tidemill.membership.wire import AssignmentInfo, HostInfo, SubscriptionInfo, encode_assignment, encode_subscription
from tidemill.query import http_forward
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


def member(client_id: str, host: str | None, active: tuple[TaskId, ...], standby: tuple[TaskId, ...] = ()) -> LiveMember:
    info = SubscriptionInfo(process_id=PROCESS, user_endpoint=host)
    subscription = MemberSubscription(member_id=client_id, topics=(), user_data=encode_subscription(info))
    given = encode_assignment(AssignmentInfo(active_tasks=active, standby_tasks=dict.fromkeys(standby, ())))
    assigned = MemberAssignment(partitions=(), user_data=given)
    return LiveMember(client_id=client_id, subscription=subscription, assignment=assigned)


def test_each_member_has_its_rows_and_its_instance_is_asked_once_how_fast_it_restores(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token of the application's settings, wherever they are given."""
    members = {
        "m4": LiveMember(
            client_id="d", subscription=MemberSubscription(member_id="m4", topics=()), assignment=MemberAssignment()
        ),
        "m3": member("c", None, (RUNS,)),
        "m2": member("b", "one:1", (), (STANDBY,)),
        "m1": member("a", "one:1", (RESTORES,)),
        "m0": member("a", "gone:1", ()),
    }
    consumers = tuple(ConsumerState(member=name) for name in members if name != "m4")
    client = ClientState(process_id=PROCESS, capacity=4, consumers=consumers, lags={RUNS: LATEST_OFFSET, RESTORES: 7, STANDBY: 3})
    state = ApplicationState(clients=(client,), tasks=tuple(sorted(STATEFUL)), stateful_tasks=STATEFUL)
    needed = {"application.id": "app", "bootstrap.servers": "none:1", "tidemill.http.token": "a-token-of-16-or-more"}
    live = LiveExplanation(
        title="",
        config=StreamsConfig.of(needed),
        members=members,
        state=state,
        assignment=Assignment(clients={}, followup_needed=False),
        due=str,
        names={},
        remarks=("a remark",),
    )
    asked: list[tuple[str, str]] = []

    def copies_at(host: HostInfo, *, token: str, **_how: object) -> tuple[CopyProgress, ...]:
        asked.append((str(host), token))
        if host.host == "gone":
            raise RetriableError("gone:1 does not answer")
        return (CopyProgress(task=RESTORES, is_active=True, lag=5, offsets_per_s=0.5),)

    monkeypatch.setattr(assign_live_group, "live_explanation", lambda _question: live)
    monkeypatch.setattr(http_forward, "copies_at", copies_at)
    rows, remarks = member_rows(Question(application_id="app", app=None, settings={}))
    assert rows == [
        ("a", "-", "-", "-", "-"),
        ("a", "1_1", "restoring", "5", "10 s"),
        ("b", "1_2", "standby", "3", "-"),
        ("c", "1_0", "active", "-", "-"),
        ("d", "-", "-", "-", "-"),
    ]
    assert remarks == (
        "a remark",
        "How fast it restores is not known: gone:1 does not answer.",
        "Instances without application.server (tidemill.http.listen) can't be asked how fast they restore.",
    )
    assert asked == [("gone:1", needed["tidemill.http.token"]), ("one:1", needed["tidemill.http.token"])]
