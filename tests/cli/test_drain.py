"""``tidemill drain``: what is shown of a drain, and how the command ends; an instance's answers are stand-ins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.query.stand_in_status import recorded
from tidemill.cli import drain as module
from tidemill.cli.drain import drain_at, drain_view
from tidemill.errors import ConfigError, EnvironmentProblem, RetriableError, StopError
from tidemill.membership.wire import HostInfo
from tidemill.query import http_forward
from tidemill.query.group_documents import read_group
from tidemill.query.http_forward import HttpRefusalError
from tidemill.query.http_tls import HttpAccess

HOST = HostInfo("127.0.0.1", 1)
ACCESS = HttpAccess()


def group(phase: str | None = "draining", active: int = 2, message: str = "") -> dict[str, Any]:
    found = recorded("warming_up")
    told = {"phase": phase, "message": message, "since_ms": 1, "until_ms": 2, "active": active, "standby": 0}
    for one in found["instances"]:
        one["drain"] = told if one["host"] == found["asked"] and phase else None
    return found


def test_the_view_names_the_copies_that_the_instance_waits_for() -> None:
    found = group()
    own = next(one for one in found["instances"] if one["host"] == found["asked"])
    task = own["threads"][0]["active"][0]["task"]
    other = next(one for one in found["instances"] if one["host"] != found["asked"] and one["away"] is None)
    copy = {"task": task, "lag": 12_000, "offsets_per_s": 300.0, "seconds_left": 40.0, "role": "warm-up"}
    other["threads"][0]["standby"] = [copy]
    text = drain_view(read_group(found)).text()
    assert text.startswith("2 active tasks and 0 copies are still there")
    assert f"{task} warms up on {other['host']} (12,000 offsets behind, 40 s left)" in text
    copy["seconds_left"] = 0.0
    assert "1 s left" in drain_view(read_group(found)).text(), "what is under way never has no time left"


def test_an_instance_that_does_not_drain_says_so() -> None:
    assert drain_view(read_group(group(None))).text() == "the drain has not begun"


Answers = Callable[..., list[str]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What the instance answers, one after the other: bytes, or an error; the last one for ever."""

    def give(*given: object) -> list[str]:
        asked: list[str] = []
        left: Iterator[object] = iter(given)
        last: list[object] = []

        def fetch(_host: HostInfo, target: str, *, method: str = "GET", **_how: object) -> bytes:
            asked.append(f"{method} {target}")
            last[:] = [next(left, last[-1] if last else None)]
            answer = last[0]
            if isinstance(answer, Exception):
                raise answer
            return json.dumps(answer).encode()

        monkeypatch.setattr(http_forward, "fetch", fetch)
        monkeypatch.setattr(module, "_PAUSE_S", 0.0)
        return asked

    return give


AWAY = RetriableError("does not answer (ConnectionRefusedError: [Errno 111] Connection refused)")


def refusal(status: int, sentence: str = "") -> HttpRefusalError:
    return HttpRefusalError(status, json.dumps({"error": sentence}).encode())


def test_the_command_is_done_when_the_instance_has_ended(answers: Answers) -> None:
    asked = answers({}, group(active=2), group("closing", 0, "every task has been handed over"), AWAY)
    shown: list[str] = []
    assert drain_at(HOST, ACCESS, 60, shown.append).message == "every task has been handed over"
    assert asked[0] == "POST /drain?timeout_ms=60000"
    assert [text.split(": ")[1].split(" are")[0] for text in shown] == ["2 active tasks and 0 copies", "the instance ends"]


def test_a_drain_that_is_called_off_is_an_error_with_the_instances_sentence(answers: Answers) -> None:
    answers({}, group(), group("called off", 2, "not done within 60 s"))
    with pytest.raises(StopError, match="not done within 60 s"):
        drain_at(HOST, ACCESS, 60, lambda _text: None)


def test_an_instance_that_is_gone_in_the_middle_has_failed(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SILENCE_LIMIT_S", 0.0)
    answers({}, group(active=2), AWAY)
    with pytest.raises(EnvironmentProblem, match="while it still had 2 active tasks: it was stopped or has failed"):
        drain_at(HOST, ACCESS, 60, lambda _text: None)


def test_an_instance_that_was_started_again_at_its_address_is_not_waited_for(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_END_LIMIT_S", 0.0)
    answers({}, group("closing", 0, "every task has been handed over"), group(None))
    assert drain_at(HOST, ACCESS, 1, lambda _text: None).message == "every task has been handed over"
    answers({}, group(active=2), AWAY, group(None))
    with pytest.raises(EnvironmentProblem, match="was started again before its drain was over"):
        drain_at(HOST, ACCESS, 1, lambda _text: None)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (refusal(409, "there is no other instance in its group"), "does not drain: there is no other instance"),
        (refusal(401, "this needs the header"), "does not drain: this needs the header"),
        (refusal(405, "this is for reading: use GET"), "a version of Tidemill that knows no drains"),
        (refusal(404), "a version of Tidemill that knows no drains"),
        (AWAY, "is it an instance, started with --serve HOST:PORT"),
    ],
)
def test_why_a_drain_does_not_begin(answers: Answers, answer: Exception, sentence: str) -> None:
    answers(answer)
    with pytest.raises(EnvironmentProblem, match=sentence):
        drain_at(HOST, ACCESS, 60, lambda _text: None)


def test_while_the_group_rebalances_it_is_asked_again(answers: Answers) -> None:
    asked = answers(refusal(503, "it rebalances"), {}, group("closing", 0), AWAY)
    shown: list[str] = []
    drain_at(HOST, ACCESS, 60, shown.append)
    assert [one.split("?")[0] for one in asked[:2]] == ["POST /drain", "POST /drain"]
    assert shown[0] == "127.0.0.1:1: it rebalances"


@pytest.mark.parametrize("arguments", [["nonsense"], ["one:1", "--bootstrap-server", "one:1"]])
def test_who_is_meant_must_be_said(arguments: list[str]) -> None:
    import typer

    app = typer.Typer()
    app.command()(module.drain)
    assert isinstance(CliRunner().invoke(app, arguments).exception, ConfigError)
