"""Logins that kafka-python would log: at the level DEBUG it writes each request as a whole, the one with the password too."""

from __future__ import annotations

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslBytesRequest

from tidemill.config.secrets import HIDDEN


def keep_logins_unlogged() -> None:
    """From now on, in this process; to be called before a client of kafka-python is made."""
    for kind in (SaslAuthenticateRequest, SaslBytesRequest):
        kind.__repr__ = kind.__str__ = _without_its_bytes


def _without_its_bytes(request: object) -> str:
    return f"{type(request).__name__}{HIDDEN}"
