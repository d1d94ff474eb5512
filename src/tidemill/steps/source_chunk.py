"""Chunks of fetched records as tagged rows, each closed by a control row that says how many rows it has.

Decides what becomes of a record before any node gets it: its timestamp, and its key and value as the JVM takes them; or that it
is set aside, as unreadable, as refused by an exception handler, or dropped by a timestamp extractor. Restored records pass as
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.errors import ConfigError, RecordError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.operators.record import UNKNOWN_TIME, Record, SourceRecord, extracted_time, invalid_timestamp
from tidemill.printable import said_by
from tidemill.steps.rows import packed_rows
from tidemill.steps.rows.codecs_wire import Physical
from tidemill.steps.rows.headers import packed
from tidemill.steps.rows.intake import DeserializerEndedError
from tidemill.steps.rows.order import sequences
from tidemill.steps.rows.packed_rows import PACKED_SCHEMA
from tidemill.steps.rows.partition_stats import add_chunk
from tidemill.steps.rows.schema import (
    CHUNK,
    DROPPED_COUNT,
    REFUSED,
    SCHEMA,
    SUMMED_HEADER,
    UNREADABLE,
    UNREADABLE_HEADERS,
    control_rows,
    with_clock,
)
from tidemill.steps.step_spec import SourceSpec, SourceTopic
from tidemill.task.batch import BatchRequest, PartitionStats, RefusedRecord
from tidemill.task.raw_records import FetchedRecord, Headers
from tidemill.topology.values import Key, Value

_LONG = struct.Struct(">q")

_SUM_FROM_BEFORE_A_CHANGE = (
    f"it has the header {SUMMED_HEADER}: it stands for several records that the application has combined for a count before its "
    "program or a setting was changed, and now each of them is needed. Undo the change, let the application run with "
    "tidemill.presum=false until it has processed this topic, and change it then; or reset it"
)

_Column = list[Any]
"""Values of a column of ``SCHEMA``: bytes, numbers, and None."""


@dataclass(slots=True)
class Arriving:
    """Progress of a batch in each input."""

    times: dict[TopicPartition, int]
    """The highest timestamps, those of before included; kept up to date where the source has a timestamp extractor."""
    partition_stats: dict[TopicPartition, PartitionStats] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)


def chunk_rows(
    messages: Sequence[FetchedRecord], spec: SourceSpec, arriving: Arriving, request: BatchRequest, index: int, before: int
) -> pa.RecordBatch:
    """The messages as rows in their order, and the chunk's control row; ``before``: rows of earlier chunks."""
    chunk = _Chunk(messages, spec.topics)
    chunk.take_sums()
    chunk.set_unreadable_headers_aside()
    chunk.check_times()
    chunk.extract_times(arriving.times)
    chunk.refuse(request.refused)
    chunk.convert()
    rows = chunk.rows(before, request.now_ms, index)
    add_chunk(arriving.partition_stats, arriving.ends, chunk.topics, chunk.distinct, rows)
    return rows


def restored_rows(messages: Sequence[FetchedRecord], spec: SourceSpec, index: int) -> pa.RecordBatch:
    """Changelog records: bytes as they are."""
    headers, unreadable = _headers_of(messages)
    for at in unreadable:
        raise _record_error("a header's name is no UTF-8: something else writes to the changelog", messages[at])
    columns = {
        "part": [m.partition() for m in messages],
        "off": [m.offset() for m in messages],
        "ts": [m.timestamp()[1] for m in messages],
        "headers": [packed(row) for row in headers],
        "key": [m.key() for m in messages],
        "value": [m.value() for m in messages],
    }
    records = pa.RecordBatch.from_pydict(columns, PACKED_SCHEMA)
    tags = np.array([spec.changelogs[m.topic()] for m in messages], np.int32)
    rows = [(tag, each) for tag in np.unique(tags).tolist() for each in packed_rows.packed(records.filter(pa.array(tags == tag)))]
    return control_rows(
        node=[*(tag for tag, _ in rows), CHUNK],
        off=[*(0 for _ in rows), index],
        ts=[*(0 for _ in rows), len(messages)],
        value=[*(each for _, each in rows), None],
    )


class _Chunk:
    """The columns of a chunk of source records in the making: a place in each for every record."""

    def __init__(self, messages: Sequence[FetchedRecord], sources: Mapping[str, SourceTopic]) -> None:
        self._messages, self._sources = messages, sources
        self.topics = [m.topic() for m in messages]
        self.distinct = set(self.topics)
        if len(self.distinct) == 1:
            [topic] = self.distinct
            self._node = [sources[topic].tag] * len(messages)
            self._topic_indexes = [sources[topic].index] * len(messages)
        else:
            self._node = [sources[t].tag for t in self.topics]
            self._topic_indexes = [sources[t].index for t in self.topics]
        self._keys: _Column = [m.key() for m in messages]
        self._values: _Column = [m.value() for m in messages]
        self._headers, self._unreadable = _headers_of(messages)
        self._stamps = [m.timestamp()[1] for m in messages]
        self._others: dict[str, _Column] = {}
        """Columns that few chunks have."""

    def take_sums(self) -> None:
        """A pre-summed record has no value of its own: its bytes are how many records it counts for, and nothing else is read.

        The header counts in the application's repartition topics alone, where no other record has it. An earlier version of the
        program may have written it for a count, where this one needs each record.
        """
        if not any(self._headers):
            return
        node, values, headers, topics, sources = self._node, self._values, self._headers, self.topics, self._sources
        sums: list[int | None] = [None] * len(values)
        for at, row in enumerate(headers):
            if not row or not sources[topics[at]].is_repartition or all(name != SUMMED_HEADER for name, _ in row):
                continue
            if not sources[topics[at]].takes_sums:
                raise _record_error(_SUM_FROM_BEFORE_A_CHANGE, self._messages[at])
            count = _LONG.unpack(values[at])[0] if values[at] is not None and len(values[at]) == _LONG.size else 0
            if count > 0:
                sums[at] = count
                values[at] = headers[at] = None
            else:
                node[at], sums[at] = UNREADABLE, sources[topics[at]].tag // 2
        self._others["n"] = sums

    def set_unreadable_headers_aside(self) -> None:
        for at in self._unreadable:
            self._set_aside(at, UNREADABLE)

    def check_times(self) -> None:
        """A negative timestamp that no extractor looks at ends the thread, as Kafka Streams' ``FailOnInvalidTimestamp`` does: of
        a record that can be read, since it is deserialized first."""
        if min(self._stamps, default=0) >= 0:
            return
        for at, (message, stamp) in enumerate(zip(self._messages, self._stamps, strict=True)):
            source = self._sources[message.topic()]
            if stamp < 0 and source.extractor is None and self._read(at) is not None:
                raise _record_error(f"{source.node}: {invalid_timestamp(stamp)}", message)

    def extract_times(self, times: dict[TopicPartition, int]) -> None:
        """The timestamps that the sources' extractors give; a record that gets a negative one is dropped. ``times``: the highest
        ones so far, which are kept up to date."""
        if all(self._sources[topic].extractor is None for topic in self.distinct):
            return
        node, stamps = self._node, self._stamps
        for at, message in enumerate(self._messages):
            source = self._sources[message.topic()]
            if source.extractor is None:
                continue
            read = self._read(at)
            if read is None:
                continue
            partition = TopicPartition(message.topic(), message.partition())
            before = times.get(partition, UNKNOWN_TIME)
            record = Record(*read, stamps[at], tuple(self._headers[at] or ()))
            placed = SourceRecord.of(record, message.topic(), message.partition(), message.offset())
            try:
                stamps[at] = extracted_time(source.extractor(placed, before))
            except BaseException as problem:
                what = f"the timestamp extractor of {source.node} failed: {type(problem).__name__}: {said_by(problem)}"
                raise _record_error(what, message) from problem
            if stamps[at] < 0:
                node[at] = DROPPED_COUNT
            elif stamps[at] > before:
                times[partition] = stamps[at]

    def _read(self, at: int) -> tuple[Key, Value] | None:
        """A record's key and value; None: it is unreadable, as whoever reads it finds out, if it is not set aside already."""
        if self._node[at] == UNREADABLE:
            return None
        message = self._messages[at]
        key_serde, value_serde = self._sources[message.topic()].serdes
        try:
            return key_serde.deserialize(message.key()), value_serde.deserialize(message.value())
        except (RetriableError, ConfigError):
            raise
        except Exception:  # a deserializer's, as in Kafka Streams whatever it raises
            return None
        except BaseException as problem:
            ended = DeserializerEndedError(problem, at)
            raise _record_error(f"{self._sources[message.topic()].node}: {ended}", message) from problem

    def refuse(self, refused: Sequence[RefusedRecord]) -> None:
        """Tags the records that no function is to get; the last step says what becomes of them."""
        if not refused:
            return
        wanted = {(record.topic, record.partition, record.offset) for record in refused}
        for at, message in enumerate(self._messages):
            is_wanted = (message.topic(), message.partition(), message.offset()) in wanted
            if is_wanted and self._node[at] != DROPPED_COUNT:
                self._set_aside(at, REFUSED)

    def convert(self) -> None:
        """Keys and values as the JVM takes them. A record whose bytes a serde can't read is set aside, bytes untouched."""
        for topic in self.distinct:
            self._convert(topic)

    def _convert(self, topic: str) -> None:
        source, node = self._sources[topic], self._node
        takes_all = len(self.distinct) == 1 and UNREADABLE not in node and REFUSED not in node
        places: Sequence[int] = range(len(node))
        if not takes_all:
            places = [at for at in places if self.topics[at] == topic and node[at] not in (UNREADABLE, REFUSED)]
        try:
            sides = [
                (side, raw, intake.kind, intake.take(raw if takes_all else [raw[at] for at in places]))
                for side, raw, intake in (("key", self._keys, source.key), ("value", self._values, source.value))
                if intake is not None
            ]
        except DeserializerEndedError as ended:
            raise _record_error(f"{source.node}: {ended}", self._messages[places[ended.at]]) from ended
        unreadable = {places[at] for *_, (_, found) in sides for at in found}
        for at in unreadable:
            self._set_aside(at, UNREADABLE)
        is_whole = takes_all and not unreadable
        for side, raw, kind, (taken, _) in sides:
            to = raw if kind is Physical.BYTES else self._other(side + kind.value)
            if is_whole:
                raw[:] = [None] * len(raw)
                to[:] = taken
                continue
            for at, native in zip(places, taken, strict=True):
                if at not in unreadable:
                    raw[at] = None
                    to[at] = native

    def _set_aside(self, at: int, tag: int) -> None:
        """Says too which source node the bytes of the record were for."""
        self._node[at] = tag
        self._other("n")[at] = self._sources[self.topics[at]].tag // 2

    def _other(self, name: str) -> _Column:
        found = self._others.get(name)
        if found is None:
            found = self._others[name] = [None] * len(self._messages)
        return found

    def rows(self, before: int, now_ms: int, index: int) -> pa.RecordBatch:
        """``before``: rows of earlier chunks; ``index``: the number of this one."""
        columns: dict[str, _Column | None] = {
            **self._others,
            "key": self._keys,
            "value": self._values,
            "headers": [packed(row) for row in self._headers] if any(self._headers) else None,
        }
        numbers = sequences(before, self._topic_indexes)
        return with_clock(_rows(self._messages, self._node, numbers, self._stamps, columns, index), now_ms)


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


def _record_error(what: str, message: FetchedRecord) -> RecordError:
    return RecordError(
        what, task="source", topic=message.topic(), partition=message.partition(), offset=message.offset()
    )


def _rows(
    messages: Sequence[FetchedRecord],
    node: list[int],
    seq: npt.NDArray[np.int64],
    stamps: list[int],
    columns: Mapping[str, _Column | None],
    index: int,
) -> pa.RecordBatch:
    """The columns and the chunk's control row."""
    count = len(messages)
    arrays = {
        "node": pa.array([*node, CHUNK], pa.int32()),
        "part": pa.array([*[m.partition() for m in messages], -1], pa.int32()),
        "off": pa.array([*[m.offset() for m in messages], index], pa.int64()),
        "seq": pa.array(np.append(seq, 0), pa.int64()),
        "ts": pa.array([*stamps, count], pa.int64()),
    }
    for name in SCHEMA.names:
        if name not in arrays:
            column, kind = columns.get(name), SCHEMA.field(name).type
            arrays[name] = pa.nulls(count + 1, kind) if column is None else pa.array([*column, None], kind)
    return pa.RecordBatch.from_arrays([arrays[name] for name in SCHEMA.names], schema=SCHEMA)
