"""What answers at a port that is said to be a broker's and speaks another protocol: TLS, an HTTP server, or whatever it is.

The client says nothing of these: it sees a connection that ends, or an answer that never comes. Decides by one look at each
of the first servers; a port that is closed, or silent, is the client's own to tell.
"""

from __future__ import annotations

import socket
import struct

from tidemill.printable import printable

_MOST_SERVERS = 3
_LIMIT_S = 1.0
_NUMBER = b"look"
_REQUEST = struct.pack(">hh4sh", 18, 0, _NUMBER, -1)
"""ApiVersions in the version that every broker takes."""
_TLS_ALERT = b"\x15\x03"


def foreign_answers(servers: str) -> list[str]:
    """A sentence for each server that answers in another protocol than Kafka's without TLS."""
    found = ((server, _first_answer(server)) for server in servers.split(",")[:_MOST_SERVERS])
    return [sentence for server, answer in found if (sentence := _meaning(server.strip(), answer))]


def _meaning(server: str, answer: bytes) -> str:
    if answer.startswith(_TLS_ALERT):
        return f"the port of {server} speaks TLS: set kafka.security.protocol to SSL or SASL_SSL"
    if _NUMBER.startswith(answer[4:8]):  # of a broker the size, then the request's number
        return ""
    first_line = answer.decode(errors="replace").strip().partition("\n")[0]
    return f"what answers at {server} is no Kafka broker: it says {printable(first_line)!r}. Correct bootstrap.servers"


def _first_answer(server: str) -> bytes:
    """The first bytes that come; nothing if the port is closed, or silent."""
    host, _, port = server.strip().rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _LIMIT_S) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            try:
                return connection.recv(100)
            except TimeoutError:
                connection.sendall(b"\r\n\r\n")  # servers of lines of text wait for the end of one
                return connection.recv(100)
    except (OSError, ValueError):
        return b""
