"""TLS of an instance's HTTP server, and of what it asks other instances: both with the same certificate.

Decides that instances check each other as they check anyone: by the certificates of the truststore and by the host's name, and
that clients must have a certificate of their own where ``tidemill.http.ssl.client.auth`` is required.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemill.config.slices import HttpConfig
from tidemill.config.values import require_token
from tidemill.errors import ConfigError
from tidemill.kafka.security.config_providers import resolved


@dataclass(frozen=True, slots=True)
class HttpTls:
    """``required``: everyone needs a certificate that the truststore's sign."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    required: bool


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """Credentials of instances and tools for each other: a token, certificates, both or neither."""

    token: str = field(default="", repr=False)
    tls: HttpTls | None = None

    @property
    def client(self) -> ssl.SSLContext | None:
        return None if self.tls is None else self.tls.client


def http_access(config: HttpConfig) -> HttpAccess:
    """Token and certificates of the settings, references looked up. ConfigError if one leads nowhere or a file can't be used."""
    token = require_token(resolved("tidemill.http.token", config.http_token)) if config.http_token else ""
    password = resolved("tidemill.http.ssl.key.password", config.http_key_password)
    required = config.http_client_auth == "required"
    return HttpAccess(token, http_tls(config.http_keystore, config.http_truststore, password, required=required))


def http_tls(keystore: str, truststore: str, password: str, *, required: bool) -> HttpTls | None:
    """TLS from the files of the settings; None without a keystore. ConfigError if one can't be used."""
    if not keystore:
        return None
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with _named("tidemill.http.ssl.keystore.location", keystore):
            context.load_cert_chain(keystore, password=password)  # never None: OpenSSL would ask on the terminal
        if truststore:
            with _named("tidemill.http.ssl.truststore.location", truststore):
                context.load_verify_locations(truststore)
    if not truststore:
        client.load_default_certs()
    if required:
        server.verify_mode = ssl.CERT_REQUIRED
    return HttpTls(server, client, required)


@contextlib.contextmanager
def _named(setting: str, path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as problem:
        raise ConfigError(
            f"{setting}={path} can't be used: {problem.strerror or problem}; expected a PEM file of certificates, in a keystore "
            "with their private key, which tidemill.http.ssl.key.password opens if it is encrypted"
        ) from None
