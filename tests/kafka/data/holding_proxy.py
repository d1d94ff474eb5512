"""A TCP proxy in front of a broker that holds one request back, as a slow network would, and delivers it when it is told to."""

from __future__ import annotations

import socket
import struct
import threading

from tests.kafka.broker_proxy import SIZE, BrokerProxy

_KIND = struct.Struct(">h")
LIST_OFFSETS, END_TXN = 2, 26
"""API keys: of the request for ends and beginnings of partitions, and of the one that ends a transaction."""
_LIMIT_S = 60


class HoldingProxy(BrokerProxy):
    """``hold`` keeps the next request of a kind; its client's connection breaks, the one to the broker stays. ``deliver`` sends
    what is held and waits until the broker has answered."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker)
        self._wanted: int | None = None
        self._held: tuple[socket.socket, bytes] | None = None
        self._is_held, self._is_answered = threading.Event(), threading.Event()
        self.start()

    def hold(self, kind: int) -> None:
        self._wanted = kind

    def deliver(self) -> None:
        assert self._is_held.wait(_LIMIT_S), "no such request came"
        assert self._held is not None
        upstream, frame = self._held
        self._is_answered.clear()  # of what was under way before it
        upstream.sendall(frame)
        assert self._is_answered.wait(_LIMIT_S), "the broker has not answered what came late"

    def requested(self, client: socket.socket, upstream: socket.socket, frame: bytes) -> bool:
        if _KIND.unpack_from(frame, SIZE.size)[0] == self._wanted:
            self._wanted, self._held = None, (upstream, frame)
            self._is_held.set()
            client.shutdown(socket.SHUT_RDWR)
            return False
        upstream.sendall(frame)
        return True

    def answered(self, client: socket.socket, upstream: socket.socket, frame: bytes) -> None:
        if self._held is not None and self._held[0] is upstream:
            self._is_answered.set()
        else:
            client.sendall(self.named(frame))
