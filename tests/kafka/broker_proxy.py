"""A TCP proxy in front of a broker, one request and answer after the other. A derived class decides what becomes of each."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from abc import ABC, abstractmethod

SIZE = struct.Struct(">i")


class BrokerProxy(ABC):
    """Clients that begin at ``bootstrap_servers`` meet the broker only through it: it names itself in the broker's answers."""

    def __init__(self, broker: str) -> None:
        host, _, port = broker.partition(":")
        self._broker = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        own = self._listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{own}"
        self._theirs, self._ours = host.encode() + SIZE.pack(int(port)), b"127.0.0.1" + SIZE.pack(own)
        self._open: list[socket.socket] = []

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for connection in (self._listener, *self._open):
            connection.close()

    @abstractmethod
    def requested(self, client: socket.socket, upstream: socket.socket, frame: bytes) -> bool:
        """Handles a request, with its size; False if no further one of the connection is read."""

    @abstractmethod
    def answered(self, client: socket.socket, upstream: socket.socket, frame: bytes) -> None:
        """Handles an answer, with its size."""

    def named(self, answer: bytes) -> bytes:
        """The answer with the proxy in the broker's place."""
        return answer.replace(self._theirs, self._ours)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.create_connection(self._broker)
                self._open += [client, upstream]
                for pump in (self._requests, self._answers):
                    threading.Thread(target=pump, args=(client, upstream), daemon=True).start()

    def _requests(self, client: socket.socket, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(client):
                if not self.requested(client, upstream, frame):
                    return
            upstream.close()

    def _answers(self, client: socket.socket, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(upstream):
                self.answered(client, upstream, frame)
            client.close()


def _frame(connection: socket.socket) -> bytes:
    """A request or an answer with its size; nothing at the end, or if it ends in the middle."""
    size = _exactly(connection, SIZE.size)
    content = size and _exactly(connection, SIZE.unpack(size)[0])
    return content and size + content


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            return b""
        found += more
    return found
