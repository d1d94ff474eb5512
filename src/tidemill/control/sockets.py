"""The sockets of the control channel: a Unix socket where driver and workers share a machine, TCP where they don't.

Decides addresses, limits and the greeting, in which both sides prove that they have the session's key (HMAC challenges; the
key itself never travels here). The messages after that are ``channel``'s, and travel in plain text: batch requests, offsets,
and on executors what reads of stores ask and find.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Protocol

from tidemill.errors import EnvironmentProblem
from tidemill.kept_folder import kept_folder, remove_kept_folder

_BACKLOG = 64
_CONNECT_LIMIT_S = 10.0
_GREETING_LIMIT_S = 60.0
"""How long a worker waits for its driver, which may be slow while it starts others."""
_LOST_AFTER_S = 15
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": _LOST_AFTER_S * 1000}
"""A lost machine is noticed after 15 s: by its silence (keep-alive) or, while something is on its way to it, by this not arriving
(user time-out). The kernel then looks for no other sign of life, and would go on sending for a quarter of an hour."""
_TCP = "tcp:"


def is_elsewhere(address: str) -> bool:
    """True for the address of a driver whose workers are on executors."""
    return address.startswith(_TCP)


def family_of(host: str) -> socket.AddressFamily:
    """The address family of a socket that listens on ``host``; the default of ``socket.create_server`` is IPv4."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Listener(Protocol):
    @property
    def address(self) -> str:
        """The address, in the form that ``opened`` takes."""

    @property
    def socket(self) -> socket.socket: ...

    @property
    def is_local(self) -> bool:
        """True if file descriptors can be sent."""

    def close(self) -> None: ...


class LocalListener:
    """A Unix socket in a folder that only this user may enter. ``use``: what it is for, as errors say it."""

    is_local = True

    def __init__(self, name: str = "control", *, use: str = "the control channel", prefix: str = "tidemill-control-") -> None:
        self._folder = kept_folder(prefix)
        self.address = os.path.join(self._folder, name)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.bind(self.address)
        except OSError as problem:
            self.close()
            raise EnvironmentProblem(
                f"can't open {use} {self.address} ({problem}): a socket's path has about 100 characters at most; "
                "set TMPDIR to a folder with a shorter name that can be written"
            ) from problem
        self.socket.listen(_BACKLOG)

    def close(self) -> None:
        self.socket.close()
        remove_kept_folder(self._folder)


class TcpListener:
    """``listen`` is the address to bind (port 0: any), ``host`` what executors connect to. Those of IPv6 may have brackets,
    as Spark wants them."""

    is_local = False

    def __init__(self, listen: tuple[str, int], host: str) -> None:
        bound = listen[0].strip("[]")
        try:
            self.socket = socket.create_server((bound, listen[1]), family=family_of(bound), backlog=_BACKLOG)
        except (OSError, OverflowError) as problem:  # the latter for a port above 65535
            raise EnvironmentProblem(
                f"can't open the control channel on {listen[0]}:{listen[1]} ({problem}): tidemill.control.listen takes an "
                "address of this machine and a free port"
            ) from problem
        self.address = f"{_TCP}{host}:{self.socket.getsockname()[1]}"

    def close(self) -> None:
        self.socket.close()


def greet(connection: Connection, key: bytes) -> None:
    """The driver's side. AuthenticationError: a stranger; EOFError, OSError: one that says nothing, or not enough in time."""
    with ended_after(connection, _CONNECT_LIMIT_S, "greeted"):
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
    _tune(connection)


def opened(address: str, key: bytes) -> Connection:
    """The worker's side: a connection on which both have proved themselves. EOFError, OSError or AuthenticationError if there is
    none in time."""
    if is_elsewhere(address):
        host, _, port = address.removeprefix(_TCP).rpartition(":")
        link = socket.create_connection((host.strip("[]"), int(port)), _CONNECT_LIMIT_S)
    else:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(_CONNECT_LIMIT_S)
        link.connect(address)
    link.settimeout(None)
    connection = Connection(link.detach())
    with ended_after(connection, _GREETING_LIMIT_S, "greeted"):
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    _tune(connection)
    return connection


@contextlib.contextmanager
def ended_after(connection: Connection, limit_s: float, done: str) -> Iterator[None]:
    """TimeoutError after this time, and the end of the connection. What is read within has a limit as a whole: with one for each
    read, a byte now and then would hold the connection, and the thread that it has. ``done``: what the other end has not."""
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        with contextlib.suppress(OSError):  # the other side has left
            link.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    with socket.socket(fileno=os.dup(connection.fileno())) as link:
        timer.start()
        try:
            yield
        except (EOFError, OSError):
            if is_over.is_set():
                raise TimeoutError(f"the other end of the control channel has not {done} within {limit_s:g} s") from None
            raise
        finally:
            timer.cancel()
            timer.join()


def _tune(connection: Connection) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as link:
        if link.family is not socket.AF_UNIX:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):  # not everywhere
                    link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
