"""Kafka's Java client settings, as the two client libraries want them.

Decides what ``kafka.*``, ``consumer.*``, ``producer.*`` and ``admin.*`` mean to librdkafka (data, transactions, admin) and
to kafka-python (the group). Invariant: a ``kafka.*`` setting reaches both or is refused, so that no half of an application
is less secure than its settings say; no message shows a credential. References are looked up here (``config_providers``);
certificates are read by ``key_stores``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tidemill.config.secrets import Unshown, is_secret, shown
from tidemill.config.slices import ClientsConfig
from tidemill.errors import ConfigError
from tidemill.kafka.security.config_providers import resolved_settings
from tidemill.kafka.security.key_stores import STORE_SETTINGS, data_store_settings, group_store_settings

DataValue = str | int | float | bool
Value = TypeVar("Value")
JAAS = "sasl.jaas.config"


class ClientRole(Enum):
    """Role of a librdkafka client; the value is the prefix of its settings."""

    CONSUMER = "consumer"
    PRODUCER = "producer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class _Both:
    """A setting that both libraries have: its names there, and how its text becomes each one's value."""

    data_names: tuple[str, ...]
    group_names: tuple[str, ...]
    to_data: Callable[[str], DataValue] = str
    to_group: Callable[[str], DataValue] = str


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _milliseconds(text: str) -> str:
    """Also a fraction. Of a text that begins with a number librdkafka would take that number, whatever follows."""
    if not re.fullmatch(r"\d+(\.\d+)?", text.strip(), re.ASCII):
        raise ValueError("a number of milliseconds, such as 5 or 0.5")
    return text.strip()


def _one_of(*known: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip().upper() not in known:
            raise ValueError(" or ".join(known))
        return text.strip().upper()

    return read


def _endpoint_identification(text: str) -> str:
    if text.strip().lower() not in ("", "https"):
        raise ValueError("https, or nothing to leave the host's name unchecked")
    return text.strip().lower() or "none"


def _timing(name: str, data_name: str | None = None) -> _Both:
    return _Both((data_name or name,), (name.replace(".", "_"),), _number, _number)


_PROTOCOL = _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM = _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = {"PLAIN": "PlainLoginModule", "SCRAM-SHA-256": "ScramLoginModule", "SCRAM-SHA-512": "ScramLoginModule"}
_BOTH = {
    "security.protocol": _Both(("security.protocol",), ("security_protocol",), _PROTOCOL, _PROTOCOL),
    "sasl.mechanism": _Both(("sasl.mechanism",), ("sasl_mechanism",), _MECHANISM, _MECHANISM),
    "ssl.endpoint.identification.algorithm": _Both(
        ("ssl.endpoint.identification.algorithm",),
        ("ssl_check_hostname",),
        _endpoint_identification,
        lambda text: _endpoint_identification(text) == "https",
    ),
    "request.timeout.ms": _timing("request.timeout.ms", "socket.timeout.ms"),
    "reconnect.backoff.ms": _timing("reconnect.backoff.ms"),
    "reconnect.backoff.max.ms": _timing("reconnect.backoff.max.ms"),
    "metadata.max.age.ms": _timing("metadata.max.age.ms"),
    "connections.max.idle.ms": _timing("connections.max.idle.ms"),
    "socket.connection.setup.timeout.ms": _timing("socket.connection.setup.timeout.ms"),
}
_OF_ROLE: Mapping[ClientRole, Mapping[str, str]] = {
    ClientRole.CONSUMER: {
        "fetch.min.bytes": "fetch.min.bytes",
        "fetch.max.bytes": "fetch.max.bytes",
        "fetch.max.wait.ms": "fetch.wait.max.ms",
        "max.partition.fetch.bytes": "max.partition.fetch.bytes",
        "check.crcs": "check.crcs",
        "request.timeout.ms": "socket.timeout.ms",
    },
    ClientRole.PRODUCER: {
        "linger.ms": "linger.ms",
        "batch.size": "batch.size",
        "compression.type": "compression.type",
        "buffer.memory": "queue.buffering.max.kbytes",
        "max.request.size": "message.max.bytes",
        "delivery.timeout.ms": "delivery.timeout.ms",
        "request.timeout.ms": "socket.timeout.ms",
        "retry.backoff.ms": "retry.backoff.ms",
        "retry.backoff.max.ms": "retry.backoff.max.ms",
    },
    ClientRole.ADMIN: {"request.timeout.ms": "socket.timeout.ms"},
}
_OWN = {
    "bootstrap.servers": "say bootstrap.servers, without a prefix",
    "client.id": "say client.id, without a prefix",
    "client.rack": "say client.rack, without a prefix",
    "group.id": "the group is named by application.id",
    "group.instance.id": "say group.instance.id, without a prefix",
    "auto.offset.reset": "say auto.offset.reset, without a prefix",
    "session.timeout.ms": "say session.timeout.ms, without a prefix",
    "heartbeat.interval.ms": "say heartbeat.interval.ms, without a prefix",
    "max.poll.interval.ms": "say max.poll.interval.ms, without a prefix",
    "max.poll.records": "say tidemill.batch.max.records",
    "transaction.timeout.ms": "say transaction.timeout.ms, without a prefix",
    "transactional.id": "it consists of application.id, process and thread",
    "enable.auto.commit": "offsets are committed with the results",
    "isolation.level": "inputs are always read read_committed",
    "enable.idempotence": "producers are always idempotent",
    "acks": "every record waits for all replicas in sync",
    "max.in.flight.requests.per.connection": "the idempotent producer needs its own",
    "partitioner.class": "keys are placed as Kafka's default partitioner does",
    "partition.assignment.strategy": "Kafka Streams' protocol brings its own assignor",
}


_ERRORS_ONLY, _NOTHING = 3, 0  # syslog's numbers
_CLIENTS: Mapping[ClientRole, Callable[[dict[str, DataValue]], object]] = {
    ClientRole.CONSUMER: lambda settings: Consumer({**settings, "group.id": "none"}).close(),
    ClientRole.PRODUCER: Producer,
    ClientRole.ADMIN: AdminClient,
}
"""Clients that only judge the values of their settings: without brokers they connect to nothing."""


def data_client_settings(config: ClientsConfig, role: ClientRole) -> dict[str, DataValue]:
    """The settings of a librdkafka client: where the brokers are, ``kafka.*``, and those of the role, which win."""
    # What librdkafka retries by itself it says on standard error as a warning: only its errors are news.
    settings: dict[str, DataValue] = {"bootstrap.servers": config.bootstrap_servers, "log_level": _ERRORS_ONLY}
    if config.client_id:
        settings["client.id"] = config.client_id
    if config.client_rack and role is ClientRole.CONSUMER:
        settings["client.rack"] = config.client_rack
    kafka = _security_checked(config)
    settings |= data_store_settings(kafka)
    for name, value in kafka.items():
        if name == JAAS:
            settings["sasl.username"], settings["sasl.password"] = _login(kafka)
        elif name not in STORE_SETTINGS:
            both = _both(name)
            read = _read("kafka.", name, value, both.to_data, config.kafka)
            settings |= dict.fromkeys(both.data_names, read)
    settings |= _role_settings(config, role)
    if role is ClientRole.PRODUCER:
        # librdkafka refuses a producer one of whose requests may take longer than its transaction.
        limit_ms = config.transaction_timeout_ms
        if int(settings.get("delivery.timeout.ms", 0)) > limit_ms:
            raise ConfigError(
                f"producer.delivery.timeout.ms={settings['delivery.timeout.ms']} is above "
                f"transaction.timeout.ms={limit_ms}: lower it, or raise the other"
            )
        if int(settings.get("socket.timeout.ms", 0)) > limit_ms:
            settings["socket.timeout.ms"] = limit_ms
    return settings


def require_client_settings(config: ClientsConfig) -> None:
    """ConfigError if a setting does not fit one of the clients, of which some are made only when a stream thread begins."""
    for role, client in _CLIENTS.items():
        settings = data_client_settings(config, role)
        given = _given(config, role)
        if given or config.kafka:
            without_brokers = {name: value for name, value in settings.items() if name != "bootstrap.servers"}
            try:
                client({**without_brokers, "log_level": _NOTHING})
            except (KafkaException, ValueError) as error:
                names = [f"{role.value}.{name}" for name in given] + [f"kafka.{name}" for name in config.kafka]
                raise ConfigError(f"librdkafka can't use a value of {', '.join(names)}: {error_text(error).strip()}") from None
    group_client_settings(config)


def error_text(problem: Exception) -> str:
    """What librdkafka says in an error that confluent-kafka has raised."""
    error = problem.args[0] if problem.args else problem
    return error.str() if isinstance(error, KafkaError) else str(error)


def group_client_settings(config: ClientsConfig) -> dict[str, object]:
    """The settings of the kafka-python client that speaks for the group: where the brokers are, and ``kafka.*``."""
    settings: dict[str, object] = {"bootstrap_servers": config.bootstrap_servers.split(",")}
    if config.client_id:
        settings["client_id"] = config.client_id
    kafka = _security_checked(config)
    for name, value in kafka.items():
        if name == JAAS:
            settings["sasl_plain_username"], settings["sasl_plain_password"] = _login(kafka)
        elif name not in STORE_SETTINGS:
            both = _both(name)
            read = _read("kafka.", name, value, both.to_group, config.kafka)
            settings |= dict.fromkeys(both.group_names, read)
    settings |= group_store_settings(kafka, checks_host=settings.get("ssl_check_hostname") is not False)
    return {name: Unshown(value) if isinstance(value, str) and is_secret(name) else value for name, value in settings.items()}


def _role_settings(config: ClientsConfig, role: ClientRole) -> dict[str, DataValue]:
    given, prefix = _given(config, role), f"{role.value}."
    settings: dict[str, DataValue] = {}
    for name, value in resolved_settings(prefix, given).items():
        data_name = _OF_ROLE[role].get(name)
        if data_name is None:
            raise ConfigError(_refusal(prefix + name, name, [*_OF_ROLE[role]]))
        if name == "buffer.memory":
            settings[data_name] = max(1, _read(prefix, name, value, _number, given) // 1024)
        elif name == "linger.ms":
            settings[data_name] = _read(prefix, name, value, _milliseconds, given)
        elif name.endswith((".ms", ".bytes", ".size")):
            settings[data_name] = _read(prefix, name, value, _number, given)
        else:
            settings[data_name] = value
    return settings


def _given(config: ClientsConfig, role: ClientRole) -> Mapping[str, str]:
    given: Mapping[str, str] = getattr(config, role.value)
    return given


def _both(name: str) -> _Both:
    both = _BOTH.get(name)
    if both is None:
        raise ConfigError(_refusal(f"kafka.{name}", name, [*_BOTH, *sorted(STORE_SETTINGS), JAAS]))
    return both


def _refusal(full_name: str, name: str, known: list[str]) -> str:
    if name in _OWN:
        return f"{full_name} is not for you to set: {_OWN[name]}"
    roles = [role.value for role, settings in _OF_ROLE.items() if name in settings]
    if roles and full_name.startswith("kafka."):
        return f"{full_name} can't be given to both of Tidemill's Kafka clients: say {roles[0]}.{name}"
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {full_name.removesuffix(name)}{nearest[0]}?" if nearest else f"known: {', '.join(known)}"
    if full_name.startswith("kafka."):
        return f"{full_name} can't be given to both of Tidemill's Kafka clients (librdkafka and kafka-python); {hint}"
    return f"{full_name} can't be given to librdkafka; {hint}"


def _read(prefix: str, name: str, value: str, reader: Callable[[str], Value], given: Mapping[str, str]) -> Value:
    """``given``: the settings as they were written, which a message may show where it must not show what they refer to."""
    try:
        return reader(value)
    except ValueError as error:
        raise ConfigError(f"{prefix}{name} is {shown(name, given[name])}, expected {error}") from None


def _security_checked(config: ClientsConfig) -> dict[str, str]:
    """``kafka.*`` with every reference looked up; what only makes sense together is there together."""
    kafka = resolved_settings("kafka.", config.kafka)
    protocol = kafka.get("security.protocol", "").upper()
    if protocol.startswith("SASL_"):
        missing = [name for name in ("sasl.mechanism", JAAS) if name not in kafka]
        if missing:
            raise ConfigError(f"kafka.security.protocol={protocol} needs kafka.{missing[0]} too")
    return kafka


def _login(kafka: Mapping[str, str]) -> tuple[str, str]:
    """User name and password of a JAAS text: ``<login module> required username="..." password="...";``."""
    mechanism = kafka.get("sasl.mechanism", "").upper()
    module = _MODULES.get(mechanism)
    expected = f'{module or "a login module"} required username="..." password="...";'
    header = re.match(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*\Z", kafka[JAAS], re.DOTALL)
    if header is None or (module is not None and header[1].rpartition(".")[2] != module):
        raise ConfigError(f"kafka.{JAAS} (hidden) does not fit kafka.sasl.mechanism={mechanism}, expected {expected}")
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single or bare)
        for name, double, single, bare in re.findall(
            r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", header[2]
        )
    }
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise ConfigError(f"kafka.{JAAS} (hidden) has no {missing[0]}, expected {expected}")
    return options["username"], options["password"]
