"""Records on their way to the last step that no function of Columns gets: many in one row.

Changelog records to restore, and what an earlier Python step has written to stores and to changelogs. Nothing in the JVM looks at
one of them by itself, and a row each would cost there as much as writing it to a store. A row holds as many as ``_PACKED_BYTES``
takes, as one Arrow record batch of ``PACKED_SCHEMA``; its tag says whose they are. Layers that combine rows
(``spark.plan.combined_rows``) keep two such rows apart by these bytes and by ``child``.

Decides that form only, which no one outside of a micro-batch sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidemill.steps.rows.schema import SCHEMA

PACKED_SCHEMA = pa.schema([SCHEMA.field(name) for name in ("part", "off", "ts", "headers", "key", "value")])
_PACKED_BYTES = 1 << 20
"""The JVM copies a row some times on its heap, which is small."""


def packed(records: pa.RecordBatch) -> Iterator[bytes]:
    """The values of rows that hold the records, in their order."""
    length = max(1, records.num_rows * _PACKED_BYTES // max(records.nbytes, _PACKED_BYTES))
    for begin in range(0, records.num_rows, length):
        yield records.slice(begin, length).serialize().to_pybytes()


def unpacked(values: Iterable[bytes]) -> pa.Table:
    """The records that rows with these values hold."""
    return pa.Table.from_batches(
        [pa.ipc.read_record_batch(pa.py_buffer(each), PACKED_SCHEMA) for each in values], PACKED_SCHEMA
    )
