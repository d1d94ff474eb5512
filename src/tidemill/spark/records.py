"""Records between the nodes of a Python step: columns of equal length, keys and values as bytes.

Decides how rows become records and back; bytes are those of the edge's serde, so that a sink or a changelog takes them as
they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.spark.codecs_wire import Physical, fixed_width, physical
from tidemill.spark.rows import HEADERS_TYPE, SCHEMA

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class Records:
    """Columns of some records of one node. ``offsets`` are those of the source records (None: summed), for order and messages.

    ``counts``: how many source records each one stands for; None = one each.
    """

    parts: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: list[int | None]
    headers: list[Headers | None] | None = None
    counts: list[int] | None = None

    def __len__(self) -> int:
        return len(self.parts)

    def header(self, at: int) -> Headers | None:
        return None if self.headers is None else self.headers[at]


def from_rows(table: pa.Table, key_serde: Any, value_serde: Any | None, *, ordered: bool) -> Records:
    """The rows of one node as records; ``ordered`` sorts them by source offset within each partition (rule 25)."""
    if ordered and table.num_rows > 1 and not _is_ordered(table):
        table = table.sort_by([("part", "ascending"), ("off", "ascending"), ("seq", "ascending")])
    counts = table.column("n")
    headers = table.column("headers")
    return Records(
        parts=table.column("part").to_pylist(),
        keys=_side(table, "key", key_serde),
        values=[None] * table.num_rows if value_serde is None else _side(table, "value", value_serde),
        timestamps=table.column("ts").to_pylist(),
        offsets=table.column("off").to_pylist(),
        headers=None if headers.null_count == table.num_rows else [_headers(row) for row in headers.to_pylist()],
        counts=None if counts.null_count == table.num_rows else [n or 1 for n in counts.to_pylist()],
    )


def _is_ordered(table: pa.Table) -> bool:
    """Rows of one partition come in offset order unless the JVM has summed some of them; then all may be mixed."""
    parts, offsets = table.column("part").combine_chunks(), table.column("off").combine_chunks()
    if offsets.null_count or len(pc.unique(parts)) > 1:
        return False
    rises = pc.less_equal(offsets.slice(0, len(offsets) - 1), offsets.slice(1))
    sequence = table.column("seq").combine_chunks()
    flat = pc.all(pc.equal(sequence, 0)).as_py()
    return bool(flat and pc.all(rises).as_py())


def _side(table: pa.Table, side: str, serde: Any) -> list[bytes | None]:
    kind = physical(serde.sql_type)
    if kind is Physical.BYTES:
        found: list[bytes | None] = table.column(side).to_pylist()
        return found
    fixed = fixed_width(serde.sql_type)
    assert fixed is not None
    return [None if v is None else fixed.encode(v) for v in table.column(side + kind.value).to_pylist()]


def _headers(row: Any) -> Headers | None:
    return [(h["name"], h["value"]) for h in row] if row else None


def to_rows(records: Records, tag: int, key_serde: Any, value_serde: Any) -> pa.RecordBatch:
    """Records as rows for the next layer."""
    count = len(records)
    columns: dict[str, pa.Array] = {name: pa.nulls(count, SCHEMA.field(name).type) for name in SCHEMA.names}
    columns["node"] = pa.array([tag] * count, pa.int32())
    columns["part"] = pa.array(records.parts, pa.int32())
    columns["off"] = pa.array(records.offsets, pa.int64())
    columns["seq"] = pa.array(range(count), pa.int64())
    columns["ts"] = pa.array(records.timestamps, pa.int64())
    if records.headers is not None:
        rows = [[{"name": n, "value": v} for n, v in row] if row else None for row in records.headers]
        columns["headers"] = pa.array(rows, HEADERS_TYPE)
    for side, data, serde in (("key", records.keys, key_serde), ("value", records.values, value_serde)):
        fixed = fixed_width(serde.sql_type)
        if fixed is None:
            columns[side] = pa.array(data, pa.binary())
        else:
            name = side + physical(serde.sql_type).value
            columns[name] = pa.array([None if v is None else fixed.decode(v) for v in data], SCHEMA.field(name).type)
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
