"""Readers of settings' values: as text (from ``--set``, TOML or a Java properties habit) or as the value itself.

Decides what a value of each kind may look like; which setting has which kind is in `streams_config`. A reader raises
ValueError with what it expected; the caller adds the setting's name and, unless it is a secret, the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from typing import Any, TypeVar

from tidemill.config.secrets import HIDDEN, is_reference, shown
from tidemill.endpoint import EXPECTED as EXPECTED_ENDPOINT
from tidemill.endpoint import host_of
from tidemill.errors import ConfigError
from tidemill.ids import why_no_topic

Reader = Callable[[object], Any]
DataClientSettings = Mapping[str, str | int | float | bool]
"""Settings of a librdkafka client, under librdkafka's names."""
GroupClientSettings = Mapping[str, object]
"""Settings of a kafka-python client, under its names: numbers, texts, lists of servers, an ``ssl.SSLContext``."""
E = TypeVar("E", bound=Enum)

REWRITES = ("reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join")


class ProcessingGuarantee(Enum):
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE_V2 = "exactly_once_v2"


class RebalanceProtocol(Enum):
    """Members give up at first nothing and then only what moves, or everything at each rebalance (KIP-429)."""

    COOPERATIVE = "cooperative"
    EAGER = "eager"


class NamedHandler(Enum):
    """Exception handlers that settings name: for records that can't be read, processed or written."""

    FAIL = "fail"
    CONTINUE = "continue"
    DEAD_LETTER = "dead-letter"


class StoreSuppliers(Enum):
    """Place of stores for which the program names none; Kafka Streams' persistent ones are in RocksDB, ours in LMDB."""

    PERSISTENT = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$RocksDBDslStoreSuppliers"
    IN_MEMORY = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"


SHORT_STORE_SUPPLIERS = {supplier.value.rpartition("$")[2]: supplier for supplier in StoreSuppliers}


class StoreFormat(Enum):
    """Format of stores for which the program names none: with records' headers or without."""

    DEFAULT = "DEFAULT"
    HEADERS = "HEADERS"


class OffsetReset(Enum):
    """Start of a source without a committed offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class OffsetResetByDuration:
    """Reset to the first record that is not older than a duration (KIP-1106)."""

    duration_ms: int

    def __str__(self) -> str:
        return f"by_duration:PT{self.duration_ms / 1000:.15g}S"


_LONGEST_MS = 1 << 63
_BY_DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


def offset_reset(value: object) -> OffsetReset | OffsetResetByDuration:
    """earliest, latest, none, or ``by_duration:`` and an ISO 8601 duration."""
    if isinstance(value, (OffsetReset, OffsetResetByDuration)):
        return value
    text = value.strip() if isinstance(value, str) else ""
    found = _BY_DURATION.fullmatch(text)
    if found is not None and any(found.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
        duration_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if duration_s * 1000 >= _LONGEST_MS:
            raise ValueError("a duration of at most 64 bits in milliseconds")
        return OffsetResetByDuration(round(duration_s * 1000))
    try:
        return OffsetReset(text)
    except ValueError:
        raise ValueError("earliest, latest, none, or by_duration: with a duration such as PT1H or P7D") from None


def _java_handlers(fail: str, go_on: str) -> dict[str, NamedHandler]:
    """Kafka Streams' own classes of one kind of handler, with their package and without."""
    kinds = {fail: NamedHandler.FAIL, go_on: NamedHandler.CONTINUE}
    return {prefix + name: kind for prefix in ("org.apache.kafka.streams.errors.", "") for name, kind in kinds.items()}


JAVA_HANDLERS = _java_handlers("LogAndFailExceptionHandler", "LogAndContinueExceptionHandler")
JAVA_PROCESSING_HANDLERS = _java_handlers("LogAndFailProcessingExceptionHandler", "LogAndContinueProcessingExceptionHandler")
JAVA_PRODUCTION_HANDLERS = _java_handlers("DefaultProductionExceptionHandler", "AlwaysContinueProductionExceptionHandler")


class ClientSettings(Mapping[str, str]):
    """Settings that go to a client or to Spark as they are; shows no credential when printed."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {shown(name, value)}" for name, value in self._values.items()) + "}"


LARGEST_INT = (1 << 31) - 1
"""The largest value of Java's type int, which Kafka's protocol has for some settings."""
_LARGEST_LONG = (1 << 63) - 1


def whole_number(least: int, most: int = _LARGEST_LONG) -> Reader:
    """An integer within the bounds."""

    def read(value: object) -> int:
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                value = None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            bounds = f"from {least} on" if most == _LARGEST_LONG else f"between {least} and {most}"
            raise ValueError(f"a whole number {bounds}")
        return value

    return read


def replicas(value: object) -> int:
    """Replicas of a topic, or -1: as many as the broker's default says."""
    try:
        found: int = whole_number(-1, 32_767)(value)
    except ValueError:
        found = 0
    if found == 0:
        raise ValueError("-1 or a whole number between 1 and 32767")
    return found


def true_or_false(value: object) -> bool:
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.strip().lower())
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    return value.strip()


def given_text(described: str) -> Reader:
    """Text that is not empty."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(described)
        return value.strip()

    return read


def topic_name(value: object) -> str:
    """Text that may be a topic's name."""
    found = text(value)
    if problem := why_no_topic(found):
        raise ValueError(f"the name of a topic; {problem}")
    return found


def name_text(value: object) -> str:
    """Text that may be in a log line and go to other members: no control characters."""
    found = text(value)
    if not found.isprintable():
        raise ValueError("printable characters")
    return found


def endpoint(value: object) -> str:
    """Address at which this instance can be asked, or nothing."""
    found = text(value)
    if found and host_of(found) is None:
        raise ValueError(EXPECTED_ENDPOINT)
    return found


def listening_address(value: object) -> str:
    """Address to listen on, or nothing; port 0 is any free one."""
    found = text(value)
    host, _, port = found.rpartition(":")
    if found and not (host and re.fullmatch(r"\d{1,5}", port, re.ASCII) and int(port) <= 65_535):
        raise ValueError("host:port, with a port from 0 to 65535")
    return found


def text_like(pattern: str, described: str) -> Reader:
    """Text that matches the whole pattern."""
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value.strip()):
            raise ValueError(described)
        return value.strip()

    return read


_TOKEN = text_like(r"[\x21-\x7e]{16,}", "16 or more printable characters without spaces")


def http_token(value: object) -> str:
    """A token, or where it is to be looked up."""
    return str(value).strip() if value == "" or is_reference(value) else str(_TOKEN(value))


def require_token(token: str) -> str:
    """Checks a token that a reference led to; the ConfigError does not show it."""
    try:
        return str(_TOKEN(token))
    except ValueError as error:
        raise ConfigError(f"tidemill.http.token is {HIDDEN}, expected {error}") from None


def one_of(kind: type[E], aliases: Mapping[str, E] | None = None) -> Reader:
    """A member of the enum, by its value, or by another name that Kafka has for it."""
    known = {**(aliases or {}), **{str(member.value): member for member in kind}}

    def read(value: object) -> E:
        if isinstance(value, kind):
            return value
        if isinstance(value, str) and value.strip() in known:
            return known[value.strip()]
        raise ValueError(" or ".join(str(member.value) for member in kind))

    return read


def handler_or(known: Reader) -> Reader:
    """A value that ``known`` reads, a function, or ``module:function``."""

    def read(value: object) -> object:
        if callable(value) and not isinstance(value, (type, Enum)):
            return value
        if isinstance(value, str) and re.fullmatch(r"[\w.]+:\w+", value.strip()):
            return value.strip()
        try:
            return known(value)
        except ValueError as error:
            cls = value if isinstance(value, type) else type(value)
            method = f"; give its method, {cls.__name__}().handle" if hasattr(cls, "handle") else ""
            raise ValueError(f"{error}, a function, or module:function{method}") from None

    return read


def wrapper(value: object) -> object:
    """A class, an object, or where a class is: ``module:Class``."""
    if isinstance(value, str):
        if not re.fullmatch(r"[\w.]+:\w+", value.strip()):
            raise ValueError("module:Class, a class or an object")
        return value.strip()
    return value


class KafkaExtractor(Enum):
    """Kafka Streams' own timestamp extractors."""

    FAIL_ON_INVALID = "FailOnInvalidTimestamp"
    LOG_AND_SKIP_ON_INVALID = "LogAndSkipOnInvalidTimestamp"
    USE_PARTITION_TIME_ON_INVALID = "UsePartitionTimeOnInvalidTimestamp"
    WALL_CLOCK = "WallclockTimestampExtractor"


def extractor(value: object) -> object:
    """A function, where one is (``module:function``), or a class of Kafka Streams."""
    if callable(value):
        return value
    if isinstance(value, str):
        name = value.strip().removeprefix("org.apache.kafka.streams.processor.")
        if re.fullmatch(r"[\w.]+:\w+", name):
            return name
        if name in (kind.value for kind in KafkaExtractor):
            return KafkaExtractor(name)
    known = ", ".join(kind.value for kind in KafkaExtractor)
    raise ValueError(f"a function of (record, partition_time), module:function, or one of {known}")


def names(value: object) -> tuple[str, ...]:
    """Names, as a list or in one text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ValueError("names, separated by commas")
    return tuple(part.strip() for part in parts if part.strip())


def rewrites(value: object) -> tuple[str, ...]:
    """The optimisations that are asked for, in their own order."""
    asked = names(value)
    if asked in ((), ("none",)):
        return ()
    if asked == ("all",):
        return REWRITES
    if not set(asked) <= set(REWRITES):
        raise ValueError(f"none, all, or some of {', '.join(REWRITES)}")
    return tuple(name for name in REWRITES if name in asked)


_HOST = r"(?!-)[\w-]{1,63}(?:\.[\w-]{1,63})*\.?"
_PROTOCOL = r"(?i:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://"  # librdkafka passes over a server with another word there
_IP = r"[0-9A-Fa-f:.]+(?:%[\w.-]+)?"
_SERVER = re.compile(rf"(?:{_PROTOCOL})?(?:(?P<host>{_HOST})|\[(?P<ip>{_IP})\]):(?P<port>\d{{1,5}})", re.ASCII)


def _is_server(text: str) -> bool:
    found = _SERVER.fullmatch(text)
    if found is None or int(found["port"]) > 65_535 or len(found["host"] or "") > 253:
        return False
    return found["ip"] is None or _is_ip(found["ip"])


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def servers(value: object) -> str:
    """Brokers as host:port, with commas between them."""
    found = names(value)
    if not found or not all(map(_is_server, found)):
        raise ValueError("host:port, or several with commas between them")
    return ",".join(found)


def anything(value: object) -> object:
    return value


def client_value(value: object) -> str:
    """A client setting: text, a number or a boolean, passed as text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError("text, a number, true or false")
