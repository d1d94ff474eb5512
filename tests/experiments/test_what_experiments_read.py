"""What experiments conclude from logs and moments of commits: rounds of a leader, pauses, costs for the simulator."""

from __future__ import annotations

from typing import Any

import pytest
from bounce_simulated import Costs, notices, simulated
from commits import Commits, pauses, quantile
from rounds import assignments, shown

from tidemill.assignment.model import ApplicationState, Assignment, ClientAssignment, ClientState
from tidemill.ids import ProcessId, TaskId
from tidemill.membership import leader_log

LEADER = "streams-wordcount-7156cef1-307e-49c0-a5bb-0f11d26a4933-StreamThread-1-consumer"
ONE, TWO = ProcessId(1, 0), ProcessId(2, 0)
COSTS = Costs(notice_ms=200, release_ms=100, open_ms=300, records_per_s=50_000.0, away_ms=3_000)


def said(at_s: float, line: leader_log.LogLine) -> str:
    return f"{at_s:.3f} tidemill.leader stream-thread [{LEADER}] {line.text}"


def a_round(at_s: float, *, one: str, two: str, follow_up: leader_log.LogLine) -> list[str]:
    tasks = {ONE: one, TWO: two}
    held = {
        process: ClientAssignment(
            active=frozenset(map(TaskId.parse, text.split("|")[0].split())),
            standby=frozenset(map(TaskId.parse, text.split("|")[1].split())),
        )
        for process, text in tasks.items()
    }
    every = tuple(sorted(task for client in held.values() for task in client.active))
    state = ApplicationState(
        clients=tuple(ClientState(process_id=process, capacity=1) for process in tasks),
        tasks=every,
        stateful_tasks=frozenset(every),
        end_offset_sums={},
    )
    line = leader_log.assigned(state, Assignment(clients=held, followup_needed=True))
    return [said(at_s, line), said(at_s, follow_up), "12.5 tidemill.thread event=rejoining thread=x cause='y'"]


def test_rounds_are_read_as_the_leader_wrote_them_in_the_order_of_time() -> None:
    probing = leader_log.probing_followup(LEADER, 70_500)
    first = a_round(10.5, one="0_0 1_0|1_1", two="1_1|", follow_up=probing)
    last = a_round(70.6, one="0_0 1_0|", two="1_1|1_0", follow_up=leader_log.STABLE)
    found = assignments(["\n".join(last), "\n".join(first)])
    assert [one.at_s for one in found] == [10.5, 70.6]
    assert shown(found[0], {str(ONE): "one"}) == [("one", "0_0 1_0", "1_1"), (str(TWO), "1_1", "-")]
    assert (found[0].follow_up, found[1].follow_up) == ("a probe 60 s later", "none: stable")
    assert found[0].decided != found[1].decided


def test_a_round_in_which_tasks_are_withheld_says_that_the_next_follows_at_once() -> None:
    lines = a_round(10.5, one="0_0|", two="0_1|", follow_up=leader_log.immediate_followup(LEADER))
    lines.insert(1, said(10.5, leader_log.withheld(TaskId(0, 0), LEADER)))
    [found] = assignments(["\n".join(lines)])
    assert (found.is_at_once, found.withheld) == (True, ["0_0"])


def test_pauses_count_what_lies_beyond_the_interval_of_every_partition() -> None:
    found = pauses([[0.1, 0.5, 0.1], [0.3], []], interval_ms=200.0)
    assert (round(found.total_ms), round(found.longest_ms), found.partitions) == (400, 300, 3)


def test_a_gap_that_reaches_into_the_time_counts_whole() -> None:
    commits = Commits.__new__(Commits)
    commits.times = {("in", 0): [1.0, 2.0, 5.0, 9.0, 10.0]}
    assert commits.gaps(3.0, 6.0) == {("in", 0): [3.0, 4.0]}
    assert commits.gaps(1.0, 6.0, wholly=True) == {("in", 0): [1.0, 3.0]}
    assert commits.gaps_around({("in", 0): [2.5, 3.0], ("in", 1): [1.0]}) == {("in", 0): [3.0]}


def test_a_quantile_is_one_of_the_values() -> None:
    assert [quantile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 0.99)] == [1.0, 2.0, 3.0]
    assert quantile([], 0.5) == 0.0


@pytest.fixture(scope="module")
def bounced() -> dict[str, float]:
    kinds: dict[str, dict[str, Any]] = {
        "eager": {"standbys": 0, "is_eager": True, "is_static": False},
        "cooperative": {"standbys": 0, "is_eager": False, "is_static": False},
        "with standbys": {"standbys": 1, "is_eager": False, "is_static": False},
        "drained": {"standbys": 0, "is_eager": False, "is_static": False, "drains": True},
    }
    return {name: simulated(name, COSTS, **kind).paused_ms for name, kind in kinds.items()}


def test_ten_simulated_instances_pause_less_with_each_means(bounced: dict[str, float]) -> None:
    assert bounced["with standbys"] < bounced["cooperative"] < bounced["eager"]
    assert bounced["drained"] < bounced["cooperative"]


def test_a_static_members_restart_costs_its_own_downtime_and_no_rebalance() -> None:
    found = simulated("static", COSTS, standbys=0, is_eager=False, is_static=True)
    assert found.rebalances == 0
    assert found.longest_ms == COSTS.away_ms
    assert found.paused_ms == 40 * COSTS.away_ms


def test_what_members_are_told_late_counts_only_where_something_waits_for_them() -> None:
    told = "'Heartbeat of group g was answered RebalanceInProgressError'"
    joins = [(at_s, {"reason": reason}) for at_s, reason in (
        (1.0, "'it is about to leave'"), (3.0, told),
        (10.0, "'partitions were revoked'"), (10.05, "'partitions were revoked'"), (10.1, told), (10.3, told),
        (20.0, "'first join'"), (22.0, told),
    )]  # fmt: skip
    decided: list[tuple[float, dict[str, str]]] = [(3.1, {}), (10.4, {}), (22.1, {})]
    assert notices(joins, decided, False) == pytest.approx([0.1, 0.3])


def test_an_eager_rebalance_stops_when_the_first_member_is_told() -> None:
    told = "'Heartbeat of group g was answered RebalanceInProgressError'"
    joins = [(at_s, {"reason": reason}) for at_s, reason in (
        (1.0, "'first join'"), (3.0, told), (3.1, told), (3.4, told), (9.0, told), (9.2, told),
    )]  # fmt: skip
    assert notices(joins, [(3.5, {}), (9.3, {})], True) == pytest.approx([0.1, 0.4, 0.2])
