"""A schema registry as applications name it, and its clients: one for each process, made when first needed.

Serdes travel to workers, connections don't: a serde carries the registry's address and settings only. Decides that a registry
that does not answer is a RetriableError, while bytes that don't fit their schema are a SerdeError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigError, RetriableError, SerdeError

if TYPE_CHECKING:
    from tidemill.schema_registry.avro import AvroSerde
    from tidemill.schema_registry.protobuf import ProtobufSerde

BY_RECORD = {"subject.name.strategy.type": "RECORD"}
_clients: dict[tuple[tuple[str, str], ...], Any] = {}
"""By the registry's settings; a client keeps the schemas it has seen."""


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry at ``url``; ``settings``: those of confluent-kafka's client (``basic.auth.user.info``, ``ssl.ca.location`` ...).

    ``auto_register``: schemas that the registry does not have are added when they are first written with.
    """

    url: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)  # holds credentials
    auto_register: bool = True

    def avro(self, schema: str) -> AvroSerde:
        """Avro with this schema (JSON text). Values are those of its Spark type: dicts for records.

        Raises:
            TopologyError: the schema can't be read, or has no Spark type (a union of several types, a recursive record ...).
        """
        from tidemill.schema_registry.avro import AvroSerde

        return AvroSerde(schema=schema, registry=self)

    def protobuf(self, message: type) -> ProtobufSerde:
        """Protobuf with this generated message class; values are dicts of its fields.

        Raises:
            TopologyError: the message has no Spark type (it contains itself).
        """
        from tidemill.schema_registry.protobuf import ProtobufSerde

        return ProtobufSerde(message=message, registry=self)

    def client(self) -> Any:
        """This process's client.

        Raises:
            ConfigError: confluent-kafka refuses a setting.
        """
        conf = {"url": self.url, **self.settings}
        name = tuple(sorted((key, repr(value)) for key, value in conf.items()))
        if name not in _clients:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            try:
                _clients[name] = SchemaRegistryClient.new_client(conf)
            except (ValueError, TypeError) as refused:
                raise ConfigError(f"schema registry {self.url}: {refused}; correct its settings") from None
        return _clients[name]

    def call(self, kind: str, what: str, function: Callable[[], Any]) -> Any:
        """What ``function``, a (de)serializer's call, gives.

        Raises:
            RetriableError: the registry does not answer.
            SerdeError: anything else that it does not like.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError
        from httpx2 import TransportError  # of the client's HTTP library

        try:
            return function()
        except SchemaRegistryError as refused:
            if refused.http_status_code >= 500:
                raise RetriableError(f"schema registry {self.url}: {refused}") from None
            raise SerdeError(f"{kind}: can't {what}: the schema registry says {refused}") from None
        except TransportError as problem:
            raise RetriableError(f"schema registry {self.url} does not answer: {problem}") from None
        except Exception as problem:
            raise SerdeError(f"{kind}: can't {what}: {type(problem).__name__}: {problem}") from None


def any_topic() -> Any:
    """What the (de)serializers want to know of the topic; their subjects don't depend on it."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext("", MessageField.VALUE)
