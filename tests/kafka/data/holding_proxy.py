"""A TCP proxy in front of a broker that holds one request back, as a slow network would, and delivers it when it is told to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

_SIZE = struct.Struct(">i")
_KIND = struct.Struct(">h")
END_TXN = 26
"""The API key of the request that ends a transaction."""
_LIMIT_S = 60


class HoldingProxy:
    """Clients that begin at ``bootstrap_servers`` meet the broker only through it: it names itself in the broker's answers.

    ``hold`` keeps the next request of a kind; its client's connection breaks, the one to the broker stays. ``deliver`` sends what
    is held and waits until the broker has answered.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.partition(":")
        self._broker = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        own = self._listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{own}"
        self._theirs, self._ours = host.encode() + _SIZE.pack(int(port)), b"127.0.0.1" + _SIZE.pack(own)
        self._wanted: int | None = None
        self._held: tuple[socket.socket, bytes] | None = None
        self._is_held, self._is_answered = threading.Event(), threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, kind: int) -> None:
        self._wanted = kind

    def deliver(self) -> None:
        assert self._is_held.wait(_LIMIT_S), "no such request came"
        assert self._held is not None
        upstream, frame = self._held
        self._is_answered.clear()  # of what was under way before it
        upstream.sendall(frame)
        assert self._is_answered.wait(_LIMIT_S), "the broker has not answered what came late"

    def close(self) -> None:
        for connection in (self._listener, *self._open):
            connection.close()

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
                if _KIND.unpack_from(frame, _SIZE.size)[0] == self._wanted:
                    self._wanted, self._held = None, (upstream, frame)
                    self._is_held.set()
                    client.shutdown(socket.SHUT_RDWR)
                    return
                upstream.sendall(frame)
            upstream.close()

    def _answers(self, client: socket.socket, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(upstream):
                if self._held is not None and self._held[0] is upstream:
                    self._is_answered.set()
                else:
                    client.sendall(frame.replace(self._theirs, self._ours))
            client.close()


def _frame(connection: socket.socket) -> bytes:
    """A request or an answer with its size; nothing at the end, or if it ends in the middle."""
    size = _exactly(connection, _SIZE.size)
    content = size and _exactly(connection, _SIZE.unpack(size)[0])
    return content and size + content


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            return b""
        found += more
    return found
