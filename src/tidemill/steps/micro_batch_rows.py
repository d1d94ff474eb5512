"""A run's rows, cut into micro-batches: each begins with its request, which travels with the data, and ends with its marker.

Decides where one micro-batch ends and the next begins, on both sides: what the source step puts around a batch's rows, and how a
later step finds it again. One that is cut short has no marker, which is for the step to see (correctness.md, rule 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.steps.rows.schema import FILLER, HEAD, MARKER, SCHEMA
from tidemill.steps.standing import WorkerOutput, rows_behind
from tidemill.task.batch import BatchRequest, request_from_json, request_to_json

RowsOf = Callable[[BatchRequest], Iterable[pa.RecordBatch]]


def source_run(asked: Callable[[], str | None], rows_of: RowsOf, *, stands: bool, steps: int) -> Iterator[pa.RecordBatch]:
    """The source step of a run with so many later steps: the rows of one request after the other, until there are no more.
    ``asked`` gives the next one as JSON."""
    output = WorkerOutput()
    while (text := asked()) is not None:
        yield head_rows(text)
        yield from rows_of(request_from_json(text))
        if not stands:
            return
        yield from rows_behind(next_is_last=steps == 1)
        output.flush()


def head_rows(request: str) -> pa.RecordBatch:
    """``request``: as JSON."""
    values: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    values.update(node=HEAD, part=-1, off=-1, seq=0, ts=0, value=request.encode())
    return pa.RecordBatch.from_pylist([values], schema=SCHEMA)


def step_run(
    batches: Iterable[pa.RecordBatch], run: Callable[[BatchRequest, Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]],
    served: Callable[[int], None], *, stands: bool, next_is_last: bool,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """A later step that is not the last: hands on each request, and what ``run`` makes of its rows. ``served`` returns when the
    last step has reported of a batch."""
    output = WorkerOutput()
    for request, rows in micro_batches(batches):
        yield head_rows(request_to_json(request))
        yield from run(request, rows)
        if stands:
            yield from rows_behind(next_is_last=next_is_last)
            output.flush()
            served(request.batch_id)


def micro_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[BatchRequest, Iterator[pa.RecordBatch]]]:
    """Each micro-batch's request and its rows, its marker the last; they are to be taken before the next one is asked for."""
    pieces = _pieces(batches)
    for piece in pieces:
        if _tag(piece) == HEAD:
            yield request_from_json(piece.column("value")[0].as_py()), _until_marker(pieces)


def _until_marker(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        yield piece
        if _tag(piece) == MARKER:
            return


def _tag(piece: pa.RecordBatch) -> int | None:
    """What a control row of its own is."""
    return piece.column("node")[0].as_py() if piece.num_rows == 1 else None


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows without fillers; each head and each marker by itself."""
    for batch in batches:
        nodes = batch.column("node").to_numpy()
        kept, begin = batch, 0
        if (nodes == FILLER).any():
            kept, nodes = batch.filter(pa.array(nodes != FILLER)), nodes[nodes != FILLER]
        for at in np.flatnonzero((nodes == HEAD) | (nodes == MARKER)).tolist():
            if at > begin:
                yield kept.slice(begin, at - begin)
            yield kept.slice(at, 1)
            begin = at + 1
        if begin < kept.num_rows:
            yield kept.slice(begin)
