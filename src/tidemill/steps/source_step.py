"""The first step of a plan: what a reader has fetched becomes tagged rows, closed by the end-of-batch marker.

Decides what is in a batch and its marker; the rows are ``source_chunk``'s, and fetching, seeking and waiting are the reader's
(``SourceReader``). Invariant: the marker is the last row of every batch, also of an empty one, and each Arrow batch closes with a
control row, so that the last step can tell a whole batch from one that was cut short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from tidemill.ids import TopicPartition
from tidemill.steps.rows.schema import MARKER, control_row
from tidemill.steps.source_chunk import Arriving, chunk_rows, restored_rows
from tidemill.steps.step_spec import SourceSpec
from tidemill.task.batch import BatchRequest, Marker, SourceProgress
from tidemill.task.message_pack import pack
from tidemill.task.raw_records import FetchedRecord


class SourceReader(Protocol):
    """Consumers that hold partitions from batch to batch."""

    def place(self, request: BatchRequest) -> None:
        """Makes the next read start where the request says; cheap when it already does."""

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[FetchedRecord]]]:
        """Chunks of records and whether they are changelog records to restore.

        Downstream partitions first, up to the request's caps; waits up to ``wait_ms`` for the first one. Source topics and
        repartition topics may have to rest first (``sources_rest_ms``, ``internal_rest_ms``)."""

    def ends(self) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """(inputs, changelogs): the positions."""

    def global_ends(self) -> Mapping[TopicPartition, int]:
        """Positions in the topics of global stores."""

    def out_of_range(self) -> tuple[TopicPartition, ...]: ...

    def truncated(self) -> Mapping[TopicPartition, int]: ...

    def high_watermarks(self) -> Mapping[TopicPartition, int]: ...

    @property
    def is_full(self) -> bool:
        """True if the last read ended because it had as many bytes as a batch may."""

    @property
    def has_read_sources(self) -> bool:
        """True if the last read has got as far as the source topics."""


class _Spent:
    """Milliseconds by what they were spent on."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._mark = time.perf_counter()

    def on(self, what: str) -> None:
        """All since the last call."""
        before, self._mark = self._mark, time.perf_counter()
        self.ms[what] = round(self.ms.get(what, 0.0) + (self._mark - before) * 1e3, 2)


def source_rows(
    reader: SourceReader, request: BatchRequest, spec: SourceSpec, advanced: Callable[[SourceProgress], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """One micro-batch; ``advanced`` is called before each chunk with what is handed over by then, and also before a chunk of
    inputs is converted, whose ends are not known then."""
    arriving = Arriving({tp: time.ms for tp, time in request.times.items()})
    if request.reads:
        reader.place(request)
    chunks = rows = 0
    spent = _Spent()
    so_far = SourceProgress()
    for restoring, messages in reader.read(request) if request.reads else ():
        spent.on("read")
        if advanced is not None and not restoring:
            # Serdes and extractors may take too long, or end this process: the next batch is smaller only if it is known of what.
            advanced(_with_chunk(so_far, messages, request, arriving, restoring=False))
        made = restored_rows(messages, spec, chunks) if restoring else chunk_rows(messages, spec, arriving, request, chunks, rows)
        if advanced is not None:
            so_far = _with_chunk(so_far, messages, request, arriving, restoring=restoring)
            advanced(so_far)
        spent.on("convert")
        yield made
        spent.on("hand on")
        chunks += 1
        rows += len(messages)
    spent.on("read")
    yield marker_rows(_marker(reader, request, arriving, chunks=chunks, rows=rows, source_ms=spent.ms))


def _marker(
    reader: SourceReader, request: BatchRequest, arriving: Arriving, *, chunks: int, rows: int, source_ms: Mapping[str, float]
) -> Marker:
    """The end of a batch: by this the last step knows whether it has all of it. A batch that reads nothing has no ends."""
    reads = request.reads
    inputs, changelogs = reader.ends() if reads else ({}, {})
    return Marker(
        batch_id=request.batch_id,
        starts=request.inputs,
        ends=inputs,
        changelog_ends=changelogs,
        chunks=chunks,
        rows=rows,
        out_of_range=reader.out_of_range() if reads else (),
        truncated=reader.truncated() if reads else {},
        high_watermarks=reader.high_watermarks(),
        global_ends=reader.global_ends() if request.globals else {},
        partition_stats=arriving.partition_stats,
        is_full=reads and reader.is_full,
        has_read_sources=reads and reader.has_read_sources,
        source_ms=source_ms,
    )


def _with_chunk(
    so_far: SourceProgress, messages: Sequence[FetchedRecord], request: BatchRequest, arriving: Arriving, *, restoring: bool
) -> SourceProgress:
    """With a chunk, which is of one kind; records for global stores count as restored."""
    tp = TopicPartition(messages[0].topic(), messages[0].partition())
    if restoring or tp not in request.inputs:
        return replace(so_far, restored=so_far.restored + len(messages))
    first = so_far.first or (tp, messages[0].offset())
    ends = {tp: end for tp, end in arriving.ends.items() if tp in request.inputs}
    return replace(so_far, records=so_far.records + len(messages), first=first, ends=ends)


def marker_rows(marker: Marker) -> pa.RecordBatch:
    return control_row(MARKER, marker.batch_id, pack(marker))
