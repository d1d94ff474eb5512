"""Missing ACLs: operation, resource and principal of a refused request, and the command that grants it.

Decides the message of such errors, for every client alike: one sentence that names resource, name, operation and principal, and
ends with a ``kafka-acls`` line that mends it. Which operation a call needs is known where the call is made; the brokers say
only on what kind of resource a right is missing.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from tidemill.config.values import DataClientSettings
from tidemill.errors import MissingRightError
from tidemill.forked import kept_in_children

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, TopicDescription

CLUSTER = "kafka-cluster"
_ASK_LIMIT_S = 5.0
_OWN_ID = re.compile(r"(?P<prefix>.+-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+")


class Resource(Enum):
    """Kinds of resources; the value as messages say it and, with hyphens, as kafka-acls has it."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    CLUSTER = "cluster"


class Operation(Enum):
    """Kafka's operations, in its own spelling. Read, Write and Delete bring Describe with them."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


_RESOURCE_OF: Mapping[int, Resource] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Resource.CLUSTER,
}


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A right: ``operation`` on the resource of this name."""

    resource: str
    name: str
    operation: str

    @classmethod
    def of(cls, resource: Resource, name: str, operation: Operation) -> Right:
        return cls(resource.value, name, operation.value)

    def __str__(self) -> str:
        what = "the cluster" if self.resource == Resource.CLUSTER.value else f"{self.resource} {self.name!r}"
        return f"{self.operation} on {what}"


def lacks(error: KafkaError) -> Resource | None:
    """The kind of resource on which the error says that a right is missing; None for any other error."""
    return _RESOURCE_OF.get(error.code())


def missing_right(
    doing: str, rights: Iterable[Right], settings: Mapping[str, object], *, some_of_them: bool = False
) -> MissingRightError:
    """The error for these rights. ``settings``: the client's own, in either library's names; the message has no secret of
    them. ``some_of_them``: one or more of the rights are missing, and it is not known which."""
    missing = tuple(sorted(set(rights)))
    principal = principal_of(settings)
    servers = settings.get("bootstrap.servers") or settings.get("bootstrap_servers") or "HOST:PORT"
    listed = ",".join(map(str, servers)) if isinstance(servers, list) else str(servers)
    commands = "; ".join(_commands(missing, principal or "User:NAME", listed))
    who, lacks_them, grant = principal or "the user of this client", "lacks", "Grant it"
    if some_of_them and len(missing) > 1:
        lacks_them = "lacks one or more of these rights (the brokers have not said which):"
        grant = "Grant what is missing (kafka-acls --list shows what is there)"
    return MissingRightError(
        f"{doing}: {who} {lacks_them} {', '.join(map(str, missing))}. {grant}, as a user who may: {commands}",
        rights=tuple((right.resource, right.name, right.operation) for right in missing),
        principal=principal,
    )


def principal_of(settings: Mapping[str, object]) -> str | None:
    """Principal of a client with these settings, as the brokers see it; None if that is not known here."""
    protocol = str(settings.get("security.protocol", settings.get("security_protocol", "PLAINTEXT"))).upper()
    user = settings.get("sasl.username", settings.get("sasl_plain_username"))
    if protocol.startswith("SASL_"):
        return f"User:{user}" if user else None
    if protocol == "PLAINTEXT":
        return "User:ANONYMOUS"
    pem = settings.get("ssl.certificate.pem")
    location = settings.get("ssl.certificate.location", settings.get("ssl_certfile"))
    if pem is None and location is None:
        return None if "ssl_context" in settings else "User:ANONYMOUS"
    with contextlib.suppress(OSError, ValueError, ImportError):
        from cryptography.x509 import load_pem_x509_certificates  # comes with tidemill[tls]: without it, the name is not known

        chain = load_pem_x509_certificates(str(pem).encode() if pem is not None else Path(str(location)).read_bytes())
        return f"User:{chain[0].subject.rfc4514_string()}"
    return None


def lacking(suspects: Sequence[Right], settings: DataClientSettings) -> list[Right]:
    """The missing ones of these rights on topics, by the brokers' answer; none if there is no answer, or all are there by now.

    librdkafka says that a transaction was refused, not because of which of its topics, nor whether written or read.
    """
    allowed: dict[str, frozenset[str] | None] = {}
    try:
        topics = TopicCollection(sorted({right.name for right in suspects}))
        asked = asking_client(settings).describe_topics(topics, include_authorized_operations=True, request_timeout=_ASK_LIMIT_S)
        allowed = {topic: _allowed(answer) for topic, answer in asked.items()}
    except (KafkaException, ValueError, TimeoutError):
        pass
    return [right for right in suspects if (known := allowed.get(right.name)) is not None and right.operation not in known]


def asking_client(settings: DataClientSettings) -> AdminClient:
    """A client that asks the brokers about what another client of these settings was refused."""
    from confluent_kafka.admin import AdminClient  # workers import this module, and need no admin client but here

    asked_with = ("bootstrap.", "security.", "sasl.", "ssl.")
    ours = {name: value for name, value in settings.items() if name.startswith(asked_with)}
    return kept_in_children(AdminClient({**ours, "log_level": 0}, error_cb=lambda _: None))


def _allowed(done: Future[TopicDescription]) -> frozenset[str] | None:
    """None where nothing is known of them."""
    try:
        return allowed_on(done.result(_ASK_LIMIT_S + 1))
    except KafkaException as error:
        return frozenset() if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED else None


def allowed_on(topic: TopicDescription) -> frozenset[str] | None:
    """The operations that are allowed on a topic, as ``Operation`` has them; None where the brokers don't tell."""
    operations = topic.authorized_operations
    return frozenset(operation.name.title().replace("_", "") for operation in operations) if operations else None


def _commands(rights: Sequence[Right], principal: str, servers: str) -> list[str]:
    """One line for each set of operations: kafka-acls grants every operation named on every resource named."""
    operations: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        operations.setdefault((right.resource, right.name), []).append(right.operation)
    names: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (resource, name), wanted in operations.items():
        names.setdefault((resource, tuple(wanted)), []).append(name)
    begin = f"kafka-acls --bootstrap-server {shlex.quote(servers)} --add --allow-principal {shlex.quote(principal)}"
    lines = []
    for (resource, needed), named in names.items():
        allowed = " ".join(f"--operation {operation}" for operation in needed)
        lines += [f"{begin} {allowed} {where}" for where in _resources(resource, named)]
    return lines


def _resources(resource: str, names: Sequence[str]) -> list[str]:
    option = "--" + resource.replace(" ", "-")
    if resource == Resource.CLUSTER.value:
        return [option]
    # The rest of a transactional id is another one on the next machine: it is the prefix that has to be granted.
    prefixes = sorted({found["prefix"] for name in names if (found := _OWN_ID.fullmatch(name))})
    if resource == Resource.TRANSACTIONAL_ID.value and prefixes:
        return [f"{option} {shlex.quote(prefix)} --resource-pattern-type prefixed" for prefix in prefixes]
    return [" ".join(f"{option} {shlex.quote(name)}" for name in names)]
