"""The first step of a plan: what a reader has fetched becomes tagged rows, closed by the end-of-batch marker.

Decides the rows and the marker; fetching, seeking and waiting are the reader's (``SourceReader``). Invariant: the marker is
the last row of every batch, also of an empty one, and each Arrow batch closes with a control row that says how many rows it
has, so that the last step can tell a whole batch from one that was cut short.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from tidemill.errors import RecordError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.operators.record import Record, extracted_time, invalid_timestamp
from tidemill.steps.rows.codecs_wire import Physical
from tidemill.steps.rows.headers import packed
from tidemill.steps.rows.order import sequence
from tidemill.steps.rows.partition_stats import add_arrivals
from tidemill.steps.rows.schema import (
    CHUNK,
    DROPPED_COUNT,
    MARKER,
    REFUSED,
    SCHEMA,
    SUMMED_HEADER,
    UNREADABLE,
    UNREADABLE_HEADERS,
    control_row,
)
from tidemill.steps.step_spec import SourceSpec, SourceTopic
from tidemill.task.batch import Arrived, BatchRequest, Marker, RefusedRecord, Taken
from tidemill.task.message_pack import pack
from tidemill.task.partition_time import UNKNOWN_TIME
from tidemill.task.raw_records import FetchedRecord, Headers

_LONG = struct.Struct(">q")


Column = list[Any]
"""Of a column of ``SCHEMA``: bytes, numbers, and None."""
Columns = dict[str, "Column | None"]


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

    def high_watermarks(self) -> Mapping[TopicPartition, int]: ...

    @property
    def is_full(self) -> bool:
        """True if the last read ended because it had as many bytes as a batch may."""

    @property
    def has_read_sources(self) -> bool:
        """True if the last read has got as far as the source topics."""


@dataclass(slots=True)
class _Arriving:
    """Progress of a batch in each input."""

    times: dict[TopicPartition, int]
    """The highest timestamps, those of before included; kept up to date where the source has a timestamp extractor."""
    arrived: dict[TopicPartition, Arrived] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)


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
    reader: SourceReader, request: BatchRequest, spec: SourceSpec, taking: Callable[[Taken], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """One micro-batch; ``taking`` is called before each chunk with what is handed over by then."""
    taken = _Arriving({tp: time.ms for tp, time in request.times.items()})
    if request.reads:
        reader.place(request)
    chunks = rows = 0
    spent = _Spent()
    so_far = Taken()
    for restoring, messages in reader.read(request) if request.reads else ():
        spent.on("read")
        made = restored_rows(messages, spec, chunks) if restoring else chunk_rows(messages, spec, taken, request, chunks, rows)
        if taking is not None:
            so_far = _with_chunk(so_far, messages, request, taken, restoring=restoring)
            taking(so_far)
        spent.on("convert")
        yield made
        spent.on("hand on")
        chunks += 1
        rows += len(messages)
    spent.on("read")
    inputs, changelogs = reader.ends() if request.reads else ({}, {})
    marker = Marker(
        batch_id=request.batch_id,
        starts=request.inputs,
        ends=inputs,
        changelog_ends=changelogs,
        chunks=chunks,
        rows=rows,
        out_of_range=reader.out_of_range() if request.reads else (),
        high_watermarks=reader.high_watermarks(),
        global_ends=reader.global_ends() if request.globals else {},
        arrived=taken.arrived,
        is_full=request.reads and reader.is_full,
        has_read_sources=request.reads and reader.has_read_sources,
        source_ms=spent.ms,
    )
    yield marker_rows(marker)


def _with_chunk(
    so_far: Taken, messages: Sequence[FetchedRecord], request: BatchRequest, arriving: _Arriving, *, restoring: bool
) -> Taken:
    """With a chunk, which is of one kind; records for global stores count as restored."""
    tp = TopicPartition(messages[0].topic(), messages[0].partition())
    if restoring or tp not in request.inputs:
        return replace(so_far, restored=so_far.restored + len(messages))
    first = so_far.first or (tp, messages[0].offset())
    ends = {tp: end for tp, end in arriving.ends.items() if tp in request.inputs}
    return replace(so_far, records=so_far.records + len(messages), first=first, ends=ends)


def chunk_rows(
    messages: Sequence[FetchedRecord], spec: SourceSpec, taken: _Arriving, request: BatchRequest, index: int, before: int
) -> pa.RecordBatch:
    """The messages as rows in their order, and the chunk's control row; ``before``: rows of earlier chunks."""
    topics = [m.topic() for m in messages]
    distinct = set(topics)
    sources = spec.topics
    if len(distinct) == 1:
        node = [sources[topics[0]].tag] * len(messages)
        which = [sources[topics[0]].index] * len(messages)
    else:
        node = [sources[t].tag for t in topics]
        which = [sources[t].index for t in topics]
    seq = [sequence(number, at) for number, at in enumerate(which, start=before)]
    keys = [m.key() for m in messages]
    values = [m.value() for m in messages]
    headers, unreadable = _headers_of(messages)
    columns: Columns = {"key_num": None, "value_num": None, "key_dbl": None, "value_dbl": None, "n": None}
    if any(headers):
        _take_sums(columns, node, values, headers, topics, sources)
    for at in unreadable:
        _set_aside(columns, node, at, sources[topics[at]])
    stamps = [m.timestamp()[1] for m in messages]
    if min(stamps, default=0) < 0:
        _check_times(messages, sources, stamps)
    if any(sources[topic].extraction is not None for topic in distinct):
        _extract(messages, sources, taken.times, stamps, node, headers)
    if request.refused:
        _refuse(request.refused, messages, columns, node, sources)
    for topic in distinct:
        _convert(columns, node, keys, values, topics, topic, sources[topic])
    columns |= {"key": keys, "value": values, "wall": [request.now_ms] * len(messages)}
    columns["headers"] = [packed(row) for row in headers] if any(headers) else None
    made = _batch(messages, node, seq, stamps, columns, index)
    add_arrivals(taken.arrived, taken.ends, topics, distinct, made)
    return made


def _headers_of(messages: Sequence[FetchedRecord]) -> tuple[list[Headers | None], list[int]]:
    """Each record's headers, and where some can't be read: confluent-kafka fails on a name that is no UTF-8."""
    headers: list[Headers | None] = []
    unreadable: list[int] = []
    for at, message in enumerate(messages):
        try:
            headers.append(message.headers())
        except (SystemError, UnicodeDecodeError):  # never ask it again: what it would give then is broken
            headers.append([(UNREADABLE_HEADERS, None)])
            unreadable.append(at)
    return headers, unreadable


def _check_times(messages: Sequence[FetchedRecord], sources: Mapping[str, SourceTopic], stamps: Sequence[int]) -> None:
    """A negative timestamp ends the thread where no extractor looks at it, as Kafka Streams' ``FailOnInvalidTimestamp`` does."""
    for message, stamp in zip(messages, stamps, strict=True):
        source = sources[message.topic()]
        if stamp < 0 and source.extraction is None:
            raise RecordError(
                f"{source.node}: {invalid_timestamp(stamp)}",
                task="source", topic=message.topic(), partition=message.partition(), offset=message.offset(),
            )  # fmt: skip


def _refuse(
    refused: Sequence[RefusedRecord], messages: Sequence[FetchedRecord], columns: Columns, node: list[int],
    sources: Mapping[str, SourceTopic],
) -> None:  # fmt: skip
    """Tags the records that no function is to get; the last step says what becomes of them."""
    wanted = {(record.topic, record.partition, record.offset) for record in refused}
    for at, message in enumerate(messages):
        if (message.topic(), message.partition(), message.offset()) in wanted and node[at] != DROPPED_COUNT:
            node[at] = REFUSED
            _which(columns, len(messages))[at] = sources[message.topic()].tag // 2


def _which(columns: Columns, count: int) -> Column:
    """The column that says which source node the bytes of a record were for."""
    which = columns["n"]
    if which is None:
        which = columns["n"] = [None] * count
    return which


def _extract(
    messages: Sequence[FetchedRecord], sources: Mapping[str, SourceTopic], times: dict[TopicPartition, int], stamps: list[int],
    node: list[int], headers: Sequence[Headers | None],
) -> None:  # fmt: skip
    """The timestamps that the sources' extractors give; a record that gets a negative one is dropped."""
    for at, message in enumerate(messages):
        source = sources[message.topic()]
        how = source.extraction
        if how is None or node[at] == UNREADABLE:
            continue
        try:
            key, value = how.key_serde.deserialize(message.key()), how.value_serde.deserialize(message.value())
        except RetriableError:
            raise
        except Exception:  # a deserializer's, as in Kafka Streams whatever it raises
            continue  # the step that reads it finds it unreadable
        partition = TopicPartition(message.topic(), message.partition())
        before = times.get(partition, UNKNOWN_TIME)
        record = Record(key, value, stamps[at], tuple(headers[at] or ()))
        try:
            stamps[at] = extracted_time(how.extractor(record, before))
        except Exception as problem:
            raise RecordError(
                f"the timestamp extractor of {source.node} failed: {type(problem).__name__}: {problem}",
                task="source", topic=message.topic(), partition=message.partition(), offset=message.offset(),
            ) from problem  # fmt: skip
        if stamps[at] < 0:
            node[at] = DROPPED_COUNT
        elif stamps[at] > before:
            times[partition] = stamps[at]


def restored_rows(messages: Sequence[FetchedRecord], spec: SourceSpec, index: int) -> pa.RecordBatch:
    """Changelog records: bytes as they are."""
    node = [spec.changelogs[m.topic()] for m in messages]
    columns: Columns = {"key": [m.key() for m in messages], "value": [m.value() for m in messages]}
    headers, unreadable = _headers_of(messages)
    for at in unreadable:
        message = messages[at]
        raise RecordError(
            "a header's name is no UTF-8: something else writes to the changelog", task="source", topic=message.topic(),
            partition=message.partition(), offset=message.offset(),
        )  # fmt: skip
    columns["headers"] = [packed(row) for row in headers] if any(headers) else None
    stamps = [m.timestamp()[1] for m in messages]
    return _batch(messages, node, list(range(len(messages))), stamps, columns, index)


def _batch(
    messages: Sequence[FetchedRecord],
    node: list[int],
    seq: list[int],
    stamps: list[int],
    columns: Columns,
    index: int,
) -> pa.RecordBatch:
    """The columns and the chunk's control row."""
    count = len(messages)
    arrays = {
        "node": pa.array([*node, CHUNK], pa.int32()),
        "part": pa.array([*[m.partition() for m in messages], -1], pa.int32()),
        "off": pa.array([*[m.offset() for m in messages], index], pa.int64()),
        "seq": pa.array([*seq, 0], pa.int64()),
        "ts": pa.array([*stamps, count], pa.int64()),
    }
    for name in SCHEMA.names:
        if name not in arrays:
            column, kind = columns.get(name), SCHEMA.field(name).type
            arrays[name] = pa.nulls(count + 1, kind) if column is None else pa.array([*column, None], kind)
    return pa.RecordBatch.from_arrays([arrays[name] for name in SCHEMA.names], schema=SCHEMA)


def marker_rows(marker: Marker) -> pa.RecordBatch:
    return control_row(MARKER, marker.batch_id, pack(marker))


def _take_sums(
    columns: Columns,
    node: list[int],
    values: Column,
    headers: list[Headers | None],
    topics: list[str],
    sources: Mapping[str, SourceTopic],
) -> None:
    """A pre-summed record has no value of its own: its bytes are how many records it counts for, and nothing else is read.

    The header counts in the topics alone that this application writes sums to, where no other record has it.
    """
    sums: list[int | None] = [None] * len(values)
    for at, row in enumerate(headers):
        if not row or not sources[topics[at]].summable or all(name != SUMMED_HEADER for name, _ in row):
            continue
        count = _LONG.unpack(values[at])[0] if values[at] is not None and len(values[at]) == _LONG.size else 0
        if count > 0:
            sums[at] = count
            values[at] = headers[at] = None
        else:
            node[at], sums[at] = UNREADABLE, sources[topics[at]].tag // 2
    columns["n"] = sums


def _convert(
    columns: Columns,
    node: list[int],
    keys: Column,
    values: Column,
    topics: list[str],
    topic: str,
    source: SourceTopic,
) -> None:
    """Keys and values as the JVM takes them.

    A record whose bytes a serde can't read is set aside, bytes untouched.
    """
    places = [at for at, found in enumerate(topics) if found == topic and node[at] not in (UNREADABLE, REFUSED)]
    sides = [
        (side, raw, intake.kind, intake.take([raw[at] for at in places]))
        for side, raw, intake in (("key", keys, source.key), ("value", values, source.value))
        if intake is not None
    ]
    unreadable = {places[at] for *_, (_, found) in sides for at in found}
    for at in unreadable:
        _set_aside(columns, node, at, source)
    is_whole = not unreadable and len(places) == len(topics)
    for side, raw, kind, (taken, _) in sides:
        to = raw if kind is Physical.BYTES else _column(columns, side + kind.value, len(topics))
        if is_whole:
            raw[:] = [None] * len(raw)
            to[:] = taken
            continue
        for at, native in zip(places, taken, strict=True):
            if at not in unreadable:
                raw[at] = None
                to[at] = native


def _column(columns: Columns, name: str, size: int) -> Column:
    found = columns[name]
    if found is None:
        found = columns[name] = [None] * size
    return found


def _set_aside(columns: Columns, node: list[int], at: int, source: SourceTopic) -> None:
    """Tags a record as one that can't be read."""
    node[at] = UNREADABLE
    _which(columns, len(node))[at] = source.tag // 2
