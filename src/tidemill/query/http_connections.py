"""Connections of an instance's HTTP server: limits of their number and time.

The server shares the process, and so its file descriptors, with the stream threads: clients must not be able to use them up.

- At most ``MOST_CONNECTIONS``. For one more, the connection that has waited longest for its next request is ended; if all of them
  are being answered, the new one is.
- A TLS handshake has ``HANDSHAKE_LIMIT_S``; the head of a request ``HEAD_LIMIT_S``, from the connection or from the answer before
  it on, however its bytes trickle; an answer ``answer_limit_s`` until the client has taken all of it.
- A head has at most ``MOST_HEAD_BYTES``.

Leaves HTTP itself to uvicorn and h11, and what is answered to ``http_app``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from dataclasses import dataclass, field
from functools import partial

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from tidemill.log_format import LogEvent

MOST_CONNECTIONS = 200
MOST_HEAD_BYTES = 65_536
HANDSHAKE_LIMIT_S = 5.0
HEAD_LIMIT_S = 10.0
CLOSE_LIMIT_S = 1.0
"""Time that requests under way have to end when the server is closed."""
_NO_DESCRIPTOR_PAUSE_S = 0.5
"""Pause where the process has no descriptor for another connection."""

log = logging.getLogger("tidemill.http")
_of_clients = logging.getLogger("tidemill.http.clients")
"""Where uvicorn warns of each request that can't be read. A client could fill a disk with these lines, so there are none unless
somebody lowers the level."""
_of_clients.setLevel(logging.ERROR)


@dataclass(kw_only=True)
class ConnectionLimits:
    """The limits, and the connections they are about. ``waiting``: those without a request under way, longest first."""

    answer_limit_s: float
    most: int = MOST_CONNECTIONS
    head_limit_s: float = HEAD_LIMIT_S
    handshake_limit_s: float = HANDSHAKE_LIMIT_S
    close_limit_s: float = CLOSE_LIMIT_S
    open: set[object] = field(default_factory=set)
    waiting: dict[LimitedConnection, None] = field(default_factory=dict)
    handshakes: dict[asyncio.Task[None], None] = field(default_factory=dict)

    def make_room(self) -> bool:
        """Makes room for one more connection. False if all that are open are being answered."""
        if len(self.open) + len(self.handshakes) < self.most:
            return True
        if self.waiting:
            next(iter(self.waiting)).end()
        elif self.handshakes:
            oldest = next(iter(self.handshakes))
            self.handshakes.pop(oldest)
            oldest.cancel()
        else:
            return False
        return True


class LimitedServer(uvicorn.Server):
    """uvicorn's server, which accepts connections within the limits."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self.limits = limits
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers: list[asyncio.base_events.Server] = []
        for listening in sockets or []:
            listening.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listening)))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        under_way = [*self._accepting, *self.limits.handshakes]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        # Not uvicorn's own limit, which logs an error of what is in order: these clients get the answer that the instance closes.
        giving_up = asyncio.get_running_loop().call_later(self.limits.close_limit_s, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()

    def _give_up(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()
        self.force_exit = True  # what is left is not waited for

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as problem:
                log.warning(LogEvent("connection-refused", problem=problem))
                await asyncio.sleep(_NO_DESCRIPTOR_PAUSE_S)
                continue
            if not self.limits.make_room():
                _close(accepted)
                continue
            opening = asyncio.create_task(self._open(accepted))
            self.limits.handshakes[opening] = None
            opening.add_done_callback(partial(self._opened, accepted))
            await asyncio.sleep(0)  # accepting gives no way by itself while others wait to be accepted

    async def _open(self, accepted: socket.socket) -> None:
        tls = self.config.ssl
        limit_s = None if tls is None else self.limits.handshake_limit_s
        with contextlib.suppress(OSError):  # the client has gone, or speaks no TLS
            # asyncio sets it only where a socket names its protocol. Else the kernel holds an answer's body back until the client
            # has acknowledged its head: 40 ms for each request after a connection's first ones.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connection, accepted, ssl=tls, ssl_handshake_timeout=limit_s
            )

    def _opened(self, accepted: socket.socket, opening: asyncio.Task[None]) -> None:
        self.limits.handshakes.pop(opening, None)
        if opening.cancelled():
            _close(accepted)  # maybe before any transport had it

    def _connection(self) -> LimitedConnection:
        return LimitedConnection(self.config, self.server_state, {}, limits=self.limits)


def _close(accepted: socket.socket) -> None:
    """Takes what has come first: closed with bytes unread, a connection is reset instead of ended."""
    with contextlib.suppress(OSError):
        accepted.recv(MOST_HEAD_BYTES)
    accepted.close()


class LimitedConnection(H11Protocol):
    """One connection. Its time runs from one request to the next, and from a request to the end of its answer."""

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, app_state: dict[str, object], *, limits: ConnectionLimits
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.logger = _of_clients
        self._limits = limits
        self._under_way: RequestResponseCycle | None = None
        self._time_limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limits.open.add(self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._limits.open.discard(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._request() is not self._under_way:
            self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's sentence is text, not JSON
        """Answers bytes that aren't HTTP, as ``http_app`` writes its refusals."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()  # an answer is under way: another one can't come in its middle
            return
        body = b'{"error":"this can\'t be read as HTTP"}'
        headers = [
            ("content-type", "application/json; charset=utf-8"), ("content-length", str(len(body))),
            ("x-content-type-options", "nosniff"), ("connection", "close"),
        ]  # fmt: skip
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def end(self) -> None:
        """Closes the connection at once; unsent bytes are lost."""
        self._forget()
        self.transport.abort()

    def _request(self) -> RequestResponseCycle | None:
        return None if self.cycle is None or self.cycle.response_complete else self.cycle

    def _watch(self) -> None:
        """Restarts the time limit. It also applies while the connection is closed: a client may not read the rest."""
        self._forget()
        self._under_way = self._request()
        if self._under_way is None:
            self._limits.waiting[self] = None
        limit_s = self._limits.head_limit_s if self._under_way is None else self._limits.answer_limit_s
        self._time_limit = self.loop.call_later(limit_s, self.end)

    def _forget(self) -> None:
        self._limits.waiting.pop(self, None)
        if self._time_limit is not None:
            self._time_limit.cancel()
            self._time_limit = None
