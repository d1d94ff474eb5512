"""Kafka's truststore and keystore settings, as librdkafka and as Python's ssl want certificates.

Decides what is handed on: a PEM file as its path, so that a renewed file is read by the next connection; PKCS#12 and
certificates within the settings as PEM text, for librdkafka, and as an SSLContext for the group's client. JKS is refused with
the command that converts it. Nothing that is read here stays on disk or gets into a message.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

STORE_SETTINGS = frozenset(
    {
        "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates",
        "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.keystore.key",
        "ssl.keystore.certificate.chain", "ssl.key.password",
    }
)  # fmt: skip
_TYPES = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".pkcs12": "PKCS12"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """A store in PEM: a file's path, or the texts of certificates and private key."""

    path: str = ""
    certificates: str = ""
    key: str = field(default="", repr=False)


def data_store_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings for the stores. ConfigError for one that can't be read."""
    trusted, own = _trusted(kafka), _own(kafka)
    settings: dict[str, str] = {}
    if trusted is not None:
        settings |= {"ssl.ca.location": trusted.path} if trusted.path else {"ssl.ca.pem": trusted.certificates}
    if own is not None and own.path:
        settings |= {"ssl.certificate.location": own.path, "ssl.key.location": own.path}
    elif own is not None:
        settings |= {"ssl.certificate.pem": own.certificates, "ssl.key.pem": own.key}
    if "ssl.key.password" in kafka:
        settings["ssl.key.password"] = kafka["ssl.key.password"]
    return settings


def group_store_settings(kafka: Mapping[str, str], *, checks_host: bool) -> dict[str, object]:
    """kafka-python's settings for the stores: files as they are, else a context made of all. ConfigError as above."""
    trusted, own = _trusted(kafka), _own(kafka)
    if all(store is None or store.path for store in (trusted, own)):
        settings: dict[str, object] = {} if trusted is None else {"ssl_cafile": trusted.path}
        settings |= {} if own is None else {"ssl_certfile": own.path, "ssl_keyfile": own.path}
        return settings | ({"ssl_password": kafka["ssl.key.password"]} if "ssl.key.password" in kafka else {})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = checks_host
    try:
        if trusted is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile=trusted.path or None, cadata=trusted.certificates or None)
        if own is not None:
            _load_own(context, own, kafka.get("ssl.key.password", ""))
    except (ssl.SSLError, OSError) as problem:
        raise ConfigError(
            f"the certificates of kafka.ssl.* can't be used: {problem.strerror or problem}; expected PEM, a private key that "
            "fits its certificate, and kafka.ssl.key.password if the key is encrypted"
        ) from None
    return {"ssl_context": context}


def _load_own(context: ssl.SSLContext, own: _Store, password: str) -> None:
    """Python's ssl takes a private key from a file only: one that its owner alone can read, for this moment."""
    # An encrypted key without a password would have OpenSSL ask for one on the terminal, and wait without a limit.
    if own.path:
        context.load_cert_chain(own.path, password=password)
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-key-") as folder:
        path = os.path.join(folder, "own.pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(own.key + "\n" + own.certificates)
        context.load_cert_chain(path, password=password)


def _trusted(kafka: Mapping[str, str]) -> _Store | None:
    inside, location = kafka.get("ssl.truststore.certificates", ""), kafka.get("ssl.truststore.location", "")
    if inside and location:
        raise ConfigError("kafka.ssl.truststore.certificates and kafka.ssl.truststore.location are both given: leave one out")
    if inside:
        return _Store(certificates=inside)
    if not location:
        return None
    if _is_pem("truststore", location, kafka):
        return _Store(path=location)
    _, certificate, others = _pkcs12("truststore", location, kafka)
    found = [*([certificate] if certificate else []), *others]
    if not found:
        raise ConfigError(f"kafka.ssl.truststore.location={location} has no certificates")
    return _Store(certificates="".join(map(_pem_of, found)))


def _own(kafka: Mapping[str, str]) -> _Store | None:
    key, chain = kafka.get("ssl.keystore.key", ""), kafka.get("ssl.keystore.certificate.chain", "")
    location = kafka.get("ssl.keystore.location", "")
    if bool(key) != bool(chain) or (key and location):
        raise ConfigError(
            "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain belong together, and take the place of "
            "kafka.ssl.keystore.location: give the two, or the one"
        )
    if key:
        return _Store(certificates=chain, key=key)
    if not location:
        return None
    if _is_pem("keystore", location, kafka):
        return _Store(path=location)
    private, certificate, others = _pkcs12("keystore", location, kafka)
    if private is None or certificate is None:
        raise ConfigError(f"kafka.ssl.keystore.location={location} has no private key with its certificate")
    if any(other.subject != other.issuer for other in others):
        raise ConfigError(
            f"kafka.ssl.keystore.location={location} has intermediate certificates, which librdkafka does not send from PKCS#12: "
            f"convert it by 'openssl pkcs12 -nodes -in {location} -out KEYSTORE.pem' and name that file, with "
            "kafka.ssl.keystore.type=PEM"
        )
    return _Store(certificates=_pem_of(certificate), key=_key_pem(private))


def _is_pem(kind: str, location: str, kafka: Mapping[str, str]) -> bool:
    """True for PEM, False for PKCS#12; ConfigError for any other type, and for a file that can't be read."""
    suffix = Path(location).suffix.lower()
    store_type = kafka.get(f"ssl.{kind}.type", _TYPES.get(suffix, "PEM")).upper()
    password = f"ssl.{kind}.password"
    if store_type not in ("PEM", "PKCS12"):
        raise ConfigError(
            f"kafka.ssl.{kind}.location={location} is of type {store_type}, which Tidemill's Kafka clients don't read; convert "
            f"it by 'keytool -importkeystore -srckeystore {location} -destkeystore STORE.p12 -deststoretype PKCS12' and name "
            "that file"
        )
    if store_type == "PEM" and password in kafka:
        raise ConfigError(
            f"kafka.{password} has no meaning for a PEM file: leave it out "
            "(kafka.ssl.key.password opens an encrypted private key)"
        )
    return store_type == "PEM"


def _pkcs12(
    kind: str, location: str, kafka: Mapping[str, str]
) -> tuple[PrivateKeyTypes | None, Certificate | None, list[Certificate]]:
    """Private key, its certificate and the other certificates of a PKCS#12 file."""
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # in tidemill[tls]
    except ImportError:
        raise ConfigError(
            f"kafka.ssl.{kind}.location={location} is PKCS#12, which needs the package cryptography: install tidemill[tls], or "
            f"convert the file by 'openssl pkcs12 -nodes -in {location} -out STORE.pem' and name that one"
        ) from None
    password = kafka.get(f"ssl.{kind}.password", "")
    try:
        found = load_pkcs12(Path(location).read_bytes(), password.encode() if password else None)
    except OSError as problem:
        raise ConfigError(f"kafka.ssl.{kind}.location={location} can't be read: {problem.strerror}") from None
    except ValueError:
        raise ConfigError(
            f"kafka.ssl.{kind}.location={location} can't be opened: it is not PKCS#12, or kafka.ssl.{kind}.password (hidden) is "
            "not its password"
        ) from None
    own = found.cert.certificate if found.cert else None
    return found.key, own, [other.certificate for other in found.additional_certs]


def _pem_of(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return str(certificate.public_bytes(Encoding.PEM).decode())


def _key_pem(key: PrivateKeyTypes) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
