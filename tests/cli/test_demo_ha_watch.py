"""What the demo of a take-over sees of its group: when an act is over, and what is worth a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidemill.cli import top
from tidemill.cli.demo_ha_watch import Watch
from tidemill.errors import EnvironmentProblem
from tidemill.ids import TaskId
from tidemill.query.group_documents import read_group

RECORDED = Path(__file__).parents[1] / "dashboard" / "recorded"
ADDRESSES = ["127.0.0.1:35433", "127.0.0.1:38887", "127.0.0.1:34283"]


def watch(monkeypatch: pytest.MonkeyPatch, *names: str) -> tuple[Watch, list[str]]:
    """After a look at each of these groups in turn; and what was said."""
    said: list[str] = []
    groups = [read_group(json.loads((RECORDED / f"{name}.json").read_text())) for name in names]
    monkeypatch.setattr(top.GroupQuestion, "ask", lambda self, timeout_s: groups.pop(0))
    found = Watch(said.append)
    for _ in names:
        found.look(ADDRESSES, every_s=0)
    return found, said


def tasks(*names: str) -> set[TaskId]:
    return set(map(TaskId.parse, names))


def test_a_group_that_warms_up_has_all_tasks_active_and_says_who_owns_state(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, "warming_up")
    assert (found.active, found.stateful_owners, found.warming_up) == (12, 2, True)
    assert found.caught_up_copies == 6
    assert found.stateful_at("127.0.0.1:35433") == tasks("1_0", "1_2", "1_3")


def test_tasks_of_one_that_is_away_run_nowhere_until_another_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, "warming_up", "one_away")
    lost = tasks("0_1", "0_4", "1_1", "1_4")
    assert not lost & found.running_at(ADDRESSES[:2])
    assert found.active == 7


def test_each_change_is_said_once_and_follow_ups_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    _, said = watch(monkeypatch, "warming_up", "warming_up", "one_away")
    assert said.count("127.0.0.1:34283: RUNNING") == 1
    assert said.count("127.0.0.1:34283: does not answer") == 1
    rebalances = [line for line in said if line.startswith("rebalance")]
    assert len(rebalances) == len(set(rebalances))
    assert not any("nothing moved" in line for line in rebalances)


def test_what_was_promoted_is_told_from_the_leaders_own_record(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = watch(monkeypatch, "one_away")
    promoted, others = found.promoted(tasks("1_0", "1_2", "1_3", "1_5"))
    assert promoted >= 1
    assert promoted + others <= 4


def test_a_look_without_an_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = watch(monkeypatch, "warming_up")

    def away(self: Any, timeout_s: float) -> Any:
        raise EnvironmentProblem("no instance can be asked")

    monkeypatch.setattr(top.GroupQuestion, "ask", away)
    looked_at = found.looked_at
    found.look(ADDRESSES, every_s=0)
    assert (found.active, found.looked_at) == (12, looked_at)
    assert said
