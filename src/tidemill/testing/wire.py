"""Records as they are handed to and taken from the plan: bytes, in the form of JSON text that crosses to the workers."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

Headers = tuple[tuple[str, "bytes | None"], ...]


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record of a topic's only partition."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


def to_json(record: RawRecord) -> list[Any]:
    headers = [[name, text(value)] for name, value in record.headers]
    return [record.topic, text(record.key), text(record.value), record.timestamp, headers]


def from_json(row: list[Any]) -> RawRecord:
    topic, key, value, timestamp, headers = row
    return RawRecord(topic, data(key), data(value), timestamp, tuple((name, data(held)) for name, held in headers))


def text(found: bytes | None) -> str | None:
    return None if found is None else base64.b64encode(found).decode()


def data(found: str | None) -> bytes | None:
    return None if found is None else base64.b64decode(found)
