"""Connections that are held open, trickle or don't take their answers: they end, and others are answered meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.query.stand_ins import PARTITIONS, StandInDirectory, host_map, reads_config
from tidemill.membership.wire import HostInfo, host_of
from tidemill.query.http_connections import MOST_HEAD_BYTES, ConnectionLimits, LimitedConnection
from tidemill.query.http_listening import address_of, listen
from tidemill.query.http_server import HttpServer
from tidemill.query.http_tls import HttpAccess, HttpTls

HALF = b"GET /stores HTTP/1.1\r\nHost: localhost\r\nX-a: "
WHOLE = b"GET /stores HTTP/1.1\r\nHost: localhost\r\n\r\n"
WAIT_S = 30
Serve = Callable[..., HostInfo]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as opened:

        def one(
            entries: Any = None,
            *,
            tls: HttpTls | None = None,
            buffer_bytes: int | None = None,
            limits: ConnectionLimits | None = None,
            **changed: Any,
        ) -> HostInfo:
            listening = listen("127.0.0.1:0")
            if buffer_bytes is not None:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)  # its connections have it, too
            own = host_of(address_of(listening))
            assert own is not None
            server = HttpServer(
                listening,
                StandInDirectory(
                    own_host=own, hosts=host_map({own: (0, 1, 2)}), copies=dict.fromkeys(range(PARTITIONS)), entries=entries or {}
                ),
                reads_config(max_staleness=0, timeout_s=1), HttpAccess(tls=tls),
                limits=limits or ConnectionLimits(**{"answer_limit_s": 60.0, **changed}),
            )  # fmt: skip
            server.start()
            opened.callback(server.close)
            return own

        yield one


def connected(host: HostInfo, said: bytes = b"") -> socket.socket:
    line = socket.create_connection(host, timeout=WAIT_S)
    line.sendall(said)
    return line


def rest(line: socket.socket) -> bytes:
    """All that comes until the other side ends the connection. TimeoutError if it never does."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def status(host: HostInfo) -> int:
    connection = http.client.HTTPConnection(host.host, host.port, timeout=WAIT_S)
    connection.request("GET", "/stores")
    answer = connection.getresponse()
    json.loads(answer.read())
    connection.close()
    return answer.status


@pytest.mark.parametrize("said", [b"", HALF, WHOLE + HALF], ids=["silent", "half a request", "half a second one"])
def test_a_request_that_never_comes_whole_is_waited_for_in_vain_only_for_a_while(serve: Serve, said: bytes) -> None:
    limits = ConnectionLimits(answer_limit_s=60.0, head_limit_s=0.3)
    host = serve(limits=limits)
    with connected(host, said) as line:
        rest(line)
    limits.head_limit_s = 60.0
    assert status(host) == 200


def test_bytes_that_trickle_in_gain_no_time(serve: Serve) -> None:
    host = serve(head_limit_s=0.5)
    with connected(host, HALF) as line:
        assert was_ended_while_trickling(line)


def was_ended_while_trickling(line: socket.socket) -> bool:
    line.settimeout(0.05)
    for _ in range(20 * WAIT_S):
        try:
            line.sendall(b"a")
            return line.recv(1) == b""
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_those_who_hold_every_connection_open_give_way_to_one_who_asks(serve: Serve) -> None:
    host = serve(most=5)
    with ExitStack() as held:
        lines = [held.enter_context(connected(host, HALF)) for _ in range(20)]
        for _ in range(3):
            assert status(host) == 200
        for line in lines[:15]:
            assert rest(line) == b""


def test_an_answer_that_is_not_taken_is_waited_for_only_for_a_while(serve: Serve) -> None:
    entries = {f"key{number:03}" * 200: number for number in range(100)}  # more than sockets hold
    limits = ConnectionLimits(answer_limit_s=5.0, head_limit_s=5.0)
    host = serve(entries, buffer_bytes=4_096, limits=limits)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.settimeout(WAIT_S)
        line.connect(host)
        line.sendall(b"GET /stores/counts?limit=10000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.recv(15) == b"HTTP/1.1 200 OK"
        assert status(host) == 200
        deadline = time.monotonic() + WAIT_S
        while limits.open:
            assert time.monotonic() < deadline, "the connection is still there"
            time.sleep(0.05)


def test_an_answers_body_does_not_wait_until_its_head_is_acknowledged(serve: Serve) -> None:
    limits = ConnectionLimits(answer_limit_s=60.0)
    host = serve(limits=limits)
    with connected(host, WHOLE) as line:
        assert line.recv(15) == b"HTTP/1.1 200 OK"
        [connection] = limits.open
        assert isinstance(connection, LimitedConnection)
        assert connection.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_head_has_a_limit(serve: Serve) -> None:
    host = serve()
    with connected(host, HALF) as line:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            line.sendall(b"a" * (2 * MOST_HEAD_BYTES))
        assert rest(line)[:12] in (b"HTTP/1.1 400", b"")
    assert status(host) == 200


def test_what_is_no_http_is_refused_as_json_that_no_browser_guesses_about(serve: Serve) -> None:
    with connected(serve(), b"\xff\xfe\r\n\r\n") as line:
        head, _, body = rest(line).partition(b"\r\n\r\n")
    assert b"x-content-type-options: nosniff" in head
    assert list(json.loads(body)) == ["error"]


def test_what_clients_send_is_no_line_in_the_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    host = serve()
    upgrade = WHOLE[:-2] + b"Connection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    for said in (b"\xff\xfe\r\n\r\n", b"GET / HTTP/9\r\n\r\n", upgrade):
        with connected(host, said) as line:
            assert rest(line).startswith(b"HTTP/1.1 ")
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []


def test_garbage_behind_a_request_ends_the_connection_with_its_answer_or_none(serve: Serve) -> None:
    host = serve()
    with connected(host, WHOLE + b"\xff\xfe\r\n\r\n") as line:
        assert rest(line).count(b"HTTP/1.1") <= 2
    assert status(host) == 200


def test_a_handshake_that_never_ends_is_waited_for_only_for_a_while(serve: Serve) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls = HttpTls(context, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), False)
    host = serve(tls=tls, handshake_limit_s=0.3)
    with connected(host) as silent, connected(host, WHOLE) as plain:
        assert b"HTTP" not in rest(plain)
        assert rest(silent) == b""
