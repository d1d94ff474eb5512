"""``tidemill group history``: one list of what several instances have led."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.query.stand_in_status import group_app, recorded
from tests.query.stand_ins import ask
from tidemill.cli import group_instances
from tidemill.cli.group_history import fetched_history, history_lines
from tidemill.cli.group_instances import GroupInstance
from tidemill.errors import EnvironmentProblem, RetriableError
from tidemill.ids import ProcessId
from tidemill.membership.wire import HostInfo
from tidemill.query import http_forward
from tidemill.query.document_reader import read_document
from tidemill.query.group_documents import RebalanceDocument
from tidemill.query.http_group import merged_history


def led(at_ms: int, **changes: Any) -> RebalanceDocument:
    return read_document(RebalanceDocument, led_json(at_ms, **changes))


def led_json(at_ms: int, **changes: Any) -> dict[str, Any]:
    moved = next(one for one in recorded("warming_up")["rebalances"][::-1] if one["moves"])
    return {**moved, "at_ms": at_ms, **changes}


def test_what_instances_have_led_is_one_list_by_time() -> None:
    found = merged_history({"one:1": [led(1_000), led(3_000)], "two:2": [led(2_000)]})
    assert [(one.at_ms, one.led_by) for one in found] == [(1_000, "one:1"), (2_000, "two:2"), (3_000, "one:1")]


def test_a_rebalance_is_a_line_and_with_why_a_line_for_each_move() -> None:
    [one] = merged_history({"one:1": [led(1_763_800_000_000)]})
    lines = list(history_lines([one], why=False))
    assert len(lines) == 1
    assert "one:1" in lines[0]
    assert "ms  " in lines[0]
    reasons = list(history_lines([one], why=True))[1:]
    assert len(reasons) == len(one.moves)
    assert str(one.moves[0].reason) in reasons[0]
    quiet = replace(one, moves=(), joined=(), left=(), remarks=(), more_moves=0, next_ms=None, hands_over=False)
    assert next(history_lines([quiet], why=True)).endswith("nothing moved")
    assert "no rebalance" in next(history_lines([], why=True))


def test_what_an_instance_writes_of_itself_is_no_escape_sequence() -> None:
    assert "\x1b" not in "".join(history_lines([led(1, led_by="\x1b[2Jevil", remarks=["\x1b]0;x"])], why=True))


def test_a_time_that_is_none_is_shown_by_its_number() -> None:
    [line] = history_lines([led(1 << 62, led_by="one:1")], why=False)
    assert line.startswith(f"{1 << 62} ms  one:1")


def instance(number: int, port: int | None) -> GroupInstance:
    host = None if port is None else HostInfo("one", port)
    return GroupInstance(process_id=ProcessId(number, 0), host=host, client_ids=())


def test_who_can_not_be_asked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    instances = [instance(1, 1), instance(2, 2), instance(3, 3), instance(4, None)]
    monkeypatch.setattr(group_instances, "group_instances", lambda *_asked: instances)

    def fetch(host: HostInfo, target: str, **_how: object) -> bytes:
        assert target == "/history"
        if host.port == 2:
            raise RetriableError("does not answer")
        told = {"rebalances": [led_json(host.port)], "problem": "line 1 is no rebalance" if host.port == 3 else None}
        return json.dumps(told).encode()

    monkeypatch.setattr(http_forward, "fetch", fetch)
    found, remarks = fetched_history("app", {})
    assert [one.led_by for one in found] == ["one:1", "one:3"]
    assert remarks == (
        "What one:2 has led is missing: it does not answer.",
        "What one:3 led before it was started last is missing: line 1 is no rebalance.",
        f"{ProcessId(4, 0)} has no address (--serve HOST:PORT): what it has led is missing.",
    )
    instances[:] = instances[3:]
    with pytest.raises(EnvironmentProblem, match="no instance of app can be asked"):
        fetched_history("app", {})


def test_an_instance_tells_its_history() -> None:
    app, status, _ = group_app()
    assert ask(app, "/history").json == {"rebalances": status.document["led"], "problem": None}
    assert ask(app, "/history?last=1").status == 400
