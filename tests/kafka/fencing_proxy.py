"""A TCP proxy in front of a broker that can leave the brokers out of the metadata: what a broker says while it is fenced, as
after a pause of its whole machine, or when it stops."""

from __future__ import annotations

import contextlib
import socket
import struct

from tests.kafka.broker_proxy import SIZE, BrokerProxy

_HEADER = struct.Struct(">hhi")
_METADATA = 3
_FLEXIBLE = range(9, 14)
"""Versions of the answer whose beginning is as below."""


class FencingProxy(BrokerProxy):
    """While ``is_fenced``, answers of metadata have no broker and no controller. ``stop`` fences it and breaks the connections,
    and those that come after it once they have had such an answer: ``forgotten`` counts them."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker)
        self.is_fenced = self._is_stopping = False
        self.forgotten = 0
        self._asked: dict[tuple[socket.socket, int], tuple[int, int]] = {}
        """Kind and version of the requests under way, by the connection and their number there."""
        self.start()

    def stop(self) -> None:
        self.is_fenced = self._is_stopping = True
        self.forgotten = 0
        for connection in self._open:
            _break(connection)
        self._open.clear()

    def requested(self, client: socket.socket, upstream: socket.socket, frame: bytes) -> bool:
        kind, version, number = _HEADER.unpack_from(frame, SIZE.size)
        self._asked[client, number] = kind, version
        upstream.sendall(frame)
        return True

    def answered(self, client: socket.socket, upstream: socket.socket, frame: bytes) -> None:
        kind, version = self._asked.pop((client, SIZE.unpack_from(frame, SIZE.size)[0]))
        if kind == _METADATA and self.is_fenced:
            assert version in _FLEXIBLE, f"metadata of version {version}"
            without = _without_brokers(frame[SIZE.size :])
            client.sendall(SIZE.pack(len(without)) + without)
            if self._is_stopping:
                self.forgotten += 1
                _break(client)
        else:
            client.sendall(self.named(frame))


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # broken already
        connection.shutdown(socket.SHUT_RDWR)


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
    return answer[:begin] + b"\x01" + answer[at:cluster_end] + SIZE.pack(-1) + answer[cluster_end + 4 :]
