"""A TCP proxy in front of a broker that can leave the brokers out of the metadata: what a broker says while it is fenced, as
after a pause of its whole machine."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
_METADATA = 3
_FLEXIBLE = range(9, 14)
"""Versions of the answer whose beginning is as below."""


class FencingProxy:
    """Clients that begin at ``bootstrap_servers`` meet the broker only through it: it names itself in the broker's answers.

    While ``is_fenced``, answers of metadata have no broker and no controller.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.partition(":")
        self._broker = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        own = self._listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{own}"
        self.is_fenced = False
        self._theirs, self._ours = host.encode() + _SIZE.pack(int(port)), b"127.0.0.1" + _SIZE.pack(own)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for connection in (self._listener, *self._open):
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.create_connection(self._broker)
                self._open += [client, upstream]
                asked: dict[int, tuple[int, int]] = {}
                for pump in (self._requests, self._answers):
                    threading.Thread(target=pump, args=(client, upstream, asked), daemon=True).start()

    def _requests(self, client: socket.socket, upstream: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(client):
                kind, version, number = _HEADER.unpack_from(frame)
                asked[number] = kind, version
                upstream.sendall(_SIZE.pack(len(frame)) + frame)
            upstream.close()

    def _answers(self, client: socket.socket, upstream: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(upstream):
                kind, version = asked.pop(_SIZE.unpack_from(frame)[0])
                if kind == _METADATA and self.is_fenced:
                    assert version in _FLEXIBLE, f"metadata of version {version}"
                    frame = _without_brokers(frame)
                else:
                    frame = frame.replace(self._theirs, self._ours)
                client.sendall(_SIZE.pack(len(frame)) + frame)
            client.close()


def _without_brokers(answer: bytes) -> bytes:
    """Number, no tags, throttle time; brokers (id, host, port, rack, no tags); cluster id, controller; topics and what follows.
    Lengths of lists and texts are one byte here, and one more than what they count."""
    at = begin = 4 + 1 + 4
    count = answer[at] - 1
    at += 1
    for _ in range(count):
        at += 4
        at += answer[at] + 4  # the host and the port
        at += max(answer[at], 1) + 1
    cluster_end = at + max(answer[at], 1)
    return answer[:begin] + b"\x01" + answer[at:cluster_end] + _SIZE.pack(-1) + answer[cluster_end + 4 :]


def _frame(connection: socket.socket) -> bytes:
    """A request or an answer without its size; nothing at the end, or if it ends in the middle."""
    size = _exactly(connection, _SIZE.size)
    return _exactly(connection, _SIZE.unpack(size)[0]) if size else b""


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            return b""
        found += more
    return found
