"""The settings of a secured embedded broker, and combinations that make no sense."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidemill.cli.broker import app
from tidemill.embedded.broker_plan import BrokerPlan, server_properties
from tidemill.embedded.broker_security import BrokerSecurity
from tidemill.embedded.jars import Bundle
from tidemill.embedded.java import Java
from tidemill.errors import ConfigError

PEM = Path("/own.pem")
USERS = {"alice": "marked-secret-of-alice"}


def _properties(security: BrokerSecurity | None) -> dict[str, str]:
    plan = BrokerPlan(
        java=Java(path=Path("java"), major=21), bundle=Bundle(name="broker", folder=Path("jars")), data=Path("/data"), port=1,
        controller_port=2, security=security, internal_port=3,
    )  # fmt: skip
    return dict(line.split("=", 1) for line in server_properties(plan).splitlines())


def test_a_broker_without_security_is_as_it_was() -> None:
    settings = _properties(None)
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    assert not [name for name in settings if "ssl" in name or "sasl" in name or "authorizer" in name]


def test_clients_get_a_listener_of_their_own_and_the_broker_keeps_one() -> None:
    security = BrokerSecurity(
        protocol="SASL_SSL", mechanisms=("PLAIN", "SCRAM-SHA-512"), users=USERS, keystore=PEM, truststore=PEM,
        client_certificates="requested", acls=True, super_users=("User:admin",),
    )  # fmt: skip
    settings = _properties(security)
    assert settings["listeners"] == "CLIENT://127.0.0.1:1,INTERNAL://127.0.0.1:3,CONTROLLER://127.0.0.1:2"
    assert settings["listener.security.protocol.map"] == "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert settings["listener.name.client.ssl.client.auth"] == "requested"
    assert settings["listener.name.client.sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-512"
    assert 'user_alice="marked-secret-of-alice"' in settings["listener.name.client.plain.sasl.jaas.config"]
    assert "marked-secret" not in settings["listener.name.client.scram-sha-512.sasl.jaas.config"]
    assert settings["super.users"] == "User:ANONYMOUS;User:admin"
    assert "marked-secret" not in repr(security)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"protocol": "TLS"}, "protocol is 'TLS', expected PLAINTEXT or SSL"),
        ({"protocol": "SSL"}, "needs a key and certificates"),
        ({"protocol": "SASL_PLAINTEXT"}, "has mechanisms and users: say so"),
        ({"protocol": "SSL", "keystore": PEM, "users": USERS}, "has no mechanisms and users"),
        ({"protocol": "SASL_PLAINTEXT", "mechanisms": ("PLAIN",), "users": USERS, "keystore": PEM}, "certificates mean nothing"),
        ({"protocol": "SSL", "keystore": PEM, "client_certificates": "required"}, "needs those that sign them"),
        ({"protocol": "SSL", "keystore": PEM, "acls": True}, "ACLs are about users"),
        ({"protocol": "SASL_PLAINTEXT", "mechanisms": ("GSSAPI",), "users": USERS}, "mechanism is 'GSSAPI'"),
        ({"protocol": "SASL_PLAINTEXT", "mechanisms": ("PLAIN",), "users": {"a": 'marked-secret"'}}, "(hidden) can't be"),
        ({"protocol": "SASL_PLAINTEXT", "mechanisms": ("PLAIN",), "users": {"a b": "x"}}, "user 'a b'"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerSecurity(**given)
    assert said in str(caught.value)
    assert "marked-secret" not in str(caught.value)


def test_the_command_refuses_them_too_and_reads_users_from_a_file(tmp_path: Path) -> None:
    users = tmp_path / "users.properties"
    users.write_text("alice=marked secret\n")
    started = CliRunner().invoke(app, ["start", "--protocol", "SASL_PLAINTEXT", "--mechanism", "PLAIN", "--users", str(users)])
    assert isinstance(started.exception, ConfigError)
    assert "user 'alice' or its password (hidden)" in str(started.exception)


def test_settings_with_passwords_are_for_the_owner_s_eyes(tmp_path: Path) -> None:
    from tidemill.embedded.broker_plan import _write_for_owner

    path = tmp_path / "server.properties"
    path.write_text("of before")
    path.chmod(0o644)
    _write_for_owner(path, "password")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
