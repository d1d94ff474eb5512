"""What `tidemill top` makes of the group's document."""

from __future__ import annotations

import json
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tidemill.cli import top
from tidemill.cli.group_screen import group_screen
from tidemill.cli.group_view import copy_rows, duration, instance_rows, listed, rebalances, shown_time, summary
from tidemill.errors import ConfigError, EnvironmentProblem, RetriableError
from tidemill.ids import TaskId
from tidemill.membership.wire import HostInfo
from tidemill.query import http_forward
from tidemill.query.group_documents import read_group

RECORDED = Path(__file__).parents[1] / "dashboard" / "recorded"


def group(name: str = "warming_up") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    for one in found["instances"]:
        if one["away"] is not None:
            one.setdefault("assigned", ["0_1", "0_4", "1_1", "1_4"])
    return found


def printed(document: dict[str, Any]) -> str:
    console = Console(width=200, file=None, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(group_screen(read_group(document)))
    return captured.get()


def test_each_instance_is_a_row_with_its_tasks_and_copies() -> None:
    rows = instance_rows(read_group(group()))
    assert [(row.name, row.state, row.active) for row in rows] == [
        ("127.0.0.1:34283", "RUNNING", "0_4 1_1 1_4 1_5"),
        ("127.0.0.1:35433", "RUNNING", "0_3 1_0 1_2 1_3"),
        ("127.0.0.1:38887", "RUNNING", "0_0 0_1 0_2 0_5"),
    ]
    assert [row.name for row in rows if row.leads] == ["127.0.0.1:35433"]


def test_threads_have_rows_of_their_own_where_an_instance_has_several() -> None:
    document = group()
    first = document["instances"][0]["threads"][0]
    document["instances"][0]["threads"].append({**first, "number": 2, "active": first["active"][:1], "standby": []})
    names = [row.name for row in instance_rows(read_group(document))]
    assert names[:4] == ["127.0.0.1:34283", "  thread 1", "  thread 2", "127.0.0.1:35433"]
    assert instance_rows(read_group(document))[2].active == "0_4"


def test_an_instances_row_sums_up_its_threads_and_takes_the_largest_times_and_the_last_assignment() -> None:
    document = group()
    first = document["instances"][0]["threads"][0]
    tasks = [{**task, "behind": behind} for task, behind in zip(first["active"], [3, None, 4, None], strict=True)]
    first |= {"active": tasks, "records_per_s": 10.0, "latency_ms": 5.0, "batch_ms": None, "last_assignment_s": 70.0}
    second = {**first, "number": 2, "active": [], "standby": [], "running": False, "latency_ms": 7.0, "batch_ms": 9.0}
    second |= {"waiting": "it has failed", "last_assignment_s": 40.0}
    third = {**second, "number": 3, "error": "StopError: no", "latency_ms": None, "last_assignment_s": None}
    document["instances"][0] |= {"threads": [first, second, third], "why": ["thread 2: it waits", "thread 3: it has failed"]}
    row, *threads = instance_rows(read_group(document))[:4]
    assert (row.threads, row.records_per_s, row.latency_ms, row.batch_ms, row.behind) == ("1/3", 30.0, 7.0, 9.0, 7)
    assert (row.rebalanced, row.trouble) == ("40 s ago", "thread 2: it waits; thread 3: it has failed")
    assert [thread.trouble for thread in threads] == ["", "it has failed", "StopError: no"]
    assert [thread.rebalanced for thread in threads] == ["70 s ago", "40 s ago", "-"]
    assert [thread.behind for thread in threads] == [7, None, None]
    assert not any(thread.leads for thread in threads)


def test_an_instance_without_an_address_goes_by_the_beginning_of_its_process_id() -> None:
    document = group()
    document["instances"][1]["host"] = None
    document["leader"] = "af51e19a"
    document["instances"][1]["process"] = "af51e19a-0000-4000-8000-000000000000"
    assert [row.name for row in instance_rows(read_group(document)) if row.leads] == ["af51e19a"]


def test_one_that_is_away_keeps_its_row_with_what_it_had_and_why() -> None:
    row = next(row for row in instance_rows(read_group(group("one_away"))) if row.state == "AWAY")
    assert row.active == "had 0_1 0_4 1_1 1_4"
    assert "does not answer" in row.trouble
    assert "2 of 3 instances running, 1 away" in summary(read_group(group("one_away")))


def test_warm_ups_come_before_standbys_with_what_they_lack() -> None:
    rows = copy_rows(read_group(group()))
    assert [(str(row.task), row.role, row.lag) for row in rows[:2]] == [("1_2", "warm-up", 1300), ("1_3", "warm-up", 1549)]
    assert {row.role for row in rows[2:]} == {"standby"}
    document = group()
    document["instances"][0]["threads"][0]["active"][1] |= {"phase": "restoring", "lag": 9, "seconds_left": 4.0}
    assert (copy_rows(read_group(document))[0].role, copy_rows(read_group(document))[0].seconds_left) == ("restoring", 4.0)
    document["instances"][0]["threads"][0]["active"][3] |= {"phase": "created", "lag": None}
    rows = copy_rows(read_group(document))
    assert [(str(row.task), row.role) for row in rows[:3]] == [("1_1", "restoring"), ("1_5", "created"), ("1_2", "warm-up")]


def test_an_instance_that_restores_says_how_much_and_how_long() -> None:
    document = group()
    told = {"tasks": ["1_1", "1_0"], "offsets_left": 12_000, "offsets_per_s": 300.0, "seconds_left": 40.0}
    document["instances"][0] |= {"state": "REBALANCING", "restoring": told}
    row = instance_rows(read_group(document))[0]
    assert (row.state, row.trouble) == ("RESTORING", "restores 1_0 1_1: 12,000 offsets left, 300/s, time left 40 s")
    told |= {"offsets_left": None, "offsets_per_s": None, "seconds_left": None}
    unknown = "restores 1_0 1_1: how much is left is not known yet, time left unknown"
    assert instance_rows(read_group(document))[0].trouble == unknown
    document["instances"][0]["state"] = "RUNNING"
    assert (instance_rows(read_group(document))[0].state, instance_rows(read_group(document))[0].trouble) == ("RUNNING", "")
    document["instances"][0] |= {"state": "REBALANCING", "restoring": None}
    assert instance_rows(read_group(document))[0].state == "REBALANCING"


def test_an_instance_that_drains_says_what_is_still_there() -> None:
    document = group()
    told = {"phase": "draining", "message": "", "since_ms": 1, "until_ms": 2, "active": 3, "standby": 1}
    document["instances"][0]["drain"] = told
    row = instance_rows(read_group(document))[0]
    assert (row.state, row.trouble) == ("DRAINING", "drains: 3 active tasks and 1 copies are still here")
    told["phase"] = "called off"
    assert (instance_rows(read_group(document))[0].state, instance_rows(read_group(document))[0].trouble) == ("RUNNING", "")


def test_rebalances_say_who_came_and_what_moved_newest_first_without_follow_ups() -> None:
    told = rebalances(read_group(group()), 9)
    assert len(told) == 3
    assert "127.0.0.1:38887 joined; 0_0 from 127.0.0.1:35433 to 127.0.0.1:38887" in told[0][1]
    assert told[-1][1].startswith("0_0 to 127.0.0.1:35433")


def test_a_rebalance_says_its_first_moves_how_many_more_there_are_and_what_comes_next() -> None:
    document = group()
    led = next(led for led in document["rebalances"] if led["moves"])
    move = {**led["moves"][0], "task": "0_0", "role": "active", "from": "a", "to": "b", "had_copy": True}
    standby = {**move, "role": "standby"}
    gone = {**standby, "to": None}
    led |= {"joined": [], "left": ["c"], "remarks": [], "moves": [move, standby, gone, *[move] * 3], "more_moves": 5}
    document["rebalances"] = [led | {"hands_over": True}]
    [(_, words)] = rebalances(read_group(document), 9)
    assert words == (
        "c left; 0_0 from a to b, which had a copy; standby of 0_0 on b; no copy of 0_0 on a any more; "
        "0_0 from a to b, which had a copy; 7 more moves; once the old owners have let go"
    )
    joined = led | {"moves": [], "more_moves": 0, "left": [], "joined": ["d"], "hands_over": False, "next_ms": None}
    document["rebalances"] = [joined, joined | {"joined": []}]
    assert [words for _, words in rebalances(read_group(document), 9)] == ["d joined"]


def test_the_time_of_a_rebalance_is_shown_in_the_zone_asked_for() -> None:
    assert shown_time(1_700_000_000_000, zone=timezone.utc) == "22:13:20"


def test_a_group_that_nobody_leads_says_whether_it_has_an_assignment() -> None:
    document = group() | {"leader": None}
    assert summary(read_group(document)).endswith("the leader does not answer")
    for one in document["instances"]:
        for thread in one["threads"]:
            thread["active"] = []
    assert summary(read_group(document)).endswith("no assignment yet")


@pytest.mark.parametrize("at_ms", [-(1 << 63), (1 << 63) - 1])
def test_a_rebalance_at_no_time_is_shown_by_its_number(at_ms: int) -> None:
    document = group()
    document["rebalances"] = [{**led, "at_ms": at_ms, "next_ms": at_ms, "hands_over": False} for led in document["rebalances"]]
    at, words = rebalances(read_group(document), 1)[0]
    assert at == f"{at_ms} ms"
    assert words.endswith(f"next rebalance at {at_ms} ms")


def test_a_copy_in_a_role_that_is_not_known_here_comes_last() -> None:
    document = group()
    copies = [copy for one in document["instances"] for thread in one["threads"] for copy in thread["standby"]]
    copies[0]["role"] = "shadow"
    assert [row.role for row in copy_rows(read_group(document))].index("shadow") == len(copies) - 1


def test_the_screen_shows_all_of_it() -> None:
    text = printed(group())
    for word in ("streams-wordcount: 3 of 3 instances running", "127.0.0.1:35433 *", "warm-up", "1,549", "Rebalances"):
        assert word in text
    assert "had 0_1 0_4 1_1 1_4" in printed(group("one_away"))


def test_many_tasks_are_counted_beyond_a_dozen_and_in_the_order_of_numbers() -> None:
    assert listed([TaskId(1, 10), TaskId(1, 2), TaskId(0, 0)]) == "0_0 1_2 1_10"
    assert listed([TaskId(0, number) for number in range(30)]).endswith("0_11 +18")
    assert listed([]) == "-"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "unknown"), (7.4, "7 s"), (99, "99 s"), (240, "4 min"), (5_999, "100 min"), (9_000, "2.5 h")],
)
def test_durations_stand_in_a_unit_that_fits(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_another_instance_is_asked_when_the_one_asked_before_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    away: set[str] = set()

    def fetch(host: HostInfo, target: str, **options: Any) -> bytes:
        if str(host) in away:
            raise RetriableError("does not answer")
        return json.dumps(group()).encode()

    monkeypatch.setattr(http_forward, "fetch", fetch)
    asked = top.GroupQuestion([HostInfo("127.0.0.1", 35433)])
    asked.ask()
    away |= {"127.0.0.1:35433", "127.0.0.1:34283"}
    asked.ask()
    away.add("127.0.0.1:38887")
    with pytest.raises(EnvironmentProblem, match=r"no instance can be asked: .*38887 does not answer"):
        asked.ask()


@pytest.mark.parametrize("answer", [{}, {"instances": 3}, {"instances": [1]}, {"instances": [{"name": "x"}]}])
def test_another_service_at_the_address_is_said_so(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(http_forward, "fetch", lambda *_, **__: json.dumps(answer).encode())
    with pytest.raises(EnvironmentProblem, match=r"127\.0\.0\.1:1 answers, but shows no group: something else listens there"):
        top.GroupQuestion([HostInfo("127.0.0.1", 1)]).ask()


def test_what_other_instances_tell_reaches_the_terminal_without_escape_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    told = group()
    told["application"] = "a\x1b]0;owned\x07"
    told["instances"][0]["threads"][0]["error"] = "no\x1b[2J\nsecond line"
    monkeypatch.setattr(http_forward, "fetch", lambda *_, **__: json.dumps(told).encode())
    found: Any = top.GroupQuestion([HostInfo("127.0.0.1", 1)]).ask().to_json()
    assert found["application"] == "a\\x1b]0;owned\\x07"
    assert found["instances"][0]["threads"][0]["error"] == "no\\x1b[2J\\nsecond line"
    assert found["instances"][1].items() >= group()["instances"][1].items()


def test_brackets_in_a_name_are_shown_and_are_no_style(capsys: pytest.CaptureFixture[str]) -> None:
    told = group()
    told["instances"][0]["host"] = "[/]x"
    top._print(read_group(told))
    assert "[/]x" in capsys.readouterr().out


def test_an_address_that_is_none_is_said_so() -> None:
    with pytest.raises(ConfigError, match="expected host:port"):
        top._hosts("localhost", None, {})
    with pytest.raises(ConfigError, match="--bootstrap-server"):
        top._hosts(None, None, {})
    assert top._hosts("localhost:8080", None, {}) == [HostInfo("localhost", 8080)]
