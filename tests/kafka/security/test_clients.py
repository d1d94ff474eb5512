"""Java client settings reach both libraries alike, or are refused; what comes out is taken by the libraries themselves."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest

from tidemill.config.slices import ClientsConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError
from tidemill.kafka.group.client import GroupClient
from tidemill.kafka.security.clients import ClientRole, data_client_settings, group_client_settings, require_client_settings

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="hush";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required\n  username='alice' password=\"hu\\\"sh;\" ;"


def _config(settings: dict[str, object]) -> ClientsConfig:
    return StreamsConfig.read_slice(ClientsConfig, {"bootstrap.servers": "a:9092,b:9092", **settings})


def _data(settings: dict[str, object], role: ClientRole = ClientRole.ADMIN) -> dict[str, Any]:
    made = data_client_settings(_config(settings), role)
    assert made.pop("bootstrap.servers") == "a:9092,b:9092"
    assert made.pop("log_level") == 3
    return made


def _group(settings: dict[str, object]) -> dict[str, Any]:
    made = group_client_settings(_config(settings))
    assert made.pop("bootstrap_servers") == ["a:9092", "b:9092"]
    return made



@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("consumer.check.crcs", "maybe", "librdkafka can't use a value of consumer.check.crcs: Expected bool value"),
        ("consumer.fetch.max.bytes", -5, "value -5 is outside allowed range 0.."),
        ("consumer.fetch.min.bytes", 2**40, "is outside allowed range 1.."),
        ("producer.compression.type", "zip", 'Invalid value "zip" for configuration property'),
        ("producer.linger.ms", 10**9, "librdkafka can't use a value of producer.linger.ms: Configuration property"),
        ("kafka.reconnect.backoff.ms", -5, "librdkafka can't use a value of kafka.reconnect.backoff.ms: Configuration property"),
        ("admin.request.timeout.ms", 1, "value 1 is outside allowed range 10.."),
    ],
)
def test_a_value_that_librdkafka_refuses_is_an_error_before_anything_is_connected_to(name: str, value: object, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        require_client_settings(_config({name: value}))
    assert told in str(error.value)
    assert name in str(error.value)


@pytest.mark.parametrize("value", ["5s", "long", "5 ms", "0x10", "1e3", "nan", "-1", "5."])
def test_a_number_that_librdkafka_would_read_in_part_is_refused(value: str) -> None:
    """Of "5s" it takes 5."""
    with pytest.raises(ConfigError, match=rf"^producer\.linger\.ms is '{value}', expected a number of milliseconds"):
        require_client_settings(_config({"producer.linger.ms": value}))


def test_what_can_not_be_used_may_also_be_a_setting_of_all_clients() -> None:
    both = {"consumer.fetch.min.bytes": 5, "kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no/such.pem"}
    expected = r"a value of consumer\.fetch\.min\.bytes, kafka\.security\.protocol, kafka\.ssl\.truststore\.location: .*ssl"
    with pytest.raises(ConfigError, match=expected):
        require_client_settings(_config(both))


def test_values_of_the_roles_that_fit_are_taken() -> None:
    settings = {"consumer.fetch.min.bytes": 5, "producer.compression.type": "lz4", "admin.request.timeout.ms": 900}
    require_client_settings(_config({**settings, "producer.linger.ms": 0.5, "kafka.request.timeout.ms": 20_000}))


@pytest.mark.parametrize(
    ("settings", "data", "group"),
    [
        ({}, {}, {}),
        ({"client.id": "me"}, {"client.id": "me"}, {"client_id": "me"}),
        ({"kafka.security.protocol": "ssl"}, {"security.protocol": "SSL"}, {"security_protocol": "SSL"}),
        (
            {
                "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": PLAIN,
                "kafka.ssl.truststore.location": "/ca.pem", "kafka.ssl.truststore.type": "PEM",
            },
            {
                "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice",
                "sasl.password": "hush", "ssl.ca.location": "/ca.pem",
            },
            {
                "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "alice",
                "sasl_plain_password": "hush", "ssl_cafile": "/ca.pem",
            },
        ),
        (
            {"kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": SCRAM},
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": 'hu"sh;'},
            {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "alice", "sasl_plain_password": 'hu"sh;'},
        ),
        (
            {"kafka.ssl.keystore.location": "/me.pem", "kafka.ssl.key.password": "hush"},
            {
                "ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "hush",
            },
            {"ssl_certfile": "/me.pem", "ssl_keyfile": "/me.pem", "ssl_password": "hush"},
        ),
        (
            {"kafka.ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
            {"ssl_check_hostname": False},
        ),
        (
            {"kafka.ssl.endpoint.identification.algorithm": "HTTPS"},
            {"ssl.endpoint.identification.algorithm": "https"},
            {"ssl_check_hostname": True},
        ),
        (
            {"kafka.request.timeout.ms": "5000", "kafka.reconnect.backoff.max.ms": 700},
            {"socket.timeout.ms": 5000, "reconnect.backoff.max.ms": 700},
            {"request_timeout_ms": 5000, "reconnect_backoff_max_ms": 700},
        ),
    ],
)  # fmt: skip
def test_a_java_setting_reaches_both_clients(
    settings: dict[str, object], data: dict[str, Any], group: dict[str, Any]
) -> None:
    assert _data(settings) == data
    assert _group(settings) == group


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kafka.retry.backoff.ms": 1}, "can't be given to both of Tidemill's Kafka clients: say producer.retry.backoff.ms"),
        ({"kafka.interceptor.classes": "x"}, "can't be given to both of Tidemill's Kafka clients (librdkafka and kafka-python)"),
        ({"kafka.sasl.mechansim": "PLAIN"}, "did you mean kafka.sasl.mechanism?"),
        ({"kafka.bootstrap.servers": "x:1"}, "say bootstrap.servers, without a prefix"),
        ({"kafka.acks": "1"}, "every record waits for all replicas in sync"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol is 'TLS', expected PLAINTEXT or SSL"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "expected PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"kafka.request.timeout.ms": "5 s"}, "kafka.request.timeout.ms is '5 s', expected a whole number"),
        ({"kafka.ssl.endpoint.identification.algorithm": "ldaps"}, "expected https"),
        ({"kafka.security.protocol": "SASL_SSL"}, "needs kafka.sasl.mechanism too"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}, "needs kafka.sasl.jaas.config too"),
        ({"kafka.ssl.truststore.location": "/ca.jks"}, "don't read; convert it by 'keytool -importkeystore"),
        ({"kafka.ssl.keystore.location": "/me", "kafka.ssl.keystore.type": "jks"}, "of type JKS"),
        ({"kafka.ssl.keystore.location": "/nowhere.p12"}, "kafka.ssl.keystore.location=/nowhere.p12 can't be read: No such file"),
        (
            {"kafka.ssl.truststore.location": "/ca.pem", "kafka.ssl.truststore.password": "hush"},
            "has no meaning for a PEM file",
        ),
        ({"kafka.ssl.keystore.key": "hush"}, "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain belong together"),
        ({"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": SCRAM}, "expected PlainLoginModule required"),
        ({"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "hush"}, "expected PlainLoginModule required"),
        (
            {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": PLAIN.replace("password", "pass")},
            "has no password",
        ),
    ],
)  # fmt: skip
def test_what_can_not_reach_both_clients_is_refused_by_both(settings: dict[str, object], said: str) -> None:
    for make in (_data, _group):
        with pytest.raises(ConfigError) as caught:
            make(settings)
        assert said in str(caught.value)
        assert "hush" not in str(caught.value)


def test_a_role_s_settings_go_to_that_role_only_and_win() -> None:
    settings: dict[str, object] = {
        "kafka.request.timeout.ms": 9000, "producer.linger.ms": "0.5", "producer.buffer.memory": 33_554_432,
        "consumer.fetch.max.wait.ms": 10, "consumer.request.timeout.ms": 7000, "client.rack": "r1",
    }  # fmt: skip
    assert _data(settings, ClientRole.PRODUCER) == {
        "socket.timeout.ms": 9000, "linger.ms": "0.5", "queue.buffering.max.kbytes": 32_768,
    }  # fmt: skip
    assert _data(settings, ClientRole.CONSUMER) == {
        "socket.timeout.ms": 7000, "fetch.wait.max.ms": 10, "client.rack": "r1",
    }  # fmt: skip
    assert _data(settings, ClientRole.ADMIN) == {"socket.timeout.ms": 9000}


@pytest.mark.parametrize(
    ("role", "name", "said"),
    [
        (ClientRole.PRODUCER, "producer.acks", "every record waits for all replicas"),
        (ClientRole.PRODUCER, "producer.linger", "did you mean producer.linger.ms?"),
        (ClientRole.CONSUMER, "consumer.isolation.level", "always read read_committed"),
        (ClientRole.CONSUMER, "consumer.interceptor.classes", "can't be given to librdkafka"),
        (ClientRole.PRODUCER, "producer.batch.size", "producer.batch.size is 'x', expected a whole number"),
    ],
)
def test_a_role_s_setting_that_tidemill_controls_or_does_not_know_is_refused(
    role: ClientRole, name: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        _data({name: "x"}, role)
    assert said in str(caught.value)


def test_a_producer_s_requests_fit_into_its_transaction() -> None:
    assert _data({"kafka.request.timeout.ms": 30_000}, ClientRole.PRODUCER)["socket.timeout.ms"] == 10_000
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms=10001 is above transaction\.timeout\.ms=10000"):
        _data({"producer.delivery.timeout.ms": 10_001}, ClientRole.PRODUCER)


EVERYTHING: dict[str, object] = {
    "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.jaas.config": SCRAM,
    "kafka.ssl.endpoint.identification.algorithm": "https", "kafka.request.timeout.ms": 30_000,
    "kafka.reconnect.backoff.ms": 50, "kafka.reconnect.backoff.max.ms": 1000, "kafka.metadata.max.age.ms": 60_000,
    "kafka.connections.max.idle.ms": 60_000, "kafka.socket.connection.setup.timeout.ms": 5000,
    "consumer.fetch.min.bytes": 1, "consumer.fetch.max.bytes": 50_000_000, "consumer.fetch.max.wait.ms": 50,
    "consumer.max.partition.fetch.bytes": 1_000_000, "consumer.check.crcs": True, "consumer.request.timeout.ms": 9000,
    "producer.linger.ms": 5, "producer.batch.size": 100_000, "producer.compression.type": "lz4",
    "producer.buffer.memory": 1 << 25, "producer.max.request.size": 1_000_000, "producer.delivery.timeout.ms": 9000,
    "producer.request.timeout.ms": 8000, "producer.retry.backoff.ms": 2, "producer.retry.backoff.max.ms": 100,
    "admin.request.timeout.ms": 5000, "client.id": "me", "client.rack": "r1",
}  # fmt: skip


def test_both_libraries_take_what_comes_out() -> None:
    """Nothing is connected to: librdkafka checks names and values when a client is made."""
    config = _config({"bootstrap.servers": "127.0.0.1:1", **EVERYTHING})
    quiet = {"log_level": 0, "error_cb": lambda _: None}
    consumer = Consumer({**data_client_settings(config, ClientRole.CONSUMER), **quiet, "group.id": "g"})
    consumer.close()
    transactional = {"transactional.id": "t", "transaction.timeout.ms": config.transaction_timeout_ms}
    Producer({**data_client_settings(config, ClientRole.PRODUCER), **quiet, **transactional})
    AdminClient({**data_client_settings(config, ClientRole.ADMIN), **quiet})
    assert set(group_client_settings(config)) <= set(KafkaConnectionManager.DEFAULT_CONFIG)


def test_a_library_that_logs_its_settings_logs_no_password(caplog: pytest.LogCaptureFixture) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hush";'
    settings = {
        "application.id": "words", "bootstrap.servers": "127.0.0.1:1", "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": login,
    }  # fmt: skip
    group = group_client_settings(StreamsConfig.read_slice(ClientsConfig, settings))
    assert group["sasl_plain_password"] == "hush"
    with caplog.at_level(logging.DEBUG), pytest.raises(KafkaTimeoutError):
        KafkaAdminClient(**group, bootstrap_timeout_ms=1, kafka_client=_Network)
    _Network.made[-1].close()
    assert "sasl_plain_username" in caplog.text
    assert "hush" not in caplog.text


def test_a_library_that_logs_its_requests_logs_no_login(caplog: pytest.LogCaptureFixture) -> None:
    client = GroupClient(
        {"bootstrap_servers": "127.0.0.1:1"}, group_id="g", client_id="c", report_unreachable_after_ms=1, report=lambda _: None
    )
    client.open()
    client.close()
    with caplog.at_level(logging.DEBUG):
        KafkaProtocol().send_request(SaslAuthenticateRequest(auth_bytes=b"\0me\0hush", version=2))
    assert "Sending request 1 SaslAuthenticateRequest(hidden)" in caplog.text
    assert "hush" not in caplog.text


class _Network(KafkaNetClient):
    made: ClassVar[list[KafkaNetClient]] = []

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.made.append(self)


def test_every_client_setting_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    for name in EVERYTHING:
        prefix, _, rest = name.partition(".")
        assert f"`{rest if prefix in ('kafka', 'consumer', 'producer', 'admin') else name}`" in page
