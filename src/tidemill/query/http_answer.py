"""Rows in HTTP answers: JSON, or an Arrow stream.

Decides which Arrow type each serde has: that of its Spark type if it is a scalar, else text with the JSON (of a json serde, as it
is stored). Leaves values in JSON to ``http_values``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa

from tidemill.query.http_values import plain, shown_key
from tidemill.query.rows import Row
from tidemill.query.store_info import StoreInfo
from tidemill.state.keys import TIMESTAMP_SIZE
from tidemill.topology.values import Serde

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
_ARROW_TYPES = {
    "string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "smallint": pa.int16(), "double": pa.float64(),
    "float": pa.float32(), "boolean": pa.bool_(), "binary": pa.binary(),
}  # fmt: skip


def to_json(answer: Mapping[str, object]) -> bytes:
    return json.dumps(plain(answer), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def entry(store: StoreInfo, row: Row, *, hex_keys: bool) -> dict[str, object]:
    """SerdeError if the store's serdes can't read the row."""
    found = {"key": shown_key(store, row.key, hex_keys=hex_keys), "value": store.value(row.stored)}
    timestamp_ms = store.timestamp_ms(row.stored)
    return found if timestamp_ms is None else {**found, "timestamp": timestamp_ms}


def to_arrow(store: StoreInfo, rows: Sequence[Row], info: Mapping[str, object], *, hex_keys: bool) -> bytes:
    """Columns key, value and, if the store keeps them, timestamp; ``info`` as metadata of the schema."""
    keys = pa.array([row.key.hex() for row in rows], pa.string()) if hex_keys else _column(store.key_serde, [r.key for r in rows])
    skipped = TIMESTAMP_SIZE if store.timestamped else 0
    columns = {"key": keys, "value": _column(store.value_serde, [row.stored[skipped:] for row in rows])}
    if store.timestamped:
        columns["timestamp"] = pa.array([store.timestamp_ms(row.stored) for row in rows], pa.timestamp("ms", "UTC"))
    metadata = {f"tidemill.{name}": json.dumps(plain(value)) for name, value in info.items()}
    batch = pa.RecordBatch.from_pydict(columns, metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _column(serde: Serde, data: Sequence[bytes]) -> pa.Array:
    if serde.name == "json":
        return pa.array([one.decode("utf-8", "replace") for one in data], pa.string())
    kind = _ARROW_TYPES.get(serde.sql_type)
    values = [serde.deserialize(one) for one in data]
    if kind is None:
        return pa.array([json.dumps(plain(value), ensure_ascii=False) for value in values], pa.string())
    return pa.array([plain(value) for value in values] if serde.sql_type == "string" else values, kind)
