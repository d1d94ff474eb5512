"""A schema registry as applications name it, and its clients: one for each process, made when first needed.

Serdes travel to workers, connections don't: a serde carries the registry's address and settings only. Decides that bytes that
don't fit their schema are a SerdeError, as is what the registry says of a schema; ``client`` has what is a RetriableError.
Invariant: user and password stand in the settings only, whichever way they were given; no message, nothing printed, no address
that the client logs has them.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from tidemill.config.secrets import HIDDEN, is_secret, without_credentials
from tidemill.errors import ConfigError, RetriableError, SerdeError, TopologyError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import SerializationContext

    from tidemill.schema_registry.avro import AvroSerde
    from tidemill.schema_registry.protobuf import ProtobufSerde

_Result = TypeVar("_Result")
_USER_INFO = "basic.auth.user.info"
_NEXT_ADDRESS = re.compile(r",(?=\s*\w+://)")
_ADDRESS = re.compile(r"(\s*\w+://|)(?:(.*)@)?(.*)", re.DOTALL)
_MOST_TEXT = 500
_MOCK = "mock://"
BY_RECORD = {"subject.name.strategy.type": "RECORD"}
_mock_files: dict[str, str] = {}
"""Where the schemas of ``mock://`` addresses stand; removed when this process ends."""
_clients: dict[tuple[tuple[str, str], ...], SchemaRegistryClient] = {}
"""Clients by the registry's settings; each caches schemas."""


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry at ``url``; ``settings``: those of confluent-kafka's client (``basic.auth.user.info``, ``ssl.ca.location`` ...).

    ``mock://name`` is a registry for tests, of this process and its workers, without a server. User and password may stand in the
    ``url`` (``https://me:secret@host``); they are kept as ``basic.auth.user.info``.
    ``auto_register``: schemas that the registry does not have are added when they are first written with.

    Raises:
        ConfigError: two logins are given.
    """

    url: str
    settings: Mapping[str, object] = field(default_factory=dict, repr=False)  # holds credentials
    auto_register: bool = True
    _mock_file: str = field(default="", init=False, repr=False)
    """The file with the schemas of a registry for tests (``mock://name``), which workers read, too."""

    def __post_init__(self) -> None:
        if self.url.startswith(_MOCK):
            object.__setattr__(self, "_mock_file", _mock_file_of(self.url))
        addresses = [_ADDRESS.fullmatch(address) for address in _NEXT_ADDRESS.split(self.url)]
        logins = {unquote(found[2]) for found in addresses if found is not None and found[2]}
        if not logins:
            return
        object.__setattr__(self, "url", ",".join(found[1] + found[3] for found in addresses if found is not None))
        if len(logins) > 1 or _USER_INFO in self.settings:
            raise ConfigError(f"schema registry {self.url}: two logins are given; give one, in the address or as {_USER_INFO}")
        [login] = logins
        object.__setattr__(self, "settings", {**self.settings, _USER_INFO: login if ":" in login else f"{login}:"})

    def avro(self, schema: str, *, name: str | None = None, subject: str | None = None) -> AvroSerde:
        """Avro with this schema (JSON text). Values are those of its Spark type: dicts for records. ``name``: of several types
        in the text, as some ``.avsc`` files are a list of them, the one that is read and written. ``subject``: under which the
        registry has the schema that is written with; the type's full name if None.

        Raises:
            TopologyError: the schema can't be read, has no type of this name, or has no Spark type (a union of several types, a
                recursive record ...).
        """
        from tidemill.schema_registry.avro import AvroSerde
        from tidemill.schema_registry.avro_types import type_named

        _check_subject(subject)
        return AvroSerde(schema=schema if name is None else type_named(schema, name), registry=self, subject=subject)

    def protobuf(self, message: type, *, subject: str | None = None) -> ProtobufSerde:
        """Protobuf with this generated message class; values are dicts of its fields. ``subject``: under which the registry has
        the schema that is written with; the message's full name if None.

        Raises:
            TopologyError: the message has no Spark type (it contains itself, has no fields or a map by other keys than strings),
                or a field hides an attribute of Protobuf's classes.
        """
        from tidemill.schema_registry.protobuf import ProtobufSerde

        _check_subject(subject)
        return ProtobufSerde(message=message, registry=self, subject=subject)

    def client(self) -> SchemaRegistryClient:
        """This process's client.

        Raises:
            ConfigError: confluent-kafka refuses a setting, or is not installed with what it needs for registries.
        """
        conf = {"url": self.url, **self.settings}
        name = tuple(sorted((key, repr(value)) for key, value in {"file": self._mock_file, **conf}.items()))
        if name not in _clients:
            try:
                _clients[name] = self._new_client(conf)
            except ImportError as missing:
                raise ConfigError(f"schema registry {self.url}: {missing}; pip install tidemill[registry]") from None
            except (ValueError, TypeError, OSError) as refused:  # OSError: of certificates
                raise ConfigError(f"schema registry {self.url}: {self._said(refused)}; correct its settings") from None
        return _clients[name]

    def _new_client(self, conf: dict[str, object]) -> SchemaRegistryClient:
        if self._mock_file:
            from tidemill.schema_registry.mock import MockRegistryClient

            return MockRegistryClient(conf, self._mock_file)
        from tidemill.schema_registry.client import RegistryClient

        return RegistryClient(conf, self._said)

    def call(self, kind: str, what: str, function: Callable[[], _Result], about: str = "") -> _Result:
        """The result of ``function``, a call of a serializer or deserializer. ``about``: what an error says of the schema.

        Raises:
            RetriableError: the registry does not answer, or does not do what it is there for.
            SerdeError: anything else that it does not like.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return function()
        except (RetriableError, SerdeError):
            raise
        except SchemaRegistryError as refused:
            raise SerdeError(f"{kind}: can't {what}: the schema registry says {self._said(refused)}{about}") from None
        except Exception as problem:
            raise SerdeError(f"{kind}: can't {what}: {type(problem).__name__}: {self._said(problem)}{about}") from None

    def written_as(self, subject: str) -> str:
        """What an error says of the schema that a value is written with."""
        nothing = ", to which nothing is added (auto_register=False); if it stands under another one, give that (subject=...)"
        return f"; its subject is {subject}" + ("" if self.auto_register else nothing)

    def _said(self, problem: Exception, tokens: Sequence[str] = ()) -> str:
        """The client library's message, without what it was given: that may be secret. A server may quote what it was sent."""
        text = without_credentials(str(problem))
        for name, value in self.settings.items():
            if is_secret(name) and isinstance(value, str):
                sent = b64encode(value.encode()).decode("ascii")
                for secret in filter(None, (value, value.partition(":")[2], sent)):
                    text = text.replace(secret, HIDDEN)
        for token in filter(None, tokens):
            text = text.replace(token, HIDDEN)
        return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ..."  # a whole page may be in it


def _mock_file_of(url: str) -> str:
    if url not in _mock_files:
        folder = tempfile.mkdtemp(prefix="tidemill-registry-")
        atexit.register(_remove, folder, os.getpid())
        _mock_files[url] = str(Path(folder, "schemas"))
    return _mock_files[url]


def _remove(folder: str, maker: int) -> None:
    if os.getpid() == maker:  # a forked child ends without it
        shutil.rmtree(folder, ignore_errors=True)


def read_as(number: int) -> str:
    """What an error says of the schema that a value was written with."""
    return f"; its schema's id is {number}"


def naming(subject: str | None) -> dict[str, object]:
    """The setting of a serializer that says under which subject its schema stands."""
    return dict(BY_RECORD) if subject is None else {"subject.name.strategy": lambda *_: subject}


def _check_subject(subject: object) -> None:
    if subject is not None and not (isinstance(subject, str) and subject):
        raise TopologyError(f"subject is {subject!r}, expected a name in the registry such as 'orders-value'")


def any_topic() -> SerializationContext:
    """The topic that serializers and deserializers ask for; their subjects don't depend on it."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext("", MessageField.VALUE)
