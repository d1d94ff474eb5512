"""Ports that are said to be a broker's and are something else: the error of a call to the brokers says what."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tidemill.errors import RetriableError
from tidemill.kafka.admin.client import Admin

TLS_ALERT = b"\x15\x03\x03\x00\x02\x02P"
BROKER = b"\x00\x00\x00\x0a" b"look" b"\x00\x00\x00\x00\x00\x00"


class Answering:
    """A server that answers the first bytes, or the end of a line, of each connection, and ends it."""

    def __init__(self, answer: bytes, *, waits_for: bytes = b"") -> None:
        self._answer, self._waits_for = answer, waits_for
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answered, args=(connection,), daemon=True).start()
        except OSError:
            return

    def _answered(self, connection: socket.socket) -> None:
        with connection:
            heard = connection.recv(1_000)
            while heard and self._waits_for not in heard:
                heard = connection.recv(1_000)
            connection.sendall(self._answer)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def error_at(servers: str, **settings: str) -> str:
    with pytest.raises(RetriableError) as caught:
        Admin({"bootstrap.servers": servers, **settings}, timeout_s=0.5).partitions(["words"])
    with pytest.raises(RetriableError) as listing:
        Admin({"bootstrap.servers": servers, **settings}, timeout_s=0.5).topics()
    text = str(caught.value)
    assert str(listing.value).endswith(text[text.rindex("; ") :])
    return text


@pytest.mark.parametrize(
    ("answer", "waits_for", "said"),
    [
        (TLS_ALERT, b"", "the port of {} speaks TLS: set kafka.security.protocol to SSL or SASL_SSL"),
        (b"HTTP/1.1 400 Bad\r\n\r\n", b"\r\n", "what answers at {} is no Kafka broker: it says 'HTTP/1.1 400 Bad'"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"", "what answers at {} is no Kafka broker: it says 'SSH-2.0-OpenSSH_9.6'"),
        (b"", b"", "check that the brokers at {} run and can be reached"),
        (BROKER, b"", "check that the brokers at {} run and can be reached"),
    ],
    ids=["TLS", "HTTP", "SSH", "nothing", "a broker"],
)
def test_what_answers_in_a_brokers_place_is_said(answer: bytes, waits_for: bytes, said: str, servers: ExitStack) -> None:
    server = Answering(answer, waits_for=waits_for)
    servers.callback(server.close)
    assert said.format(server.address) in error_at(server.address)


def test_of_several_servers_each_that_is_no_broker_is_said(servers: ExitStack) -> None:
    ssh, tls = Answering(b"SSH-2.0\r\n"), Answering(TLS_ALERT)
    servers.callback(ssh.close)
    servers.callback(tls.close)
    error = error_at(f"127.0.0.1:9, {ssh.address}, {tls.address}")
    assert f"answers at {ssh.address} is no" in error
    assert f"port of {tls.address} speaks TLS" in error
