"""A run's rows, cut into micro-batches: each begins with its request, which travels with the data, and ends with its marker.

Decides the boundaries of micro-batches on both sides: the rows that the source step puts around a batch, and how a later step
finds them. A batch that was cut short has no marker, which the step checks (correctness.md, rule 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from tidemill.errors import StopError
from tidemill.steps.rows.schema import FILLER, HEAD, MARKER, control_row
from tidemill.steps.standing import WorkerOutput, rows_behind
from tidemill.task.batch import BatchRequest
from tidemill.task.message_pack import pack, unpack

RowsOf = Callable[[BatchRequest], Iterable[pa.RecordBatch]]


def source_run(asked: Callable[[], bytes | None], rows_of: RowsOf, *, is_standing: bool, steps: int) -> Iterator[pa.RecordBatch]:
    """The source step of a run with ``steps`` later steps: the rows of one request after the other, until there are no more.
    ``asked`` gives the next one, packed."""
    output = WorkerOutput()
    while (packed := asked()) is not None:
        yield head_rows(packed)
        yield from rows_of(unpack(packed, BatchRequest))
        if not is_standing:
            return  # the input's end hands on what is left
        yield from rows_behind(next_is_last=steps == 1)
        output.flush()


def head_rows(request: bytes) -> pa.RecordBatch:
    """``request``: packed."""
    return control_row(HEAD, -1, request)


def step_run(
    batches: Iterable[pa.RecordBatch], run: Callable[[BatchRequest, Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]],
    served: Callable[[int], None], *, is_standing: bool, next_is_last: bool,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """A later step that is not the last: hands on each request, and what ``run`` makes of its rows. ``served`` returns when the
    last step has reported of a batch. A batch that ``run`` cuts short is the step's last: the next one sees it by the end of its
    input, where in a standing run it would wait for the marker."""
    output = WorkerOutput()
    for request, rows in micro_batches(batches):
        yield head_rows(pack(request))
        is_whole = False
        for made in run(request, rows):
            is_whole = _tag(made) == MARKER
            yield made
        if not is_whole:
            return
        if is_standing:
            yield from rows_behind(next_is_last=next_is_last)
            output.flush()
            served(request.batch_id)


def micro_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[BatchRequest, Iterator[pa.RecordBatch]]]:
    """Each micro-batch's request and its rows, its marker the last; they are to be taken before the next one is asked for.

    Raises:
        StopError: rows that are in none, which would be lost.
    """
    pieces = _pieces(batches)
    for piece in pieces:
        if _tag(piece) != HEAD:
            raise StopError(
                f"a Python step got {piece.num_rows} rows outside of a micro-batch, expected its head and marker around them: "
                "Spark has handed rows on in an order that Tidemill does not know; please report it with your spark.sql settings"
            )
        yield unpack(piece.column("value")[0].as_py(), BatchRequest), _until_marker(pieces)


def _until_marker(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        yield piece
        if _tag(piece) == MARKER:
            return


def _tag(piece: pa.RecordBatch) -> int | None:
    """The tag of a batch that is one control row; None for other rows."""
    return piece.column("node")[0].as_py() if piece.num_rows == 1 else None


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows without fillers; each head and each marker by itself."""
    for batch in batches:
        nodes = batch.column("node").to_numpy()
        begin = 0
        found = np.flatnonzero((nodes == HEAD) | (nodes == MARKER) | (nodes == FILLER))
        for at, tag in zip(found.tolist(), nodes[found].tolist(), strict=True):
            if at > begin:
                yield batch.slice(begin, at - begin)
            if tag != FILLER:
                yield batch.slice(at, 1)
            begin = at + 1
        if begin < batch.num_rows:
            yield batch.slice(begin)
