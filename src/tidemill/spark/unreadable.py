"""Records whose bytes a serde can't read: stop, pass over, or put aside.

Decides what happens by ``deserialization.exception.handler`` and the headers of a record put aside (those of KIP-1034). Finding
such records is the source step's and the first layer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from tidemill.errors import StopError
from tidemill.spark.records import Headers, Records
from tidemill.spark.rows import topic_index


class OnUnreadable(Enum):
    FAIL = "fail"
    CONTINUE = "continue"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """What to do; ``expected`` says per source node what its serdes expect; ``topic`` is the dead-letter topic."""

    handler: OnUnreadable
    topic: str | None
    expected: Mapping[int, str]


def unreadable_records(
    table: pa.Table, sources: Mapping[int, tuple[str, ...]], policy: Unreadable
) -> tuple[str, Records] | None:
    """(topic, records to put aside), or None when they are passed over.

    Raises:
        StopError: the handler is FAIL; names topic, partition, offset and reason.
    """
    rows: list[dict[str, Any]] = table.select(["part", "off", "seq", "ts", "headers", "key", "value", "n"]).to_pylist()
    if policy.handler is OnUnreadable.FAIL:
        first = rows[0]
        topic = sources[first["n"]][topic_index(first["seq"])]
        raise StopError(
            f"{topic}-{first['part']} at offset {first['off']}: {_reason(first, policy)}. "
            "Correct the serde, or set deserialization.exception.handler to continue or dead-letter"
        )
    if policy.handler is OnUnreadable.CONTINUE:
        return None
    assert policy.topic is not None
    return policy.topic, Records(
        parts=[row["part"] for row in rows],
        keys=[row["key"] for row in rows],
        values=[row["value"] for row in rows],
        timestamps=[row["ts"] for row in rows],
        offsets=[row["off"] for row in rows],
        sequences=[row["seq"] for row in rows],
        headers=[_headers(row, sources[row["n"]][topic_index(row["seq"])], policy) for row in rows],
    )


def _headers(row: Mapping[str, Any], topic: str, policy: Unreadable) -> Headers:
    own = [(h["name"], h["value"]) for h in row["headers"] or []]
    return [
        *own,
        ("__streams.errors.exception", b"tidemill.errors.SerdeError"),
        ("__streams.errors.message", _reason(row, policy).encode()),
        ("__streams.errors.topic", topic.encode()),
        ("__streams.errors.partition", str(row["part"]).encode()),
        ("__streams.errors.offset", str(row["off"]).encode()),
    ]


def _reason(row: Mapping[str, Any], policy: Unreadable) -> str:
    key, value = (None if row[side] is None else len(row[side]) for side in ("key", "value"))
    return f"found a key of {_bytes(key)} and a value of {_bytes(value)}, expected {policy.expected[row['n']]}"


def _bytes(length: int | None) -> str:
    return "null" if length is None else f"{length} bytes"
