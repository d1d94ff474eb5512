"""Endpoints: where an instance answers queries (``application.server``), as a host and a port.

Decides what can be a host. Two rules, because members of other makes must be able to find themselves in the leader's answer:
``listed_host`` takes what Kafka Streams takes, as long as a name can be; ``host_of`` takes only what a resolver can be asked.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from tidemill.spellings import spelled

_FORM = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?\[?([0-9A-Za-z\-._%:]+?)\]?:([0-9]{1,5})\Z", re.ASCII)
_LABELS = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?\Z", re.ASCII)
LONGEST_NAME = 253
"""Characters of a host's name, as DNS has it."""
EXPECTED = "host:port, with a host name or an IP address and a port from 1 to 65535"


@spelled
class HostInfo(NamedTuple):
    """The host without the brackets of IPv6, and the port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def can_be_asked(self) -> bool:
        """True if this is an address at all: an IP address, or a name without empty or overlong parts, and a port."""
        if not 1 <= self.port <= 65_535 or len(self.host) > LONGEST_NAME:
            return False
        if ":" not in self.host:
            return _LABELS.match(self.host) is not None
        try:
            return ip_address(self.host).version == 6
        except ValueError:
            return False


def host_of(endpoint: str) -> HostInfo | None:
    """The host and port of ``application.server``; None if no one could be asked there."""
    host = listed_host(endpoint)
    return host if host is not None and host.can_be_asked else None


def listed_host(endpoint: str) -> HostInfo | None:
    """An endpoint for a leader's list of hosts; None if it is not of Kafka Streams' form, or longer than a name is."""
    match = _FORM.match(endpoint)
    if match is None or len(match[1]) > LONGEST_NAME or int(match[2]) > 65_535:
        return None
    return HostInfo(match[1], int(match[2]))
