"""Brokers that let nobody in without a login or a certificate; each is started once, by the first test that asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.security.certificates import Authority
from tests.security.secured import PASSWORD
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.embedded.broker_security import BrokerSecurity


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def with_logins(authority: Authority) -> Iterator[EmbeddedBroker]:
    """TLS, every mechanism, ACLs."""
    security = BrokerSecurity(
        protocol="SASL_SSL",
        mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        users={"app": PASSWORD, "admin": "marked-secret-of-admin"},
        keystore=authority.issue("broker", "127.0.0.1").pem(),
        acls=True,
        super_users=("User:admin",),
    )
    with EmbeddedBroker(environ=os.environ, security=security, start_limit_s=240) as broker:
        yield broker


@pytest.fixture(scope="session")
def with_certificates(authority: Authority) -> Iterator[EmbeddedBroker]:
    """TLS on both sides, ACLs."""
    security = BrokerSecurity(
        protocol="SSL",
        keystore=authority.issue("broker", "127.0.0.1").pem(),
        truststore=authority.pem,
        client_certificates="required",
        acls=True,
    )
    with EmbeddedBroker(environ=os.environ, security=security, start_limit_s=240) as broker:
        yield broker


@pytest.fixture(scope="session")
def with_passwords_only() -> Iterator[EmbeddedBroker]:
    security = BrokerSecurity(protocol="SASL_PLAINTEXT", mechanisms=("SCRAM-SHA-256",), users={"app": PASSWORD})
    with EmbeddedBroker(environ=os.environ, security=security, start_limit_s=240) as broker:
        yield broker


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Says on the terminal what a test has shown."""

    def say(what: str) -> None:
        with capsys.disabled():
            print(f"\n  verified: {what}")

    return say
