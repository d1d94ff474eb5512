"""A missing right is one sentence: what, on what, to whom, and the command that grants it."""

from __future__ import annotations

import contextlib
import shlex
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation

from tests.security.certificates import Authority, Certified
from tidemill.errors import StopError
from tidemill.kafka.security import access_errors
from tidemill.kafka.security.access_errors import keeps_out, no_entry
from tidemill.kafka.security.rights import (
    CLUSTER,
    Operation,
    Resource,
    Right,
    allowed_on,
    lacking,
    lacks,
    missing_right,
    principal_of,
)

ALICE = {"bootstrap.servers": "kafka:9093", "security.protocol": "SASL_SSL", "sasl.username": "alice", "sasl.password": "hush"}
UNVERIFIED = KafkaError(KafkaError._SSL, "SSL handshake failed: certificate verify failed")


def _said(*rights: Right, settings: dict[str, str] = ALICE) -> str:
    error = missing_right("writing", rights, settings)
    assert isinstance(error, StopError)
    assert "hush" not in str(error)
    return str(error)


def test_a_right_is_named_with_who_lacks_it_and_the_command_that_grants_it() -> None:
    said = _said(Right.of(Resource.TOPIC, "orders", Operation.WRITE))
    assert said == (
        "writing: User:alice lacks Write on topic 'orders'. Grant it, as a user who may: kafka-acls --bootstrap-server "
        "kafka:9093 --add --allow-principal User:alice --operation Write --topic orders"
    )


def test_where_it_is_not_known_which_right_is_missing_none_of_them_is_said_to_be() -> None:
    suspects = [Right.of(Resource.TOPIC, topic, Operation.WRITE) for topic in ("a", "b")]
    unanswered = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "nonsense"}
    assert lacking(suspects, unanswered) == []
    error = missing_right("writing", suspects, ALICE, some_of_them=True)
    assert str(error).startswith(
        "writing: User:alice lacks one or more of these rights (the brokers have not said which): Write on topic 'a', Write on "
        "topic 'b'. Grant what is missing (kafka-acls --list shows what is there), as a user who may: kafka-acls "
    )
    assert missing_right("writing", suspects[:1], ALICE, some_of_them=True).args == (_said(suspects[0]),)


def test_topics_that_need_the_same_share_a_command() -> None:
    rights = [Right.of(Resource.TOPIC, topic, op) for topic in ("a", "b") for op in (Operation.READ, Operation.WRITE)]
    said = _said(*rights, Right.of(Resource.TOPIC, "c", Operation.READ))
    assert said.count("kafka-acls") == 2
    assert "--operation Read --operation Write --topic a --topic b; " in said
    assert said.endswith("--operation Read --topic c")


@pytest.mark.parametrize(
    ("right", "told", "granted"),
    [
        (Right.of(Resource.GROUP, "app", Operation.READ), "Read on group 'app'", "--operation Read --group app"),
        (
            Right.of(Resource.TRANSACTIONAL_ID, "app-11111111-2222-3333-4444-555555555555-1", Operation.WRITE),
            "Write on transactional id 'app-11111111-2222-3333-4444-555555555555-1'",
            "--operation Write --transactional-id app- --resource-pattern-type prefixed",
        ),
        (
            Right.of(Resource.CLUSTER, CLUSTER, Operation.IDEMPOTENT_WRITE),
            "IdempotentWrite on the cluster",
            "--operation IdempotentWrite --cluster",
        ),
    ],
)
def test_every_kind_of_resource_has_its_option(right: Right, told: str, granted: str) -> None:
    said = _said(right)
    assert told in said
    assert said.endswith(granted)


def test_a_name_with_spaces_is_quoted_for_the_shell() -> None:
    said = _said(Right.of(Resource.GROUP, "g", Operation.READ), settings={**ALICE, "sasl.username": "al ice; rm"})
    command = shlex.split(said.partition("kafka-acls ")[2])
    assert command[command.index("--allow-principal") + 1] == "User:al ice; rm"


def test_the_principal_is_the_login_s_or_the_certificate_s(tmp_path: Path) -> None:
    pem = str(Authority(tmp_path).issue("app one").pem())
    assert principal_of({}) == "User:ANONYMOUS"
    assert principal_of({"security_protocol": "SASL_SSL", "sasl_plain_username": "bob"}) == "User:bob"
    assert principal_of({"security.protocol": "SSL"}) == "User:ANONYMOUS"
    assert principal_of({"security.protocol": "SSL", "ssl.certificate.location": pem}) == "User:CN=app one"
    assert principal_of({"security_protocol": "SSL", "ssl_certfile": pem}) == "User:CN=app one"
    assert principal_of({"security.protocol": "SSL", "ssl.certificate.location": "/gone"}) is None


def test_what_brokers_allow_is_told_in_the_spelling_of_the_operations() -> None:
    topic: Any = SimpleNamespace(authorized_operations=[getattr(AclOperation, one.name) for one in Operation])
    assert allowed_on(topic) == {one.value for one in Operation}
    assert allowed_on(SimpleNamespace(authorized_operations=None)) is None  # type: ignore[arg-type]


def test_only_missing_rights_are_told_as_such() -> None:
    assert lacks(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)) is Resource.TOPIC
    assert lacks(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)) is None


@contextlib.contextmanager
def _server(certified: Certified) -> Iterator[str]:
    """The address of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certified.pem())
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    with contextlib.suppress(OSError), accepted, context.wrap_socket(accepted, server_side=True):
                        pass

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_a_certificate_for_another_host_is_told_from_one_of_nobody_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_errors, "_LOOK_LIMIT_S", 60.0)
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    with _server(authority.issue("elsewhere", "elsewhere.example")) as servers:
        named = no_entry(servers, UNVERIFIED, {**ALICE, "ssl.ca.location": str(authority.pem)})
        unknown = no_entry(servers, UNVERIFIED, {**ALICE, "ssl.ca.location": str(stranger.pem)})
    assert "certificate is not for the host" in str(named)
    assert "signed by no one who is trusted here" in str(unknown)


@pytest.mark.parametrize(("later_days", "found"), [(-60, "has expired"), (60, "is not valid yet")])
def test_a_certificate_that_is_trusted_at_another_time_only_is_said_to_be_so(
    later_days: int, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_errors, "_LOOK_LIMIT_S", 60.0)
    authority = Authority(tmp_path)
    with _server(authority.issue("here", "127.0.0.1", later_days=later_days)) as servers:
        named = no_entry(servers, UNVERIFIED, {**ALICE, "ssl.ca.location": str(authority.pem)})
    assert str(named).startswith(f"the brokers' certificate {found} ({servers}): ")


def test_brokers_that_refuse_a_certificate_of_the_client_that_has_expired_are_said_to_do_so() -> None:
    said = KafkaError(KafkaError._TRANSPORT, "ssl/tls alert certificate expired: SSL alert number 45")
    assert keeps_out(said)
    assert str(no_entry("h:1", said, ALICE)).startswith("the brokers don't accept this client's certificate (h:1): ")


@pytest.mark.parametrize(
    ("code", "said", "is_kept_out"),
    [
        (KafkaError._SSL, "SSL handshake failed", True),
        (KafkaError._AUTHENTICATION, "SASL authentication error", True),
        (KafkaError._TRANSPORT, "ssl://h:1: Disconnected: ssl/tls alert certificate required: SSL alert number 116", True),
        (KafkaError._TRANSPORT, "ssl://h:1: Disconnected: tlsv13 alert certificate required", True),
        (KafkaError._TRANSPORT, "tlsv1 alert unknown ca: SSL alert number 48", True),
        (KafkaError._TRANSPORT, "h:1: Connect to ipv4#127.0.0.1:1 failed: Connection refused", False),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", False),
    ],
)
def test_only_what_no_waiting_mends_counts_as_being_kept_out(code: int, said: str, is_kept_out: bool) -> None:
    assert keeps_out(KafkaError(code, said)) is is_kept_out


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("sasl_ssl://h:1/bootstrap: SASL authentication error: Authentication failed during authentication due to invalid "
         "credentials with SASL mechanism SCRAM-SHA-256 (after 5ms in state AUTH_REQ)", "refuse the login of user 'alice'"),
        ("ssl://h:1/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate "
         "could not be verified, verify that ssl.ca.location is correctly configured", "signed by no one who is trusted here"),
        ("ssl://h:1/1: SSL handshake failed: tlsv13 alert certificate required", "don't accept this client's certificate"),
        ("sasl_plaintext://h:1/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Request not valid in current SASL "
         "state: broker's supported mechanisms:  (after 3ms in state AUTH_HANDSHAKE)", "port takes no SASL login (kafka:9093)"),
        ("something new", "don't let this client in"),
    ],
)  # fmt: skip
def test_every_reason_to_be_kept_out_has_its_sentence(said: str, means: str) -> None:
    error = no_entry("kafka:9093", KafkaError(KafkaError._SSL, said), ALICE)
    assert means in str(error)
    assert "kafka:9093" in str(error)
    assert "hush" not in str(error)
