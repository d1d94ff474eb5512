"""What an instance tells of itself and its group over HTTP, and to whom."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.query.stand_in_status import gauge, group_app, recorded
from tests.query.stand_ins import ask
from tidemill.membership.wire import HostInfo
from tidemill.query.http_pages import FILES

TOKEN = "a-token-of-some-length"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def decision(reason: str) -> dict[str, object]:
    return {
        "task": "1_0", "role": "active", "rule": "kept", "on": "one:1", "target": None, "rebalances_to_go": None,
        "reason": reason, "source": "KIP-441", "candidates": [{"instance": "one:1", "lag": -2, "rank": 0}],
    }  # fmt: skip


def test_the_group_is_put_together_from_what_each_instance_tells() -> None:
    app, _, others = group_app()
    group = ask(app, "/group").json
    expected = recorded("warming_up")
    assert {host for host, _ in others.asked} == {HostInfo("127.0.0.1", port) for port in (34283, 38887)}
    assert [one["host"] for one in group["instances"]] == [one["host"] for one in expected["instances"]]
    assert group["rebalances"] == expected["rebalances"]
    assert group["leader"] == expected["leader"]
    roles = {(c["task"], c["role"]) for one in group["instances"] for t in one["threads"] for c in t["standby"]}
    assert {task for task, role in roles if role == "warm-up"} == {"1_2", "1_3"}


def test_an_instance_that_is_away_is_named_with_the_reason() -> None:
    group = ask(group_app("one_away")[0], "/group").json
    away = [one for one in group["instances"] if one["away"] is not None]
    assert len(away) == 1
    assert "ConnectionRefusedError" in away[0]["away"]
    assert away[0]["assigned"] == ["0_1", "0_4", "1_1", "1_4"]


def test_what_a_leader_that_is_away_had_is_known_without_it() -> None:
    app, _, others = group_app()
    for host in list(others.told):
        others.told[host] = None
    status = ask(app, "/group").json
    away = {one["host"]: one["assigned"] for one in status["instances"] if one["away"] is not None}
    assert away == {"127.0.0.1:34283": ["0_4", "1_1", "1_4", "1_5"], "127.0.0.1:38887": ["0_0", "0_1", "0_2", "0_5"]}


def test_health_is_200_or_503_with_the_reason() -> None:
    app, status, _ = group_app()
    assert (ask(app, "/health/live").status, ask(app, "/health/ready").status) == (200, 200)
    status.document["ready"], status.document["why"] = False, ["thread 1: [1_0] not running yet"]
    reply = ask(app, "/health/ready")
    assert (reply.status, reply.json) == (503, {"status": "down", "reasons": ["thread 1: [1_0] not running yet"]})
    status.down = "the instance is ERROR: no room"
    assert ask(app, "/health/live").json["reasons"] == ["the instance is ERROR: no room"]


def test_probes_and_the_pages_files_need_no_token_and_tell_nothing_without_it() -> None:
    app, status, _ = group_app(token=TOKEN)
    status.down = "the instance is ERROR: a secret table is gone"
    reply = ask(app, "/health/live", host="example.org")
    assert (reply.status, reply.json) == (503, {"status": "down"})
    assert "reasons" in ask(app, "/health/live", headers=BEARER).json
    for path in FILES:
        assert ask(app, path, host="example.org").status == 200


@pytest.mark.parametrize(
    "path", ["/group", "/instance", "/topology", "/metrics", "/decisions", "/stores", "/tasks", "/web/", "//"]
)
def test_everything_that_holds_data_needs_the_token(path: str) -> None:
    app, _, _ = group_app(token=TOKEN)
    assert ask(app, path).status == 401
    assert ask(app, path, headers={"Authorization": "Bearer another-token-altogether"}).status == 401


@pytest.mark.parametrize("path", ["/", "/group", "/metrics", "/health/ready"])
def test_without_a_token_a_foreign_name_gets_nothing(path: str) -> None:
    assert ask(group_app()[0], path, host="evil.example").status == 403


def test_the_page_may_load_nothing_from_anywhere_else() -> None:
    reply = ask(group_app()[0], "/")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy


def test_decisions_come_from_who_has_led_the_newest_rebalance() -> None:
    app, _, others = group_app(decided={"at_ms": 5, "decisions": [decision("old")]})
    leader = HostInfo("127.0.0.1", 34283)
    others.decided[leader] = {"at_ms": 9, "decisions": [decision("new")]}
    assert ask(app, "/decisions?task=1_0").json == {"at_ms": 9, "decisions": [decision("new")], "left_out": []}
    assert (leader, "/decisions?handed_on=1&task=1_0") in others.asked
    before = len(others.asked)
    assert ask(app, "/decisions?handed_on=1&task=1_0").json["at_ms"] == 5
    assert len(others.asked) == before, "a question that was handed on is not handed on again"


def test_an_instance_that_never_stops_answering_keeps_no_question_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _, others = group_app(decided={"at_ms": 5, "decisions": [decision("own")]})
    is_over = threading.Event()
    monkeypatch.setattr("tidemill.query.http_status.ASK_LIMIT_S", 0.05)
    monkeypatch.setattr(others, "document", lambda *_, **__: is_over.wait(20))
    began = time.monotonic()
    told = ask(app, "/decisions").json
    assert told["decisions"] == [decision("own")]
    assert [one["why"] for one in told["left_out"]] == ["no answer in 0.05 s"] * 2
    assert time.monotonic() - began < 10
    is_over.set()


def test_decisions_that_nobody_has_are_asked_for_again_later() -> None:
    reply = ask(group_app()[0], "/decisions")
    assert reply.status == 503
    assert "no instance" in reply.json["error"]
    assert ask(group_app()[0], "/decisions?task=nonsense").status == 400


def test_metrics_are_there_for_prometheus() -> None:
    measured = dict([
        gauge("process-total", "stream-thread-metrics", 7.0, thread_id="t"),
        gauge("state", "stream-metrics", "RUNNING", client_id="c"),
        gauge("topology-description", "stream-metrics", "long", client_id="c"),
    ])  # fmt: skip
    reply = ask(group_app(measured=measured)[0], "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = reply.body.decode()
    assert 'kafka_streams_stream_thread_metrics_process_total{thread_id="t"} 7.0' in text
    assert "# TYPE kafka_streams_stream_thread_metrics_process_total counter" in text
    assert 'kafka_streams_stream_metrics_state{client_id="c",value="RUNNING"} 1.0' in text
    assert "topology_description" not in text


def test_no_document_holds_what_is_not_json() -> None:
    app, status, _ = group_app()
    status.document["threads"][0]["latency_ms"] = float("nan")
    assert json.loads(ask(app, "/instance").body)["threads"][0]["latency_ms"] == "NaN"
