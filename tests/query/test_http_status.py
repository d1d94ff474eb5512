"""What an instance says about itself and its group over HTTP, and to whom."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.query.stand_in_status import gauge, group_app, recorded
from tests.query.stand_ins import ask
from tidemill.errors import DrainRefusedError, RetriableError
from tidemill.membership.wire import HostInfo
from tidemill.query.http_pages import FILES

TOKEN = "a-token-of-some-length"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def decision(reason: str) -> dict[str, object]:
    return {
        "task": "1_0", "role": "active", "rule": "kept", "on": "one:1", "target": None, "rebalances_to_go": None,
        "reason": reason, "source": "KIP-441", "candidates": [{"instance": "one:1", "lag": -2, "rank": 0}],
    }  # fmt: skip


@pytest.fixture(autouse=True)
def no_one_is_missed_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others answer at once here, but a busy machine may take its time."""
    monkeypatch.setattr("tidemill.query.http_status.ASK_LIMIT_S", 60.0)


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


def test_the_group_s_document_has_the_wanted_number_of_instances_as_scale_answers_it() -> None:
    app, status, _ = group_app()
    for tasks in (None, ["1_0"]):
        status.document["restoring"] = tasks and {"tasks": tasks, "offsets_left": 9, "offsets_per_s": 1.0, "seconds_left": 9.0}
        scale = ask(app, "/group").json["scale"]
        assert scale == ask(app, "/scale").json
        assert (scale["wanted"], scale["present"], scale["waits"]) == (3, 3, True)


def test_the_group_s_history_has_the_last_hundred_rebalances_whoever_led_them_and_names_who_is_missing() -> None:
    app, status, others = group_app()
    [one] = [led for led in status.document["led"] if led["joined"]][-1:]
    first, second = (told for host, told in others.told.items() if told is not None and str(host) != "127.0.0.1:35433")
    status.document["led"] = [{**one, "at_ms": at} for at in range(1_000, 1_080)]
    first["led"] = [{**one, "at_ms": at} for at in range(1_040, 1_100)]
    others.told = {host: None if told is second else told for host, told in others.told.items()}
    found = ask(app, "/history?of=group").json
    by = [(led["at_ms"], led["led_by"]) for led in found["rebalances"]]
    assert len(by) == 100
    assert by == sorted(by)
    assert by[-1] == (1_099, first["host"])
    assert {name for _, name in by} == {first["host"], status.document["host"]}
    assert [gone["host"] for gone in found["left_out"]] == [second["host"]]
    assert ask(app, "/history?of=all").status == 400


def test_whoever_led_the_newest_rebalance_is_the_leader() -> None:
    app, status, others = group_app()
    [one] = [led for led in status.document["led"] if led["joined"]][-1:]
    told = {"127.0.0.1:35433": status.document, **{str(host): document for host, document in others.told.items()}}
    for at_ms, (_, document) in zip((3_000, 1_000, 2_000), sorted(told.items()), strict=True):
        assert document is not None
        document["led"] = [{**one, "at_ms": at_ms}]
    group = ask(app, "/group").json
    first, second, third = sorted(told)
    assert [(led["at_ms"], led["led_by"]) for led in group["rebalances"]] == [(1_000, second), (2_000, third), (3_000, first)]
    assert group["leader"] == first


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
    monkeypatch.setattr(others, "document", lambda *_, **__: is_over.wait(120))
    began = time.monotonic()
    told = ask(app, "/decisions").json
    assert told["decisions"] == [decision("own")]
    assert [one["why"] for one in told["left_out"]] == ["no answer in 0.05 s"] * 2
    assert time.monotonic() - began < 60
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


def test_a_drain_begins_with_a_post_and_is_reported_with_its_limit() -> None:
    app, _, _ = group_app()
    reply = ask(app, "/drain?timeout_ms=60000", method="POST")
    assert reply.status == 202
    assert (reply.json["drain"]["phase"], reply.json["drain"]["until_ms"]) == ("draining", 60_001)
    own = next(one for one in ask(app, "/group").json["instances"] if one["host"] == recorded("warming_up")["asked"])
    assert own["drain"]["active"] == 3


def test_an_instance_that_was_never_drained_says_so() -> None:
    assert {one["drain"] for one in ask(group_app()[0], "/group").json["instances"]} == {None}


@pytest.mark.parametrize(
    ("refusal", "status"), [(DrainRefusedError("there is no other instance"), 409), (RetriableError("it rebalances"), 503)]
)
def test_why_an_instance_does_not_drain_is_one_sentence(refusal: Exception, status: int) -> None:
    app, _, _ = group_app(refusal=refusal)
    reply = ask(app, "/drain", method="POST")
    assert (reply.status, reply.json) == (status, {"error": str(refusal)})


@pytest.mark.parametrize(
    ("target", "method", "headers", "status", "named"),
    [
        ("/drain", "GET", {}, 405, "POST"),
        ("/drain", "PUT", {}, 405, "POST"),
        ("/group", "POST", {}, 405, "GET"),
        ("/drain", "POST", {"Origin": "http://localhost:8080"}, 403, "web pages"),
        ("/drain", "POST", {"Origin": "null"}, 403, "web pages"),
        ("/drain", "POST", {"Content-Length": "2"}, 400, "no body"),
        ("/drain?timeout_ms=0", "POST", {}, 400, "timeout_ms"),
        ("/drain?timeout_ms=1e9", "POST", {}, 400, "timeout_ms"),
        ("/drain?now=1", "POST", {}, 400, "now"),
    ],
)
def test_what_is_no_wish_to_drain_changes_nothing(
    target: str, method: str, headers: dict[str, str], status: int, named: str
) -> None:
    app, here, _ = group_app()
    reply = ask(app, target, method=method, headers=headers)
    assert reply.status == status
    assert named in reply.json["error"]
    assert here.document.get("drain") is None


def test_a_drain_needs_the_token_and_a_loopback_name() -> None:
    app, here, _ = group_app(token=TOKEN)
    assert ask(app, "/drain", method="POST").status == 401
    assert here.document.get("drain") is None
    assert ask(app, "/drain", method="POST", headers=BEARER).status == 202
    assert ask(group_app()[0], "/drain", method="POST", host="attacker.example").status == 403


RESTORING = {"tasks": ["1_0", "1_1"], "offsets_left": 12_000, "offsets_per_s": 300.0, "seconds_left": 40.0}


def test_an_instance_that_restores_is_alive_not_ready_and_says_how_long() -> None:
    app, here, _ = group_app(token=TOKEN)
    here.document.update(ready=False, why=["thread 1: [1_0] not running yet"], restoring=RESTORING)
    reply = ask(app, "/health/ready", headers=BEARER)
    assert (reply.status, reply.json["status"], reply.json["restoring"]) == (503, "restoring", RESTORING)
    live = ask(app, "/health/live", headers=BEARER)
    assert (live.status, live.json) == (200, {"status": "up", "restoring": RESTORING})
    assert ask(app, "/health/ready").json == {"status": "restoring"}, "how much is for those with the token"
    group = ask(app, "/group", headers=BEARER).json
    assert [one["restoring"] for one in group["instances"] if one["host"] == group["asked"]] == [RESTORING]


def test_one_that_has_failed_while_it_restored_is_down() -> None:
    app, here, _ = group_app()
    here.document.update(ready=False, restoring=RESTORING)
    here.down = "the instance is ERROR"
    assert ask(app, "/health/ready").json == {"status": "down"}
