"""Certificates for tests: an authority, and what it signs, as PEM and PKCS#12 files."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM
_NO_PASSWORD = serialization.NoEncryption()


@dataclass(frozen=True)
class Certified:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    folder: Path
    name: str

    def pem(self, password: str = "") -> Path:
        """The key, encrypted if there is a password, and the certificate in one file."""
        hidden = serialization.BestAvailableEncryption(password.encode()) if password else _NO_PASSWORD
        path = self.folder / f"{self.name}{'-locked' if password else ''}.pem"
        key = self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, hidden)
        path.write_bytes(key + self.certificate.public_bytes(_PEM))
        return path

    def pkcs12(self, password: str) -> Path:
        path = self.folder / f"{self.name}.p12"
        hidden = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(self.name.encode(), self.key, self.certificate, None, hidden))
        return path


_SIGNS = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
    key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip
"""What an authority's certificate must say since Python 3.13 looks at it."""


class Authority:
    """Signs certificates; ``pem`` and ``pkcs12`` are truststores with its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder, self.name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign(name, self._key, None, is_authority=True)

    @property
    def pem(self) -> Path:
        path = self.folder / f"{self.name}.pem"
        path.write_bytes(self._certificate.public_bytes(_PEM))
        return path

    def pkcs12(self, password: str) -> Path:
        path = self.folder / f"{self.name}.p12"
        hidden = serialization.BestAvailableEncryption(password.encode())
        entry = pkcs12.PKCS12Certificate(self._certificate, b"authority")
        path.write_bytes(pkcs12.serialize_java_truststore([entry], hidden))
        return path

    def issue(self, name: str, *hosts: str, later_days: int = 0) -> Certified:
        """For a server under these names and addresses, or, without any, for a client; valid for 30 days, from now on or from so
        many days later."""
        key = ec.generate_private_key(ec.SECP256R1())
        return Certified(key, self._sign(name, key, hosts, later_days=later_days), self.folder, name)

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        hosts: tuple[str, ...] | None,
        *,
        is_authority: bool = False,
        later_days: int = 0,
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = subject if is_authority else self._certificate.subject
        now = datetime.datetime.now(datetime.timezone.utc) + later_days * _DAY
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 30 * _DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if is_authority:
            builder = builder.add_extension(_SIGNS, critical=True)
        if hosts:
            names = [
                x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())
