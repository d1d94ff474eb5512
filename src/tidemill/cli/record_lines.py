"""Records as people type them, one a line: ``[@TIME] [TOPIC:] [KEY =>] VALUE``.

Decides the grammar and what a text means to a serde; each refusal names the line, what was found and what was expected. A topic
is one only if the program reads it, so a value may have colons; ``null`` is no key, or no value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from tidemill.errors import ConfigError, SerdeError
from tidemill.printable import printable
from tidemill.topology.values import Serde

GRAMMAR = "[@TIME] [TOPIC:] [KEY =>] VALUE"
_TIME = re.compile(r"@(\S+)\s+(.*)\Z", re.DOTALL)
_MS = re.compile(r"\d{1,18}", re.ASCII)
"""Kafka's timestamps have 64 bits."""
_ARROW = re.compile(r"\s*=>\s*")


@dataclass(frozen=True, slots=True)
class TypedRecord:
    """A record as values; ``timestamp`` in ms since the epoch, None: not said."""

    topic: str
    key: object
    value: object
    timestamp: int | None


def records_of(lines: Iterable[str], topics: Mapping[str, tuple[Serde, Serde]], source: str) -> Iterator[TypedRecord]:
    """The records of lines; empty ones and those that begin with ``#`` are none. ``source``: what the lines are of.

    Raises:
        ConfigError: a line is no record of ``topics``, which are by name with the serdes of keys and values.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield record_of(line, topics, f"{source}, line {number}")


def record_of(line: str, topics: Mapping[str, tuple[Serde, Serde]], place: str) -> TypedRecord:
    """The record of one line; ConfigError as in ``records_of``."""
    rest, timestamp = line.strip(), None
    if rest.startswith("@"):
        found = _TIME.match(rest)
        if found is None or not _MS.fullmatch(found[1]):
            found_text = printable(rest.split()[0])
            raise ConfigError(f"{place}: {found_text!r} is no time; expected @ and the ms since the epoch, as in @60000 hello")
        timestamp, rest = int(found[1]), found[2]
    topic, rest = _topic(rest, topics, place)
    key, value = _ARROW.split(rest, maxsplit=1) if _ARROW.search(rest) else ("null", rest)
    key_serde, value_serde = topics[topic]
    return TypedRecord(
        topic, _value(key.strip(), key_serde, f"{place}: key"), _value(value.strip(), value_serde, f"{place}: value"), timestamp
    )


def _topic(text: str, topics: Mapping[str, tuple[Serde, Serde]], place: str) -> tuple[str, str]:
    for topic in sorted(topics, key=len, reverse=True):
        if text.startswith(f"{topic}:"):
            return topic, text[len(topic) + 1 :].lstrip()
    if len(topics) == 1:
        return next(iter(topics)), text
    raise ConfigError(
        f"{place}: the program reads {', '.join(sorted(topics))}, and {text[:40]!r} names none of them; write {GRAMMAR}, as in"
        f" {min(topics)}: {text[:40]}"
    )


def _value(text: str, serde: Serde, place: str) -> object:
    """The value of a text: itself for a serde of text or bytes, a number or a UUID for one of those, else JSON's."""
    if text == "null":
        return None
    try:
        match serde.name.partition(":")[0]:
            case "string":
                return text
            case "bytes":
                return text.encode()
            case "json":
                return serde.deserialize(text.encode())
            case "long" | "integer" | "short":
                value: object = int(text)
            case "double" | "float":
                value = float(text)
            case "uuid":
                value = UUID(text.strip('"'))
            case _:
                value = json.loads(text)
        serde.serialize(value)
    except (ValueError, TypeError, SerdeError, RecursionError) as error:
        raise ConfigError(
            f"{place}: {printable(text)!r} can't be read by the serde {serde.name} ({error}); expected {_expected(serde)}"
        ) from None
    return value


def _expected(serde: Serde) -> str:
    match serde.name.partition(":")[0]:
        case "long" | "integer" | "short":
            return "a whole number"
        case "double" | "float":
            return "a number"
        case "uuid":
            return "a UUID"
        case "json":
            return "JSON" if serde.sql_type == "string" else f"a JSON object of {serde.sql_type}"
    return "JSON text of a value that the serde writes"
