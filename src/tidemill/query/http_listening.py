"""The socket that an instance listens on for reads, opened before the server starts: its address is part of each join.

Decides nothing: an address that can't be had is refused. Imports nothing of the server, which instances without one do without.
"""

from __future__ import annotations

import socket

from tidemill.control.sockets import family_of
from tidemill.errors import EnvironmentProblem


def listen(address: str) -> socket.socket:
    """A listening socket for ``host:port``. EnvironmentProblem if the address can't be had."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        return socket.create_server((host, int(port)), family=family_of(host), backlog=128)
    except (OSError, OverflowError) as error:
        raise EnvironmentProblem(
            f"can't listen on {address} for reads (tidemill.http.listen): {error}; choose an address of this machine that is free"
        ) from None


def address_of(listening: socket.socket) -> str:
    """host:port as ``application.server`` has it."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
