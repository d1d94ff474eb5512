"""A batch as the last step finds it: rows by tag, and whether the batch is whole (correctness.md, rule 1).

Decides whether a batch is whole, was cut short or repeated, or is another one; the consequence is the step's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.steps.rows.order import ranked
from tidemill.steps.rows.schema import CHUNK, MARKER
from tidemill.task.batch import BatchRequest, Marker
from tidemill.task.message_pack import unpack


@dataclass(slots=True, kw_only=True)
class Gathered:
    """The rows of a batch that have arrived."""

    tables: dict[int, pa.Table]
    """By tag, in the order of the records (``rows.order``)."""
    marker: Marker | None
    """None: the batch was cut short."""
    chunks: int
    """Number of chunks that have arrived whole: those of which the control row is here."""
    rows: int
    """Number of rows that the source step has sent in these chunks."""
    has_doubles: bool
    """A control row is here twice."""


def gather(batches: Iterable[pa.RecordBatch]) -> Gathered:
    held = [batch for batch in batches if batch.num_rows]
    if not held:
        return Gathered(tables={}, marker=None, chunks=0, rows=0, has_doubles=False)
    # One copy here makes each ``take`` below one of a single array.
    table = ranked(pa.Table.from_batches(held).combine_chunks())
    nodes = table.column("node").to_numpy()
    tables = {tag: _tagged(table, nodes, tag) for tag in np.unique(nodes).tolist()}
    markers = tables.pop(MARKER, None)
    chunks = tables.pop(CHUNK, None)
    marker = None if markers is None else unpack(markers.column("value")[0].as_py(), Marker)
    numbers = [] if chunks is None else chunks.column("off").to_pylist()
    distinct = len(set(numbers))
    return Gathered(
        tables=tables,
        marker=marker,
        chunks=distinct,
        rows=0 if chunks is None else sum(chunks.column("ts").to_pylist()),
        has_doubles=distinct < len(numbers) or (markers is not None and markers.num_rows > 1),
    )


def _tagged(table: pa.Table, nodes: np.ndarray, tag: int) -> pa.Table:
    """The rows of a tag, without a copy where they lie together."""
    at = np.flatnonzero(nodes == tag)
    if at[-1] - at[0] + 1 == len(at):
        return table.slice(at[0], len(at))
    return table.take(pa.array(at))


def why_not_whole(gathered: Gathered, request: BatchRequest) -> str | None:
    """The reason why the batch must not be used, if there is one (rule 1)."""
    marker = gathered.marker
    if marker is None:
        return "the batch was cut short: its end-of-batch marker is missing"
    if gathered.has_doubles:
        return "the batch holds a control row twice"
    if marker.batch_id != request.batch_id:
        return f"the source step answered batch {marker.batch_id}, expected {request.batch_id}"
    if (marker.chunks, marker.rows) != (gathered.chunks, gathered.rows):
        return f"{gathered.rows} rows in {gathered.chunks} chunks arrived, the source sent {marker.rows} in {marker.chunks}"
    if dict(marker.starts) != dict(request.inputs):
        return "the source step did not start where the request says"
    return None
