"""The first step of a plan: what a reader has fetched becomes tagged rows, closed by the end-of-batch marker.

Decides the rows and the marker; fetching, seeking and waiting are the reader's (``SourceReader``). Invariant: the marker is
the last row of every batch, also of an empty one, and each Arrow batch closes with a control row that says how many rows it
has, so that the last step can tell a whole batch from one that was cut short.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from tidemill.errors import RecordError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.operators.record import Record
from tidemill.spark.arrivals import add_arrivals
from tidemill.spark.codecs_wire import Physical
from tidemill.spark.headers import packed
from tidemill.spark.rows import CHUNK, DROPPED_COUNT, MARKER, SCHEMA, SUMMED_HEADER, UNREADABLE, first_sequence
from tidemill.spark.step_spec import SourceSpec, SourceTopic
from tidemill.task.batch import Arrived, BatchRequest, Marker, marker_to_json
from tidemill.task.partition_time import UNKNOWN_TIME

_LONG = struct.Struct(">q")


class SourceReader(Protocol):
    """Consumers that hold partitions from batch to batch."""

    def place(self, request: BatchRequest) -> None:
        """Makes the next read start where the request says; cheap when it already does."""

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[Any]]]:
        """Chunks of messages (confluent-kafka's) and whether they are changelog records to restore.

        Downstream partitions first, up to the request's caps; waits up to ``wait_ms`` for the first one."""

    def ends(self) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """(inputs, changelogs): where reading stands now."""

    def global_ends(self) -> Mapping[TopicPartition, int]:
        """Where reading of global stores' topics stands now."""

    def out_of_range(self) -> tuple[TopicPartition, ...]: ...

    def high_watermarks(self) -> Mapping[TopicPartition, int]: ...


@dataclass(slots=True)
class _Taken:
    """What a batch has read of each input so far."""

    times: dict[TopicPartition, int]
    """The highest timestamps, those of before included; kept up to date where the source has a timestamp extractor."""
    arrived: dict[TopicPartition, Arrived] = field(default_factory=dict)


def source_rows(reader: SourceReader, request: BatchRequest, spec: SourceSpec) -> Iterator[pa.RecordBatch]:
    """One micro-batch."""
    taken = _Taken({tp: time.ms for tp, time in request.times.items()})
    if request.reads:
        reader.place(request)
    chunks = rows = 0
    for restoring, messages in reader.read(request) if request.reads else ():
        if restoring:
            yield restored_rows(messages, spec, chunks)
        else:
            yield chunk_rows(messages, spec, taken, request.now_ms, chunks, rows)
        chunks += 1
        rows += len(messages)
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
    )
    yield marker_rows(marker)


def chunk_rows(
    messages: Sequence[Any], spec: SourceSpec, taken: _Taken, now_ms: int, index: int, before: int
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
    seq = [first_sequence(number, at) for number, at in enumerate(which, start=before)]
    keys = [m.key() for m in messages]
    values = [m.value() for m in messages]
    headers: list[Any] = [m.headers() for m in messages]
    columns: dict[str, list[Any] | None] = {"key_num": None, "value_num": None, "key_dbl": None, "value_dbl": None, "n": None}
    if any(headers):
        _take_sums(columns, values, headers, topics, sources)
    stamps = [m.timestamp()[1] for m in messages]
    if any(sources[topic].extractor is not None for topic in distinct):
        _extract(messages, sources, taken.times, stamps, node)
    for topic in distinct:
        _convert(columns, node, keys, values, topics, topic, sources[topic])
    columns |= {"key": keys, "value": values, "wall": [now_ms] * len(messages)}
    columns["headers"] = [packed(row) for row in headers] if any(headers) else None
    made = _batch(messages, node, seq, stamps, columns, index)
    add_arrivals(taken.arrived, topics, distinct, made)
    return made


def _extract(
    messages: Sequence[Any], sources: Mapping[str, SourceTopic], times: dict[TopicPartition, int], stamps: list[int],
    node: list[int],
) -> None:  # fmt: skip
    """The timestamps that the sources' extractors give; a record that gets a negative one is dropped."""
    for at, message in enumerate(messages):
        source = sources[message.topic()]
        if source.extractor is None:
            continue
        try:
            key, value = source.key_serde.deserialize(message.key()), source.value_serde.deserialize(message.value())
        except RetriableError:
            raise
        except Exception:  # a deserializer's, as in Kafka Streams whatever it raises
            continue  # the step that reads it finds it unreadable
        partition = TopicPartition(message.topic(), message.partition())
        before = times.get(partition, UNKNOWN_TIME)
        record = Record(key, value, stamps[at], tuple(message.headers() or ()))
        try:
            stamps[at] = source.extractor(record, before)
        except Exception as problem:
            raise RecordError(
                f"the timestamp extractor of {source.node} failed: {type(problem).__name__}: {problem}",
                task="source", topic=message.topic(), partition=message.partition(), offset=message.offset(),
            ) from problem  # fmt: skip
        if stamps[at] < 0:
            node[at] = DROPPED_COUNT
        elif stamps[at] > before:
            times[partition] = stamps[at]


def restored_rows(messages: Sequence[Any], spec: SourceSpec, index: int) -> pa.RecordBatch:
    """Changelog records: bytes as they are."""
    node = [spec.changelogs[m.topic()] for m in messages]
    columns: dict[str, list[Any] | None] = {"key": [m.key() for m in messages], "value": [m.value() for m in messages]}
    headers = [m.headers() for m in messages]
    columns["headers"] = [packed(row) for row in headers] if any(headers) else None
    stamps = [m.timestamp()[1] for m in messages]
    return _batch(messages, node, list(range(len(messages))), stamps, columns, index)


def _batch(
    messages: Sequence[Any],
    node: list[int],
    seq: list[int],
    stamps: list[int],
    columns: Mapping[str, list[Any] | None],
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
    values: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    values.update(node=MARKER, part=-1, off=marker.batch_id, seq=0, ts=0, value=marker_to_json(marker).encode())
    return pa.RecordBatch.from_pylist([values], schema=SCHEMA)


def _take_sums(
    columns: dict[str, list[Any] | None],
    values: list[Any],
    headers: list[Any],
    topics: list[str],
    sources: Mapping[str, SourceTopic],
) -> None:
    """A pre-summed record has no value of its own: its bytes are how many records it stands for."""
    sums: list[int | None] = [None] * len(values)
    for at, row in enumerate(headers):
        if row and topics[at] in sources and sources[topics[at]].summable and any(name == SUMMED_HEADER for name, _ in row):
            sums[at] = _LONG.unpack(values[at])[0]
            values[at] = headers[at] = None
    columns["n"] = sums


def _convert(
    columns: dict[str, list[Any] | None],
    node: list[int],
    keys: list[Any],
    values: list[Any],
    topics: list[str],
    topic: str,
    source: SourceTopic,
) -> None:
    """Keys and values as the JVM takes them.

    A record whose bytes a serde can't read is set aside, bytes untouched.
    """
    places = [at for at, found in enumerate(topics) if found == topic]
    sides = [
        (side, raw, intake.kind, intake.take([raw[at] for at in places]))
        for side, raw, intake in (("key", keys, source.key), ("value", values, source.value))
        if intake is not None
    ]
    unreadable = {places[at] for *_, (_, found) in sides for at in found}
    if unreadable:
        which = _column(columns, "n", len(topics))
        for at in unreadable:
            node[at], which[at] = UNREADABLE, source.tag // 2
    for side, raw, kind, (taken, _) in sides:
        to = raw if kind is Physical.BYTES else _column(columns, side + kind.value, len(topics))
        for at, native in zip(places, taken, strict=True):
            if at not in unreadable:
                raw[at] = None
                to[at] = native


def _column(columns: dict[str, list[Any] | None], name: str, size: int) -> list[Any]:
    found = columns[name]
    if found is None:
        found = columns[name] = [None] * size
    return found
