"""Security of an embedded broker: TLS, SASL and ACLs, as Kafka's own settings.

Decides the listener that clients get, its users and its authorizer. A secured broker also has a listener without any of that,
for itself and for who sets it up (``BrokerPlan.internal_servers``); it is on the loopback interface like everything else, and
every client that can reach it is a super user. That is for tests and for trying things out, not for a broker that others rely on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.errors import ConfigError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CERTIFICATES = ("none", "requested", "required")
_PASSWORD = re.compile(r"[!#-\[\]-~]{1,200}")
"""Printable ASCII without the quotation mark and the backslash, which would need escapes in two layers."""
_SECURITY = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """``keystore``: a PEM file with the broker's private key and certificates; ``truststore``: one with those that sign clients'.

    ``users``: name -> password, for every mechanism. ``acls``: operations without a grant are refused, to all but ``super_users``
    (``User:admin``). ConfigError if these don't fit together.
    """

    protocol: str = "SASL_SSL"
    mechanisms: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    keystore: Path | None = None
    truststore: Path | None = None
    client_certificates: str = "none"
    acls: bool = False
    super_users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for found, known, what in (
            (self.protocol, _PROTOCOLS, "protocol"),
            (self.client_certificates, _CERTIFICATES, "client certificates"),
            *((mechanism, _MECHANISMS, "mechanism") for mechanism in self.mechanisms),
        ):
            if found not in known:
                raise ConfigError(f"the broker's {what} is {found!r}, expected {' or '.join(known)}")
        for rule in (self._tls_fits, self._sasl_fits, self._acls_fit):
            rule()

    @property
    def is_tls(self) -> bool:
        """True if clients connect by TLS."""
        return self.protocol.endswith("SSL")

    @property
    def is_sasl(self) -> bool:
        """True if clients log in by SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def scram_mechanisms(self) -> tuple[str, ...]:
        """The SCRAM ones of ``mechanisms``, whose users the broker stores itself."""
        return tuple(mechanism for mechanism in self.mechanisms if mechanism.startswith("SCRAM-"))

    def _tls_fits(self) -> None:
        if self.is_tls and self.keystore is None:
            raise ConfigError(f"a broker with {self.protocol} needs a key and certificates: name a PEM file that has both")
        if not self.is_tls and (self.keystore or self.truststore or self.client_certificates != "none"):
            raise ConfigError(f"certificates mean nothing with {self.protocol}, expected SSL or SASL_SSL")
        if self.client_certificates != "none" and self.truststore is None:
            raise ConfigError("a broker that asks for clients' certificates needs those that sign them: name a PEM file")

    def _sasl_fits(self) -> None:
        if self.is_sasl != bool(self.mechanisms) or self.is_sasl != bool(self.users):
            raise ConfigError(f"a broker with {self.protocol} has {'' if self.is_sasl else 'no '}mechanisms and users: say so")
        for name, password in self.users.items():
            if not re.fullmatch(r"[\w.@-]{1,100}", name, re.ASCII) or not _PASSWORD.fullmatch(password):
                raise ConfigError(
                    f"user {name!r} or its password (hidden) can't be given to the embedded broker: expected a name of letters, "
                    "digits, '_', '.', '@', '-' and a password of printable characters without spaces, '\"' and '\\'"
                )

    def _acls_fit(self) -> None:
        if self.acls and not (self.is_sasl or self.client_certificates == "required"):
            raise ConfigError("ACLs are about users: they need SASL, or certificates that clients are required to have")


def listener_settings(
    security: BrokerSecurity, *, host: str, port: int, internal_port: int, controller_port: int
) -> dict[str, str]:
    """The settings of a secured broker that replace those of a plain one."""
    own = "listener.name.client."
    settings = {
        "listeners": f"CLIENT://{host}:{port},INTERNAL://{host}:{internal_port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"CLIENT://{host}:{port},INTERNAL://{host}:{internal_port}",
        "listener.security.protocol.map": f"CLIENT:{security.protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }
    if security.is_tls:
        settings |= {own + "ssl.keystore.type": "PEM", own + "ssl.keystore.location": str(security.keystore)}
        settings[own + "ssl.client.auth"] = security.client_certificates
        if security.truststore is not None:
            settings |= {own + "ssl.truststore.type": "PEM", own + "ssl.truststore.location": str(security.truststore)}
    if security.is_sasl:
        settings[own + "sasl.enabled.mechanisms"] = ",".join(security.mechanisms)
        for mechanism in security.mechanisms:
            settings[f"{own}{mechanism.lower()}.sasl.jaas.config"] = _jaas(security, mechanism)
    if security.acls:
        settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        settings["super.users"] = ";".join(("User:ANONYMOUS", *security.super_users))  # on the internal listener only
    return settings


def _jaas(security: BrokerSecurity, mechanism: str) -> str:
    if mechanism != "PLAIN":
        return f"{_SECURITY}.scram.ScramLoginModule required;"
    users = " ".join(f'user_{name}="{password}"' for name, password in security.users.items())
    return f"{_SECURITY}.plain.PlainLoginModule required {users};"
