"""Changelog records on their way to the last step: many in one row.

No function of Columns gets them, so nothing in the JVM looks at one by itself, and a row each would cost there as much as
writing it to a store. A row of a store's tag holds as many as ``_PACKED_BYTES`` takes, as one Arrow record batch. Layers that
combine rows (``spark.plan.combined_rows``) keep two such rows apart by these bytes: no batch reads a record twice.

Decides that form only, which no one outside of a micro-batch sees; what a record means is ``commit.restored``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidemill.steps.rows.schema import CHUNK, SCHEMA, control_rows

CHANGELOG_SCHEMA = pa.schema([SCHEMA.field(name) for name in ("part", "off", "ts", "headers", "key", "value")])
_PACKED_BYTES = 1 << 20
"""The JVM copies a row some times on its heap, which is small."""


def packed_rows(records: pa.RecordBatch, tags: Sequence[int], index: int) -> pa.RecordBatch:
    """One of the source's chunks, with its control row. ``records``: of ``CHANGELOG_SCHEMA``; ``tags``: their stores'."""
    nodes = np.asarray(tags, np.int32)
    packed = [
        (tag, piece.serialize().to_pybytes())
        for tag in np.unique(nodes).tolist()
        for piece in _pieces(records.filter(pa.array(nodes == tag)))
    ]
    return control_rows(
        node=[*(tag for tag, _ in packed), CHUNK],
        off=[*(0 for _ in packed), index],
        ts=[*(0 for _ in packed), records.num_rows],
        value=[*(each for _, each in packed), None],
    )


def _pieces(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """In their order, each of about ``_PACKED_BYTES`` at most."""
    length = max(1, records.num_rows * _PACKED_BYTES // max(records.nbytes, _PACKED_BYTES))
    return (records.slice(begin, length) for begin in range(0, records.num_rows, length))


def unpacked_records(packed: Iterable[bytes]) -> pa.Table:
    """The records of a store, whose rows have these values."""
    return pa.Table.from_batches(
        [pa.ipc.read_record_batch(pa.py_buffer(each), CHANGELOG_SCHEMA) for each in packed], CHANGELOG_SCHEMA
    )
