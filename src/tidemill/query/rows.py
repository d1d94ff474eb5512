"""Rows as they stand in stores, and questions for them: what instances ask each other and merge.

Decides that an answer says which partitions it covers and how far behind each is, so that whoever asks may take the rest from
elsewhere; and its bytes (an Arrow stream). Rows are the first ``limit`` by key's bytes of the partitions that are covered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from tidemill.query.local_copies import CopyReader

MEDIA_TYPE = "application/vnd.tidemill.rows"
_COVERED = b"tidemill.covered"
_SCHEMA = pa.schema([("key", pa.binary()), ("stored", pa.binary()), ("partition", pa.int32())])


class Row(NamedTuple):
    """An entry as the store has it."""

    key: bytes
    stored: bytes
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsQuestion:
    """One ``key``, or the keys from ``low`` to ``high`` (both included; None: no bound), of some partitions.

    ``times``: of a store of windows or sessions, those of ``key`` between two times (``windowed_rows``).
    """

    partitions: frozenset[int]
    key: bytes | None = None
    low: bytes | None = None
    high: bytes | None = None
    limit: int = 1
    times: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """``covered``: partition -> how many offsets its copy is behind (0: the active)."""

    rows: tuple[Row, ...] = ()
    covered: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def merged(cls, parts: Sequence[Rows], limit: int) -> Rows:
        covered = {partition: lag for part in parts for partition, lag in part.covered.items()}
        return cls(rows=tuple(islice(merge(*(part.rows for part in parts)), limit)), covered=covered)

    def to_bytes(self) -> bytes:
        columns = [pa.array([row[at] for row in self.rows], kind) for at, kind in enumerate(_SCHEMA.types)]
        schema = _SCHEMA.with_metadata({_COVERED: json.dumps({str(p): lag for p, lag in self.covered.items()})})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes) -> Rows:
        """ValueError if no instance of Tidemill wrote these."""
        try:
            table = pa.ipc.open_stream(data).read_all()
            covered = json.loads((table.schema.metadata or {})[_COVERED])
            if not table.schema.equals(_SCHEMA):
                raise ValueError(f"not rows of a store: found the columns {table.schema.names}")
            columns = [column.to_pylist() for column in table.columns]
            return cls(
                rows=tuple(Row(*row) for row in zip(*columns, strict=True)),
                covered={int(partition): int(lag) for partition, lag in covered.items()},
            )
        except (pa.ArrowException, OSError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not rows of a store: {error}") from error


def first_rows(reader: CopyReader, question: RowsQuestion, lag: int) -> Rows:
    """What one copy answers. InvalidStateStoreError if it can't be read after all."""
    covered = {reader.partition: lag}
    if question.key is not None:
        stored = reader.get(question.key)
        return Rows(rows=() if stored is None else (Row(question.key, stored, reader.partition),), covered=covered)
    scan = reader.scan(question.low, question.high, chunk=min(question.limit, 1000))
    rows = tuple(Row(key, stored, reader.partition) for key, stored in islice(scan, question.limit))
    reader.position()  # the scan's own check comes at its end, which may not have been reached
    return Rows(rows=rows, covered=covered)
