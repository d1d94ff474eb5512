"""Rows in HTTP answers: JSON, or an Arrow stream.

Decides how values are written in JSON (bytes as hex; numbers that JSON lacks as "NaN", "Infinity"; times and decimals as text;
objects as they are) and which Arrow type each serde has (json: its text). Keys are written so that they can be asked for again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date

import pyarrow as pa

from tidemill.dsl.json_writing import members_of
from tidemill.query.rows import Row
from tidemill.query.store_facts import StoreFacts
from tidemill.state.keys import TIMESTAMP_SIZE
from tidemill.topology.values import Serde

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
_ARROW_TYPES = {
    "string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "double": pa.float64(), "bytes": pa.binary(),
}  # fmt: skip


def to_json(answer: Mapping[str, object]) -> bytes:
    return json.dumps(_plain(answer), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def entry(store: StoreFacts, row: Row, *, hex_keys: bool) -> dict[str, object]:
    """SerdeError if the store's serdes can't read the row."""
    found = {"key": shown_key(store, row.key, hex_keys=hex_keys), "value": store.value(row.stored)}
    timestamp_ms = store.timestamp_ms(row.stored)
    return found if timestamp_ms is None else {**found, "timestamp": timestamp_ms}


def shown_key(store: StoreFacts, key: bytes, *, hex_keys: bool) -> object:
    return key.hex() if hex_keys else store.key(key)


def key_text(store: StoreFacts, key: bytes, *, hex_keys: bool) -> str:
    """A key as a request has it in its address."""
    shown = _plain(shown_key(store, key, hex_keys=hex_keys))
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def to_arrow(store: StoreFacts, rows: Sequence[Row], facts: Mapping[str, object], *, hex_keys: bool) -> bytes:
    """Columns key, value and, if the store keeps them, timestamp; ``facts`` as metadata of the schema."""
    keys = pa.array([row.key.hex() for row in rows], pa.string()) if hex_keys else _column(store.key_serde, [r.key for r in rows])
    skipped = TIMESTAMP_SIZE if store.timestamped else 0
    columns = {"key": keys, "value": _column(store.value_serde, [row.stored[skipped:] for row in rows])}
    if store.timestamped:
        columns["timestamp"] = pa.array([store.timestamp_ms(row.stored) for row in rows], pa.timestamp("ms", "UTC"))
    metadata = {f"tidemill.{name}": json.dumps(_plain(value)) for name, value in facts.items()}
    batch = pa.RecordBatch.from_pydict(columns, metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _column(serde: Serde, data: Sequence[bytes]) -> pa.Array:
    kind = _ARROW_TYPES.get(serde.name)
    if kind is None:
        return pa.array([one.decode("utf-8", "replace") for one in data], pa.string())
    return pa.array([serde.deserialize(one) for one in data], kind)


def _plain(value: object) -> object:
    """The value as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    members = members_of(value)
    return str(value) if members is None else _plain(members)
