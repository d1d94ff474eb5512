"""The HTTP side without a network: what is answered, in which form, and that nothing of a request makes it fall over."""

from __future__ import annotations

import asyncio
import io
import json
import math
import threading
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest

from tests.query.stand_ins import (
    COUNTS,
    PARTITIONS,
    Reply,
    StandInDirectory,
    StandInInstances,
    ask,
    host_map,
    router,
    store_info,
)
from tidemill.dsl.serdes import Serdes
from tidemill.errors import EnvironmentProblem, InvalidStateStoreError, StreamsNotStartedError
from tidemill.ids import TaskId
from tidemill.membership.wire import HostInfo
from tidemill.query.http_app import ReadsApp
from tidemill.query.http_listening import address_of, listen
from tidemill.query.http_request import UNASKED_BYTES, parse_request, rows_question, to_parameters
from tidemill.query.position import Position
from tidemill.query.rows import MEDIA_TYPE, PAGE_BYTES, FoundRows, RowsQuestion
from tidemill.query.store_info import StoreInfo
from tidemill.task.progress import CopyProgress
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.partitioning import partition_of_key

ONE, TWO = HostInfo("one", 1), HostInfo("two", 2)
WORDS = {f"word{number}": number for number in range(10)}
TOKEN = "a-token-of-some-length"
ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


def app(
    entries: dict[Any, Any] | list[tuple[Any, Any]] | None = None,
    store: StoreInfo = COUNTS,
    *,
    token: str = "",
    remote: StandInInstances | None = None,
    **directory: Any,
) -> ReadsApp:
    fields: dict[str, Any] = {
        "own_host": ONE,
        "hosts": host_map({ONE: (0, 1), TWO: (2,)}, {TWO: (0,)}),
        "copies": dict.fromkeys(range(PARTITIONS)),
        "entries": WORDS if entries is None else entries,
        "stores": {store.name: store},
    }
    here = StandInDirectory(**{**fields, **directory})
    return ReadsApp(router=router(here, remote, timeout_s=1.0), application_id="app", token=token, max_staleness=100)


def sentence(reply: Reply) -> str:
    """The one thing that a refusal holds."""
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert list(reply.json) == ["error"]
    said: str = reply.json["error"]
    assert said
    assert "Traceback" not in said
    return said


def table(reply: Reply) -> pa.Table:
    assert reply.headers["content-type"] == "application/vnd.apache.arrow.stream"
    return pa.ipc.open_stream(io.BytesIO(reply.body)).read_all()


def test_what_is_under_way_comes_with_lag_speed_and_the_time_that_is_left() -> None:
    fast = CopyProgress(task=TaskId(1, 0), is_active=True, lag=500, offsets_per_s=100.0)
    unknown = CopyProgress(task=TaskId(1, 1), is_active=False, lag=7, offsets_per_s=None)
    assert ask(app(under_way=[fast, unknown]), "/tasks").json == {
        "tasks": [
            {"task": "1_0", "role": "restoring", "lag": 500, "offsets_per_s": 100.0, "seconds_left": 5.0},
            {"task": "1_1", "role": "standby", "lag": 7, "offsets_per_s": None, "seconds_left": None},
        ]
    }


# --- what is answered --------------------------------------------------------------------------------------------------


def test_a_key_comes_with_value_timestamp_and_place() -> None:
    reply = ask(app(), "/stores/counts/word3")
    assert reply.status == 200
    assert reply.json == {
        "store": "counts", "partition": partition_of_key(b"word3", PARTITIONS), "stale_by": 0, "key": "word3", "value": 3,
        "timestamp": 7,
    }  # fmt: skip
    assert int(reply.headers["content-length"]) == len(reply.body)


def test_a_key_is_found_by_its_bytes_as_hex() -> None:
    reply = ask(app(), f"/stores/counts/{b'word3'.hex()}?keys=hex")
    assert (reply.json["key"], reply.json["value"]) == (b"word3".hex(), 3)


@pytest.mark.parametrize("key", ["", " ", "a/b", "a?b=c&d", "ключ", "50%", "a+b", "\n", "..", "日本"])
def test_any_text_can_be_a_key(key: str) -> None:
    reply = ask(app({key: 5}), f"/stores/counts/{quote(key, safe='')}")
    assert (reply.status, reply.json.get("key"), reply.json.get("value")) == (200, key, 5)


def test_a_key_that_is_not_there_is_404() -> None:
    reply = ask(app(), "/stores/counts/nobody")
    assert reply.status == 404
    assert "counts has no such key" in sentence(reply)


def test_a_range_goes_on_where_it_says() -> None:
    found: list[str] = []
    target = "/stores/counts?limit=4"
    for _ in range(3):
        page = ask(app(), target).json
        found += [entry["key"] for entry in page["entries"]]
        target = f"/stores/counts?limit=4&from={page['next']}"
    assert page["next"] is None
    assert found == sorted(WORDS)


def test_rows_of_one_key_in_several_partitions_are_never_cut_between_two_pages() -> None:
    here = app([("a", 1), ("b", 2), ("b", 3), ("c", 4)])
    page = ask(here, "/stores/counts?limit=2").json
    assert ([entry["value"] for entry in page["entries"]], page["next"]) == ([1], "b")
    page = ask(here, "/stores/counts?limit=2&from=b").json
    assert ([entry["value"] for entry in page["entries"]], page["next"]) == ([2, 3], "c")
    refused = ask(here, "/stores/counts?limit=1&from=b")
    assert refused.status == 400
    assert "limit is 1, and counts has a key in more partitions than that: ask with a higher limit" in sentence(refused)


def test_a_range_of_long_values_comes_in_pages_of_some_megabytes() -> None:
    store = store_info("texts", value=Serdes.string())
    long = app({key: key * (3 << 20) for key in "abcdef"}, store)
    found: list[str] = []
    target = "/stores/texts"
    while target:
        reply = ask(long, target)
        assert len(reply.body) < PAGE_BYTES + 1_000
        found += [entry["key"] for entry in reply.json["entries"]]
        target = f"/stores/texts?from={reply.json['next']}" if reply.json["next"] else ""
    assert found == list("abcdef")
    assert len(ask(app({"a": "a" * PAGE_BYTES * 2}, store), "/stores/texts").json["entries"]) == 1, "one row always comes"


def test_rows_for_an_instance_that_knows_no_pages_come_whole_or_not_at_all() -> None:
    store = store_info("texts", value=Serdes.string())
    long = app({key: key * (9 << 20) for key in "abcdef"}, store)
    assert "these rows are more than" in sentence(ask(long, "/rows/texts?partitions=0,1,2&limit=100"))
    page = ask(long, "/rows/texts?partitions=0,1,2&limit=100", headers={"Accept": f"{MEDIA_TYPE};bytes=100"})
    found = FoundRows.from_bytes(page.body)
    assert [row.key for row in found.rows] == [b"a"]
    assert found.more_from == b"b"


def test_long_answers_that_nobody_takes_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.query.http_app.MOST_UNSENT_BYTES", 100_000)
    long = app({"a": "a" * 200_000}, store_info("texts", value=Serdes.string()))
    reply = ask(long, "/stores/texts")
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert "long answers" in sentence(reply)
    assert long.unsent == {"bytes": 0}


def test_between_two_pieces_of_an_answer_the_server_learns_that_its_client_is_gone() -> None:
    seen: list[str] = []

    def noted(message: Any) -> None:
        if message["type"] == "http.response.body":
            seen.append("piece")
            asyncio.get_running_loop().call_soon(seen.append, "what has happened meanwhile")

    ask(app({"a": "a" * 300_000}, store_info("texts", value=Serdes.string())), "/stores/texts", on_send=noted)
    assert seen.count("piece") == 5
    assert seen[:8] == ["piece", "what has happened meanwhile"] * 4


@pytest.mark.parametrize("target", ["/", "/stores", "/stores/counts", "/stores/counts/word1", "/no", "/rows/counts?partitions=0"])
def test_no_browser_guesses_what_an_answer_is(target: str) -> None:
    assert ask(app(), target).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("header", [("Content-Length", "5"), ("Transfer-Encoding", "chunked")])
def test_a_request_with_a_body_is_refused_and_the_body_is_not_read(header: tuple[str, str]) -> None:
    reply = ask(app(), "/stores", headers=dict([header]))
    assert (reply.status, reply.headers["connection"]) == (400, "close")
    assert "a request has no body here" in sentence(reply)
    assert ask(app(), "/stores", headers={"Content-Length": "0"}).status == 200


def test_a_range_has_both_its_ends() -> None:
    page = ask(app(), "/stores/counts?from=word2&to=word5").json
    assert [(entry["key"], entry["value"], entry["timestamp"]) for entry in page["entries"]] == [
        (f"word{number}", number, 7) for number in range(2, 6)
    ]
    assert ask(app(), "/stores/counts?from=x").json["entries"] == []


def test_one_partition_may_be_asked_for() -> None:
    page = ask(app(), "/stores/counts?partition=1").json
    mine = sorted(word for word in WORDS if partition_of_key(word.encode(), PARTITIONS) == 1)
    assert [entry["key"] for entry in page["entries"]] == mine
    elsewhere = (partition_of_key(b"word3", PARTITIONS) + 1) % PARTITIONS
    assert ask(app(), f"/stores/counts/word3?partition={elsewhere}").status == 404


def test_arrow_is_there_for_those_who_accept_it() -> None:
    found = table(ask(app(), "/stores/counts?limit=3", headers=ARROW))
    assert found.schema.types == [pa.string(), pa.int64(), pa.timestamp("ms", "UTC")]
    assert found["key"].to_pylist() == ["word0", "word1", "word2"]
    assert json.loads(found.schema.metadata[b"tidemill.next"]) == "word3"
    assert table(ask(app(), "/stores/counts/word3", headers=ARROW))["value"].to_pylist() == [3]
    assert table(ask(app(), "/stores/counts?from=x", headers=ARROW)).num_rows == 0


TIME = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
JSON_STORE = store_info(value=Serdes.json("name string, tags array<string>, share double, raw binary"))


@pytest.mark.parametrize(
    ("store", "key", "value", "path", "key_shown", "value_shown", "arrow_type"),
    [
        (store_info(key=Serdes.long()), -5, 1, "-5", -5, 1, pa.int64()),
        (store_info(key=Serdes.integer(), value=Serdes.string()), 7, "ü", "7", 7, "ü", pa.string()),
        (store_info(key=Serdes.double(), value=Serdes.double()), 0.5, math.nan, "0.5", 0.5, "NaN", pa.float64()),
        (store_info(key=Serdes.bytes(), value=Serdes.bytes()), b"\0\xff", b"\1", "00ff", "00ff", "01", pa.binary()),
        (
            JSON_STORE, "k", {"name": "n", "tags": ["a"], "share": 0.5, "raw": b"\1"}, "k", "k",
            {"name": "n", "tags": ["a"], "share": 0.5, "raw": "01"}, pa.string(),
        ),
        (store_info(key=Serdes.json("id bigint")), {"id": 4}, 1, quote('{"id":4}'), {"id": 4}, 1, pa.int64()),
        (
            store_info(key=Serdes.json("at timestamp, price decimal(9,2)")), {"at": TIME, "price": Decimal("1.50")}, 1,
            quote('{"at":"2026-01-31T12:00:00+00:00","price":"1.50"}'), {"at": "2026-01-31T12:00:00+00:00", "price": "1.50"}, 1,
            pa.int64(),
        ),
        (store_info(timestamped=False), "k", 2, "k", "k", 2, pa.int64()),
    ],
    ids=["long", "integer", "double", "bytes", "json", "json-key", "json-key-of-a-time", "plain"],
)  # fmt: skip
def test_every_serde_has_its_form(
    store: StoreInfo, key: Any, value: Any, path: str, key_shown: Any, value_shown: Any, arrow_type: pa.DataType
) -> None:
    reply = ask(app([(key, value)], store), f"/stores/counts/{path}")
    assert (reply.status, reply.json["key"], reply.json["value"]) == (200, key_shown, value_shown)
    assert ("timestamp" in reply.json) is store.timestamped
    assert table(ask(app([(key, value)], store), "/stores/counts", headers=ARROW))["value"].type == arrow_type


def test_what_there_is_and_who_has_it_is_reported() -> None:
    reply = ask(app(), "/stores")
    assert reply.json == {
        "application": "app",
        "host": "one:1",
        "stores": [
            {
                "name": "counts", "key": "string", "value": "long", "timestamped": True,
                "partitions": [
                    {"partition": 0, "active": "one:1", "standbys": ["two:2"]},
                    {"partition": 1, "active": "one:1", "standbys": []},
                    {"partition": 2, "active": "two:2", "standbys": []},
                ],
            }
        ],
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "has_timestamps"), [
    (StoreKind.TIMESTAMPED_WINDOW, True), (StoreKind.WINDOW, False), (StoreKind.SESSION, False),
])  # fmt: skip
def test_windows_that_are_shown_with_timestamps_are_reported_so(kind: StoreKind, has_timestamps: bool) -> None:
    kept = store_info(timestamped=False, store=Store(name="counts", kind=kind, window_size_ms=5))
    [shown] = ask(app([], kept), "/stores").json["stores"]
    assert shown["timestamped"] is has_timestamps


def test_a_stale_answer_says_by_how_much_and_the_request_sets_the_bound() -> None:
    behind = dict.fromkeys(range(PARTITIONS), 50)
    assert ask(app(copies=behind), "/stores/counts/word1").json["stale_by"] == 50
    assert ask(app(copies=behind), "/stores/counts").json["stale_by"] == 50
    refused = ask(app(copies=behind), "/stores/counts/word1?max_staleness=49")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "could be read in 1 s" in sentence(refused)


def test_an_answer_says_where_the_copy_is_and_a_request_may_ask_for_as_much() -> None:
    here = Position({0: 3, 1: 5, 2: 7})
    served = app(position=here)
    found = ask(served, "/stores/counts/word1").json
    assert found["position"] == str(here.of([found["partition"]]))
    assert ask(served, "/stores/counts").json["position"] == "0:3,1:5,2:7"
    assert ask(served, f"/stores/counts/word1?position={found['position']}").status == 200
    assert ask(served, "/stores/counts?position=0:3,1:5,2:7&max_staleness_ms=100").status == 200
    later = ask(served, "/stores/counts?position=0:3,1:6,2:7")
    assert (later.status, later.headers["retry-after"]) == (503, "1")
    assert "no copy of partition 1 could be read" in sentence(later)
    for wrong in ("position=1", "max_staleness_ms=-1", "position="):
        assert ask(served, f"/stores/counts/word1?{wrong}").status == 400


def test_how_old_a_standby_may_be_is_said_by_the_request_or_else_by_the_setting() -> None:
    served = app(copies=dict.fromkeys(range(PARTITIONS), 5), age_ms=300)
    assert ask(served, "/stores/counts/word1").status == 200
    assert ask(served, "/stores/counts/word1?max_staleness_ms=300").status == 200
    assert ask(served, "/stores/counts/word1?max_staleness_ms=299").status == 503
    strict = replace(served, max_staleness_ms=299)
    assert ask(strict, "/stores/counts/word1").status == 503
    assert ask(strict, "/stores/counts/word1?max_staleness_ms=300").status == 200
    assert ask(replace(app(age_ms=300), max_staleness_ms=0), "/stores/counts/word1").status == 200  # an owner is never old


def test_bounds_travel_to_other_instances_as_they_are() -> None:
    question = RowsQuestion(partitions=frozenset({0, 2}), key=b"k", position=Position({0: 3, 1: 5}), most_age_ms=250)
    request = parse_request(b"/rows/counts", urlencode(to_parameters(question, 10)).encode(), "")
    assert rows_question(request) == replace(question, position=Position({0: 3}), most_bytes=UNASKED_BYTES)
    plain = RowsQuestion(partitions=frozenset({0}), key=b"k")
    assert to_parameters(plain, None) == {"partitions": "0", "limit": "1", "key": "6b"}


def test_what_another_instance_asks_is_answered_from_here_and_never_handed_on() -> None:
    remote = StandInInstances()
    served = app(copies={0: None, 1: 5}, remote=remote)
    reply = ask(served, "/rows/counts?partitions=0,1,2&limit=100")
    assert reply.headers["content-type"] == MEDIA_TYPE
    assert FoundRows.from_bytes(reply.body).covered == {0: 0}
    assert FoundRows.from_bytes(ask(served, "/rows/counts?partitions=1,2&limit=9&max_lag=5").body).covered == {1: 5}
    assert remote.asked == []


def test_head_is_get_without_its_body() -> None:
    reply = ask(app(), "/stores/counts/word3", method="HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 0


def test_a_key_that_a_foreign_client_placed_is_found_in_any_partition_of_a_source_topic() -> None:
    strange = store_info(is_placed=False)
    elsewhere = (partition_of_key(b"word3", PARTITIONS) + 1) % PARTITIONS
    served = app({}, strange)
    here = served.router.directory
    assert isinstance(here, StandInDirectory)
    here.placed[b"word3"] = elsewhere
    here.entries = {"word3": 3}
    assert ask(served, "/stores/counts/word3").json["partition"] == elsewhere
    assert ask(served, "/stores/counts/word4").status == 404
    assert ask(served, f"/stores/counts/word3?partition={partition_of_key(b'word3', PARTITIONS)}").status == 404
    here.stores = {"counts": COUNTS}
    assert ask(served, "/stores/counts/word3").status == 404


# --- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "status", "says"),
    [
        ("/nothing", 404, "there are /stores"),
        ("/store/counts", 404, "nothing is at this address"),
        ("/stores/counts/a/b", 404, "is written %2F"),
        ("/stores/nothing", 404, "there is no store 'nothing'; the topology's stores are counts"),
        ("/stores/nothing/key", 404, "there is no store 'nothing'"),
        ("/rows/nothing?partitions=0", 404, "there is no store 'nothing'"),
        ("/stores/counts?limit=0", 400, "limit is '0', expected a whole number from 1 to 10000"),
        ("/stores/counts?limit=-1", 400, "limit is '-1'"),
        ("/stores/counts?limit=1e3", 400, "limit is '1e3'"),
        ("/stores/counts?limit=%D9%A3", 400, "expected a whole number"),
        ("/stores/counts?limit=99999999999999999999999999", 400, "expected a whole number"),
        ("/stores/counts?limit=2&limit=3", 400, "a parameter is given twice"),
        ("/stores/counts?limits=2", 400, "there is no parameter 'limits' here; those there are: from, to, limit"),
        ("/stores/counts?limit", 400, "expected at most 16 times name=value"),
        ("/stores/counts?from=%FF", 400, "can't be read"),
        ("/stores/counts?" + "&".join(f"a{n}=1" for n in range(20)), 400, "at most 16"),
        ("/stores/counts?partition=3", 400, "partition is '3', expected a whole number from 0 to 2"),
        ("/stores/counts/k?partition=x", 400, "partition is 'x'"),
        ("/stores/counts/k?max_staleness=few", 400, "max_staleness is 'few'"),
        ("/stores/counts/k?keys=base64", 400, "keys is 'base64', expected text or hex"),
        ("/stores/counts/xyz?keys=hex", 400, "'xyz' is not hex"),
        ("/stores/counts?from=1&keys=hex", 400, "'1' is not hex"),
        ("/stores/counts/%FF", 400, "write the key's bytes as hex"),
        ("/stores/counts/50%", 400, "a '%' itself is written %25"),
        ("/stores/counts/%zz", 400, "two hexadecimal digits"),
        ("/stores/counts/%+1", 400, "two hexadecimal digits"),
        ("/stores/counts/%4", 400, "two hexadecimal digits"),
        ("/stores/counts?from=%zz", 400, "two hexadecimal digits"),
        ("/stores?x=1", 400, "there is no parameter 'x' here; those there are: none"),
        ("/rows/counts", 400, "partitions are whole numbers"),
        ("/rows/counts?partitions=", 400, "partitions are whole numbers"),
        ("/rows/counts?partitions=0&key=zz", 400, "'zz' is not hex"),
        ("/rows/counts?partitions=0&max_lag=-1", 400, "max_lag is '-1'"),
        ("/rows/counts?partitions=0&key=61&first=0&last=9", 400, "counts has no windows or sessions here"),
    ],
)
def test_a_malformed_question_is_refused_with_what_would_be_right(target: str, status: int, says: str) -> None:
    reply = ask(app(), target)
    assert reply.status == status
    assert says in sentence(reply)


@pytest.mark.parametrize("key", ["x", "1.5", "1" * 5000, "%7B", "9" * 30, "null"])
def test_text_that_is_no_key_of_the_store_is_refused(key: str) -> None:
    assert ask(app({1: 1}, store_info(key=Serdes.long())), f"/stores/counts/{key}").status == 400


@pytest.mark.parametrize("key", ["1_2", " 12", "12 ", "1\n2", "\u0661\u0662"])
@pytest.mark.parametrize("kind", [Serdes.long(), Serdes.integer(), Serdes.double(), Serdes.bytes()], ids=lambda serde: serde.name)
def test_numbers_and_bytes_are_digits_and_nothing_else(kind: Any, key: str) -> None:
    """Python itself would read most of these as 12."""
    entries: list[tuple[Any, Any]] = [(b"\x12" if kind.name == "bytes" else 12, 1)]
    assert ask(app(entries, store_info(key=kind)), "/stores/counts/12").status == 200
    assert ask(app(entries, store_info(key=kind)), f"/stores/counts/{quote(key)}").status == 400
    assert ask(app(entries, store_info(key=kind)), f"/stores/counts/{quote(key)}?keys=hex").status == 400


@pytest.mark.parametrize("key", ["x", "[1]", '{"id":"x"}', "[" * 5000, "null"])
def test_text_that_is_no_json_key_is_refused(key: str) -> None:
    reply = ask(app({}, store_info(key=Serdes.json("id bigint"))), f"/stores/counts/{quote(key, safe='')}")
    assert reply.status == 400
    sentence(reply)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_nothing_can_be_written(method: str) -> None:
    reply = ask(app(), "/stores/counts/word1", method=method)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "target", [b"/stores/\xff", b"\xff", b"", b"//", b"/stores/%", b"/stores/%zz?%zz=%", b"/stores/counts?\xff=\x00", b"/%00/%00"]
)
def test_garbage_is_4xx(target: bytes) -> None:
    reply = ask(app(), target)
    assert 400 <= reply.status < 500
    sentence(reply)


@pytest.mark.parametrize(
    ("error", "status"),
    [(InvalidStateStoreError("is on its way", store="counts"), 503), (StreamsNotStartedError("not yet"), 503), (KeyError(), 500)],
)
def test_what_the_instance_can_not_do_is_said_without_its_insides(error: Exception, status: int) -> None:
    reply = ask(app(fails=error), "/stores/counts/word1")
    assert reply.status == status
    assert "KeyError" not in sentence(reply)


# --- who may ask ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Cookie": TOKEN},
    ],
)
@pytest.mark.parametrize("target", ["/stores", "/stores/counts/word1", "/rows/counts?partitions=0", "/nothing"])
def test_without_the_token_nothing_is_reported(headers: dict[str, str], target: str) -> None:
    reply = ask(app(token=TOKEN), target, headers=headers)
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert TOKEN not in sentence(reply)


def test_with_the_token_any_name_may_be_used() -> None:
    served = app(token=TOKEN)
    assert ask(served, "/stores/counts/word1", headers={"Authorization": f"Bearer {TOKEN}"}, host="reads.example").status == 200
    assert ask(served, "/stores/counts/word1", headers={"Authorization": f"bearer {TOKEN}"}).status == 200


def test_the_token_is_in_no_text_of_the_application() -> None:
    assert TOKEN not in repr(app(token=TOKEN))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("", 403),
    ],
)
def test_without_a_token_only_loopback_names_are_answered(host: str, status: int) -> None:
    assert ask(app(), "/stores/counts/word1", host=host).status == status


def test_a_servers_life_is_followed() -> None:
    sent: list[str] = []
    events = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, str]:
        return {"type": next(events)}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    asyncio.run(app()({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_an_address_in_use_is_said() -> None:
    with listen("127.0.0.1:0") as taken, pytest.raises(EnvironmentProblem, match=r"can't listen on 127\.0\.0\.1:"):
        listen(address_of(taken))


def test_a_request_that_the_end_of_the_server_cuts_short_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn cancels it, and would log a stack trace."""

    async def cancelled(_app: ReadsApp, _scope: Any) -> Any:
        raise asyncio.CancelledError

    monkeypatch.setattr(ReadsApp, "_find", cancelled)
    reply = ask(app(), "/stores/counts/word3")
    assert (reply.status, reply.headers["connection"]) == (503, "close")
    assert sentence(reply) == "this instance is closing: ask another"


@pytest.mark.parametrize("path", ["/stores", "/stores/counts", "/stores/counts/word3"])
@pytest.mark.parametrize("slow", ["partition_count", "read"])
def test_a_read_ends_though_what_it_asks_does_not_answer(monkeypatch: pytest.MonkeyPatch, path: str, slow: str) -> None:
    """The partition count, and a standby's lag, are a broker's to say."""
    released = threading.Event()
    reads = app(copies={0: 50, 1: 50, 2: 50}, hosts=host_map({}, {ONE: (0, 1, 2)}))
    answers = getattr(StandInDirectory, slow)

    def waits(*given: Any, **more: Any) -> Any:
        if slow == "partition_count" or more["max_lag"] is not None:
            released.wait(60)
        return answers(*given, **more)

    monkeypatch.setattr(StandInDirectory, slow, waits)
    try:
        reply = ask(reads, path)
    finally:
        is_over = released.is_set()
        released.set()
    if (path, slow) == ("/stores", "read"):
        assert reply.status == 200, "the list of stores reads none"
        return
    assert not is_over
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert sentence(reply) == "counts: a broker or another instance has not answered in 1 s; ask again"
