"""``tidemill roll``: the order, who has come back, and what is waited for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidemill.cli import group_instances
from tidemill.cli import roll as module
from tidemill.cli.group_instances import GroupInstance, instance_called
from tidemill.cli.roll import in_order, require_rollable, returned, wait_back, wait_ready
from tidemill.errors import EnvironmentProblem, RetriableError, StopError
from tidemill.ids import ProcessId
from tidemill.membership.wire import HostInfo
from tidemill.query import http_forward
from tidemill.query.http_forward import HttpRefusalError
from tidemill.query.http_tls import HttpAccess


def instance(number: int, *, port: int | None = None, drains: bool = False) -> GroupInstance:
    host = HostInfo("one", port or number) if port != 0 else None
    process_id = ProcessId(number << 32, number)
    return GroupInstance(process_id=process_id, host=host, client_ids=(f"app-{number}-StreamThread-1-consumer",), drains=drains)


A, B, C = instance(1), instance(2), instance(3)


def test_the_leader_is_restarted_last() -> None:
    assert in_order([C, A, B], "one:1") == [B, C, A]
    assert in_order([C, A, B], None) == [A, B, C]


@pytest.mark.parametrize(
    ("instances", "sentence"),
    [
        ([A], "1 instance, expected 2 or more"),
        ([A, instance(2, port=0)], "have no address"),
        ([A, instance(2, drains=True)], "one:2 drains already"),
    ],
)
def test_a_group_that_can_not_be_restarted_so(instances: Sequence[GroupInstance], sentence: str) -> None:
    with pytest.raises(EnvironmentProblem, match=sentence):
        require_rollable(instances)


def test_an_instance_is_back_under_its_process_id_its_address_or_as_a_new_one() -> None:
    before = [A, B, C]
    moved, renewed, new = instance(2, port=9), instance(7, port=2), instance(8)
    assert returned(before, B, [A, C]) is None
    assert returned(before, B, [A, moved, C]) == moved
    assert returned(before, B, [A, new, renewed, C]) == renewed
    assert returned(before, B, [A, C, new]) == new
    assert returned(before, B, [A, C, instance(2, drains=True)]) is None, "that one has not ended yet"


def test_what_does_not_come_back_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)

    def away() -> list[GroupInstance]:
        raise EnvironmentProblem("has no active members")

    with pytest.raises(StopError, match=r"one:2 has drained and ended, but is not back after 0.01 s \(has no active members\)"):
        wait_back(away, [A, B], B, 0.01)
    assert wait_back(lambda: [A, B], [A, B], B, 60) == B


def test_the_next_one_goes_when_all_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    answers: list[bytes | Exception] = [HttpRefusalError(503, b"{}"), b"", RetriableError("does not answer"), b"", b"", b""]

    def fetch(_host: HostInfo, target: str, **_how: object) -> bytes:
        assert target == "/health/ready"
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(http_forward, "fetch", fetch)
    shown: list[str] = []
    wait_ready(lambda: [A, B], HttpAccess(), shown.append, 60)
    assert shown == ["one:1: not ready", "one:1: does not answer"]
    monkeypatch.setattr(module, "_why_not_ready", lambda *_asked: "not ready")
    with pytest.raises(StopError, match="one:1: not ready; one:2: not ready"):
        wait_ready(lambda: [A, B], HttpAccess(), shown.append, 0.01)


def test_each_is_drained_once_all_are_ready_and_the_one_before_is_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever is drained while another has not come back leaves its tasks to one instance less."""
    story: list[str] = []
    renewed = instance(7)

    def back(_look: object, before: Sequence[GroupInstance], gone: GroupInstance, limit_s: float) -> GroupInstance:
        assert (before, limit_s) == ([C, A, B], 5)
        story.append(f"back {gone.name}")
        return renewed if gone == B else gone

    monkeypatch.setattr(group_instances, "group_instances", lambda *_asked: [C, A, B])
    monkeypatch.setattr(module, "_leader", lambda *_asked: A.name)
    monkeypatch.setattr(module, "wait_ready", lambda *_waited: story.append("ready"))
    monkeypatch.setattr(module, "drain_at", lambda host, *_how: story.append(f"drain {host}"))
    monkeypatch.setattr(module, "wait_back", back)
    module.roll("app", return_timeout_s=5)
    each = [step for number in (2, 3, 1) for step in ("ready", f"drain one:{number}", f"back one:{number}")]
    assert story == [*each, "ready"]
    assert capsys.readouterr().out.splitlines() == [
        "1 of 3: one:2 has drained, ended and come back as one:7",
        "2 of 3: one:3 has drained, ended and come back",
        "3 of 3: one:1 has drained, ended and come back",
        "all 3 instances of app were restarted",
    ]


@pytest.mark.parametrize(
    "name", ["one:2", str(B.process_id), str(B.process_id)[:8].upper(), "app-2", "app-2-StreamThread-1-consumer"]
)
def test_what_names_an_instance(name: str) -> None:
    assert instance_called(name, [A, B, C]) == B


@pytest.mark.parametrize(("name", "found"), [("two:2", "no instance"), ("000", "no instance"), ("0000", "3 instances")])
def test_a_name_of_none_or_of_several_lists_those_that_there_are(name: str, found: str) -> None:
    with pytest.raises(EnvironmentProblem, match=rf"{found} of the group is called '{name}', expected one of: one:1 \(process"):
        instance_called(name, [A, B, C])
