"""Two servers on this machine's loopback, each with half of the partitions: real sockets, no Kafka."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.query.stand_ins import PARTITIONS, StandInDirectory, host_map, reads_config, store_info
from tests.waiting import until
from tidemill.dsl.serdes import Serdes
from tidemill.errors import RetriableError
from tidemill.ids import TaskId
from tidemill.membership.wire import HostInfo, host_of
from tidemill.query.http_forward import HttpInstances, copies_at
from tidemill.query.http_listening import address_of, listen
from tidemill.query.http_server import _PAGE_READERS, HttpServer
from tidemill.query.http_tls import HttpAccess
from tidemill.query.metadata import HostMap
from tidemill.query.rows import FoundRows, RowsQuestion
from tidemill.query.store_info import StoreInfo
from tidemill.task.progress import CopyProgress
from tidemill.topology.partitioning import partition_of_key

WORDS = {f"word{number}": number for number in range(10)}
TOKEN = "a-token-of-some-length"


class Pair:
    """``one`` has partition 0 and a standby of 1, ``two`` has 1 and 2 and a standby of 0."""

    def __init__(self, token: str = "", timeout_s: float = 30.0) -> None:
        self.token = token
        self.listening = [listen("127.0.0.1:0"), listen("127.0.0.1:0")]
        one, two = (host_of(address_of(each)) for each in self.listening)
        assert one is not None
        assert two is not None
        self.hosts = one, two
        hosts = host_map({one: (0,), two: (1, 2)}, {one: (1,), two: (0,)})
        self.directories = [
            StandInDirectory(own_host=one, hosts=hosts, copies={0: None, 1: 20}, entries=WORDS),
            StandInDirectory(own_host=two, hosts=hosts, copies={1: None, 2: None, 0: 30}, entries=WORDS),
        ]
        self.servers = [
            HttpServer(each, directory, reads_config(timeout_s=timeout_s), HttpAccess(token=token))
            for each, directory in zip(self.listening, self.directories, strict=True)
        ]
        for server in self.servers:
            server.start()

    def ask(self, number: int, target: str, token: str | None = None) -> tuple[int, Any]:
        host = self.hosts[number]
        connection = http.client.HTTPConnection(host.host, host.port, timeout=90)
        given = self.token if token is None else token
        connection.request("GET", target, headers={"Authorization": f"Bearer {given}"} if given else {})
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    def close(self) -> None:
        with ThreadPoolExecutor(len(self.servers)) as each:
            list(each.map(HttpServer.close, self.servers))


@pytest.fixture
def pair() -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def one(**options: Any) -> Pair:
        made.append(Pair(**options))
        return made[-1]

    yield one
    for each in made:
        each.close()


def test_any_instance_answers_for_every_key(pair: Callable[..., Pair]) -> None:
    both = pair()
    for number in (0, 1):
        for word, count in WORDS.items():
            status, found = both.ask(number, f"/stores/counts/{word}")
            assert (status, found["value"], found["stale_by"]) == (200, count, 0)
        status, found = both.ask(number, "/stores/counts")
        assert {entry["key"]: entry["value"] for entry in found["entries"]} == WORDS


def test_when_the_owner_has_gone_a_standby_answers_and_says_how_far_behind_it_is(pair: Callable[..., Pair]) -> None:
    both = pair(timeout_s=2.0)  # so long it tries to read what nobody has
    both.servers[1].close()
    answers = [both.ask(0, f"/stores/counts/{word}") for word in WORDS]
    assert {found["partition"]: found["stale_by"] for status, found in answers if status == 200} == {0: 0, 1: 20}
    refused = [found["error"] for status, found in answers if status == 503]
    assert refused
    assert f"{both.hosts[1]}: does not answer (ConnectionRefusedError" in refused[0]


@pytest.mark.parametrize("number", [0, 1])
def test_rows_of_a_program_that_keeps_the_store_in_another_way_are_no_answer(pair: Callable[..., Pair], number: int) -> None:
    """In a rolling upgrade: the first 8 bytes of a value would be taken for its time, or a time for the beginning of a value."""
    both = pair(timeout_s=2.0)
    text, timed = (store_info(value=Serdes.string(), timestamped=timestamped) for timestamped in (False, True))
    for directory, store in zip(both.directories, (text, timed), strict=True):
        directory.stores, directory.entries, directory.copies = {"counts": store}, {"word1": "what it is"}, {}
    both.directories[1 - number].copies = {0: None, 1: None, 2: None}
    here, there = (("key_value", "timestamped_key_value"), ("timestamped_key_value", "key_value"))[number]
    both.directories[0].hosts = both.directories[1].hosts = host_map({both.hosts[1 - number]: (0, 1, 2)})
    for target in ("/stores/counts/word1", "/stores/counts"):
        status, found = both.ask(number, target)
        assert status == 503
        said = f"runs another program: its counts is ({there} key=string value=string), and here it is ({here} key=string"
        assert said in found["error"]


def test_the_token_goes_with_what_is_handed_on_and_into_no_log(
    pair: Callable[..., Pair], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        both = pair(token=TOKEN, timeout_s=5.0)
        assert both.ask(0, "/stores/counts")[0] == 200
        status, refused = both.ask(0, "/stores/counts", token="another-token-of-a-length")
        assert status == 401
        both.directories[1].fails = RuntimeError("unforeseen")
        assert both.ask(1, "/stores/counts")[0] == 500
        both.servers[1].close()
        status, refused = both.ask(0, "/stores/counts")
        assert status == 503
    printed = "".join(capfd.readouterr())
    assert "event=request-failed" in caplog.text
    for written in (caplog.text, printed, json.dumps(refused), repr(HttpInstances(TOKEN))):
        assert TOKEN not in written
        assert "another-token" not in written


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "said",
    [
        HEAD + b"Content-Length: 5\r\n\r\nhello",
        HEAD + b"Content-Length: 4\r\n\r\nnull",
        HEAD + b"Content-Length: 200000000\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n" + bytes(2_000),
        HEAD + b"Content-Length: -5\r\n\r\n[]",
        b"\0" * 100,
    ],
    ids=["text", "null", "200 MB", "4 GB", "negative", "no HTTP"],
)
def test_something_else_at_an_instances_address_is_no_answer(pair: Callable[..., Pair], said: bytes) -> None:
    both = pair()
    with socket.create_server(("127.0.0.1", 0)) as strange:
        threading.Thread(target=_say, args=(strange, said), daemon=True).start()
        elsewhere = HostInfo("127.0.0.1", strange.getsockname()[1])
        hosts: HostMap = host_map({both.hosts[0]: (0,), elsewhere: (1, 2)}, {both.hosts[1]: (1, 2)})
        both.directories[0].hosts = hosts
        status, found = both.ask(0, "/stores/counts?max_staleness=0")
    assert (status, len(found["entries"])) == (200, len(WORDS))


@pytest.mark.parametrize("host", ["pod-0..default", "a" * 64, "a b", "a\r\nX-b: c", "a\0b", "\udcff", "", "[::1"])
def test_an_owner_whose_address_is_no_host_is_one_that_does_not_answer(pair: Callable[..., Pair], host: str) -> None:
    both = pair()
    both.directories[0].hosts = host_map({both.hosts[0]: (0,), HostInfo(host, 8080): (1, 2)}, {both.hosts[1]: (1, 2)})
    status, found = both.ask(0, "/stores/counts?max_staleness=0")
    assert (status, len(found["entries"])) == (200, len(WORDS))
    for port in (-1, 1 << 17):
        with pytest.raises(RetriableError):
            HttpInstances().document(HostInfo("127.0.0.1", port), "/instance", timeout_s=1)


def test_an_answer_has_a_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.query.http_forward.MOST_BYTES", 10)
    with socket.create_server(("127.0.0.1", 0)) as strange:
        said = HEAD + b"Connection: close\r\n\r\n" + b'{"a": 123456789}'
        threading.Thread(target=_say, args=(strange, said), daemon=True).start()
        with pytest.raises(RetriableError, match="more than 10 bytes, which is the limit"):
            HttpInstances().document(HostInfo("127.0.0.1", strange.getsockname()[1]), "/", timeout_s=60)


def _say(server: socket.socket, said: bytes) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):  # who called may have gone
            connection.recv(10_000)
            connection.sendall(said)


@pytest.mark.parametrize("said", [b"\xff\xfe\n\n", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"A" * 100_000 + b"\r\n\r\n"])
def test_what_is_no_http_at_all_is_refused_and_the_next_is_answered(pair: Callable[..., Pair], said: bytes) -> None:
    both = pair()
    with socket.create_connection(both.hosts[0]) as connection:
        connection.settimeout(60)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # it had sent more than was read
            connection.sendall(said)
            assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert both.ask(0, "/stores")[0] == 200


def test_a_closed_server_leaves_its_address_free(pair: Callable[..., Pair]) -> None:
    both = pair()
    address = str(both.hosts[0])
    both.ask(0, "/stores")
    both.servers[0].close()
    listen(address).close()


def test_a_request_that_a_closing_server_cuts_short_is_answered_and_no_error(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    both = pair()
    server, asked, may_end = both.servers[0], threading.Event(), threading.Event()

    def hanging(*_: Any, **__: Any) -> Any:
        asked.set()
        may_end.wait(240)
        raise RetriableError("it was let go")

    monkeypatch.setattr(both.directories[0], "read", hanging)
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(both.ask, 0, "/stores/counts/word3?partition=0")
        try:
            assert asked.wait(240)
            server.close()
            server._thread.join(240)
        finally:
            may_end.set()
        assert answer.result(240) == (503, {"error": "this instance is closing: ask another"})
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_key_is_answered_while_pages_wait_and_no_page_is_read_for_a_client_that_has_gone(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = pair()
    directory, limits = both.directories[0], both.servers[0]._server.limits
    read, pages, may_end = directory.read, [], threading.Event()

    def slow(store: StoreInfo, question: RowsQuestion, *, max_lag: int | None) -> FoundRows:
        if question.key is None:
            pages.append(question.limit)
            assert may_end.wait(240)
        return read(store, question, max_lag=max_lag)

    monkeypatch.setattr(directory, "read", slow)
    try:
        clients = [socket.create_connection((both.hosts[0].host, both.hosts[0].port)) for _ in range(20)]
        for client in clients:
            client.sendall(b"GET /stores/counts?limit=7&partition=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: len(pages) == _PAGE_READERS and len(limits.open) == 20 and not limits.waiting)
        key = next(key for key in WORDS if partition_of_key(key.encode(), PARTITIONS) == 0)
        assert both.ask(0, f"/stores/counts/{key}")[0] == 200
        for client in clients:
            client.close()
        until(lambda: not limits.open)
    finally:
        may_end.set()
    assert both.ask(0, "/stores/counts?limit=9&partition=0")[0] == 200
    assert pages == [8] * _PAGE_READERS + [10]


def test_an_instance_tells_over_http_what_is_under_way_in_it() -> None:
    copy = CopyProgress(task=TaskId(1, 3), is_active=False, lag=60, offsets_per_s=5.0)
    listening = listen("127.0.0.1:0")
    host = host_of(address_of(listening))
    assert host is not None
    server = HttpServer(
        listening,
        StandInDirectory(own_host=host, hosts=host_map({}), copies={}, under_way=[copy]),
        reads_config(max_staleness=1, timeout_s=1),
        HttpAccess(),
    )
    server.start()
    try:
        assert copies_at(host, token="", timeout_s=60) == (copy,)
    finally:
        server.close()
    with pytest.raises(RetriableError, match="does not answer"):
        copies_at(host, token="", timeout_s=1)
