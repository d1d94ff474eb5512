"""Rows of stores as bytes, and queries for them: the exchange between instances, and its merging.

Decides that an answer says which partitions it covers and how far behind each is, so that the caller may take the rest from
elsewhere; and its bytes (an Arrow stream). Rows are the first ``limit`` by key's bytes of the partitions that are covered, or
fewer if those have more than ``most_bytes``: then the answer says from which key on rows may be missing. What another instance
answers is checked against the question before it is used.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import pairwise, takewhile
from typing import NamedTuple

import pyarrow as pa

from tidemill.errors import QueryError, RetriableError
from tidemill.query.local_copies import CopyReader
from tidemill.query.position import Position

MEDIA_TYPE = "application/vnd.tidemill.rows"
PAGE_BYTES = 8 << 20
"""Limit of keys and values in one answer, in bytes."""
_FEW_ROWS = 1_001
"""So many windows of a key do not count as a long answer: those of a request without a limit, and one more."""
_COVERED = b"tidemill.covered"
_MORE_FROM = b"tidemill.more_from"
_POSITION = b"tidemill.position"
_LAYOUT = b"tidemill.layout"
_HEADER, _COMPRESSION = 2, 3
"""Numbers of fields in Arrow's Message.fbs: of a message and of a record batch."""
_SCHEMA = pa.schema([("key", pa.binary()), ("stored", pa.binary()), ("partition", pa.int32())])


class Row(NamedTuple):
    """An entry as the store has it."""

    key: bytes
    stored: bytes
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsQuestion:
    """One ``key``, or the keys from ``low`` to ``high`` (both included; None: no bound), of some partitions.

    ``times``: of a store of windows or sessions, those of ``key`` between two times (``windowed_rows``). ``position``: only of
    copies that are at least there. ``most_age_ms``: of standbys only those that were complete within this time; None: of any age.
    """

    partitions: frozenset[int]
    key: bytes | None = None
    low: bytes | None = None
    high: bytes | None = None
    limit: int = 1
    times: tuple[int, int] | None = None
    most_bytes: int = PAGE_BYTES
    position: Position = field(default_factory=Position)
    most_age_ms: int | None = None

    @property
    def is_long(self) -> bool:
        """True for a range, and for many windows of a key: their answers take many times as long as that of one key."""
        return self.key is None or self.limit > _FEW_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """``covered``: partition -> how many offsets its copy is behind (0: the active). ``position``: where the copies are, as far
    as they have said it (0.1.0 does not). ``more_from``: rows whose key is this one or a higher one may be missing, since all of
    them are too many bytes; None: only ``limit`` has ended the rows. ``layout``: of the rows that another instance sent
    (``StoreInfo.layout``), as far as it has said it (0.1.0 does not)."""

    rows: tuple[Row, ...] = ()
    covered: Mapping[int, int] = field(default_factory=dict)
    more_from: bytes | None = None
    position: Position = field(default_factory=Position)
    layout: str | None = None

    @classmethod
    def merged(cls, parts: Sequence[FoundRows], question: RowsQuestion) -> FoundRows:
        covered = {partition: lag for part in parts for partition, lag in part.covered.items()}
        known_to = min((part.more_from for part in parts if part.more_from is not None), default=None)
        found: Iterable[Row] = merge(*(part.rows for part in parts))
        if known_to is not None and question.times is None:
            found = takewhile(lambda row: row.key < known_to, found)
        rows, more_from = first_page(found, question)
        position = Position().merged(*(part.position for part in parts))
        return cls(rows=rows, covered=covered, more_from=known_to if more_from is None else more_from, position=position)

    def to_bytes(self) -> bytes:
        columns = [pa.array([row[at] for row in self.rows], kind) for at, kind in enumerate(_SCHEMA.types)]
        metadata = {_COVERED: json.dumps({str(p): lag for p, lag in self.covered.items()}), _POSITION: str(self.position)}
        if self.more_from is not None:
            metadata[_MORE_FROM] = self.more_from.hex()
        if self.layout is not None:
            metadata[_LAYOUT] = self.layout
        schema = _SCHEMA.with_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes, limit: int | None = None) -> FoundRows:
        """ValueError if no instance of Tidemill wrote these, or they are more than ``limit`` rows. Nothing in them
        unfolds to more than it is: ``data`` limits the memory too."""
        try:
            if any(_is_compressed(message) for message in pa.ipc.MessageReader.open_stream(data)):
                raise ValueError("not rows of a store: they are compressed, which no instance does")
            reader = pa.ipc.open_stream(data)
            if not reader.schema.equals(_SCHEMA):
                raise ValueError(f"not rows of a store: found the columns {reader.schema.names}")
            metadata = reader.schema.metadata or {}
            covered = _covered(json.loads(metadata[_COVERED]))
            more_from = bytes.fromhex(metadata[_MORE_FROM].decode("ascii")) if _MORE_FROM in metadata else None
            position = Position.parse(metadata[_POSITION].decode("ascii")) if metadata.get(_POSITION) else Position()
            layout = metadata[_LAYOUT].decode() if _LAYOUT in metadata else None
            table = reader.read_all()
            table.validate(full=True)
            if any(column.null_count for column in table.columns):
                raise ValueError("not rows of a store: found null")
            if limit is not None and table.num_rows > limit:
                raise ValueError("more rows than were asked for")
            columns = [column.to_pylist() for column in table.columns]
        except (pa.ArrowException, OSError, KeyError, RecursionError, QueryError, struct.error) as error:
            raise ValueError(f"not rows of a store: {error}") from error
        rows = tuple(Row(*row) for row in zip(*columns, strict=True))
        return cls(rows=rows, covered=covered, more_from=more_from, position=position, layout=layout)

    def require_answer(self, question: RowsQuestion) -> None:
        """ValueError if these are no rows that were asked for; ``from_bytes`` has seen that they are not too many."""
        keys = [row.key for row in self.rows]
        if any(row.partition not in self.covered for row in self.rows):
            raise ValueError("rows of other partitions than it says")
        asked = question.position.of(self.covered)
        if asked.offsets.keys() - self.position.offsets.keys():
            raise ValueError("rows of copies whose position is not said")
        if question.key is not None:
            size = len(question.key)
            if any(key[:size] != question.key or (question.times is None and len(key) > size) for key in keys):
                raise ValueError("rows of another key")
        elif any(not _is_within(key, question) for key in keys) or any(one > other for one, other in pairwise(keys)):
            raise ValueError("keys beyond the bounds, or not in order")
        elif self.more_from is not None and (not keys or self.more_from <= keys[-1] or not _is_within(self.more_from, question)):
            raise ValueError("more rows from a key on where the next page can't begin")  # reading page by page would never end


def _is_compressed(message: pa.ipc.Message) -> bool:
    """Whether a record batch says that its buffers are compressed. pyarrow doesn't tell: it unfolds 30 KB to a gigabyte."""
    if message.type != "record batch":
        return False
    data = memoryview(message.metadata)  # a flatbuffer, whose offsets Arrow has checked

    def field(table: int, number: int) -> int:
        """Where a field of a table lies, 0 if the table has none."""
        facts = table - struct.unpack_from("<i", data, table)[0]
        size, offset = struct.unpack_from("<H", data, facts)[0], 4 + 2 * number
        at: int = struct.unpack_from("<H", data, facts + offset)[0] if offset < size else 0
        return table + at if at else 0

    header = field(struct.unpack_from("<I", data)[0], _HEADER)
    return field(header + struct.unpack_from("<I", data, header)[0], _COMPRESSION) != 0


def _covered(found: object) -> dict[int, int]:
    if not isinstance(found, dict) or any(type(lag) is not int or lag < 0 for lag in found.values()):
        raise ValueError("not rows of a store: it is not said how far behind they are")
    return {int(partition): lag for partition, lag in found.items()}


def _is_within(key: bytes, question: RowsQuestion) -> bool:
    return (question.low is None or key >= question.low) and (question.high is None or key <= question.high)


def first_page(found: Iterable[Row], question: RowsQuestion) -> tuple[tuple[Row, ...], bytes | None]:
    """The rows up to the question's limits, and the key at which its bytes have ended them (None: they have not). Rows of one key
    stay together, and there is at least one."""
    rows: list[Row] = []
    size = 0
    for row in found:
        size += len(row.key) + len(row.stored)
        if rows and size > question.most_bytes and row.key != rows[-1].key:
            return tuple(rows), row.key
        rows.append(row)
        if len(rows) == question.limit:
            break
    return tuple(rows), None


def row_of_key(reader: CopyReader, question: RowsQuestion, lag: int) -> FoundRows:
    """Rows of a key in one copy. InvalidStateStoreError if it can't be read after all."""
    assert question.key is not None
    stored = reader.get(question.key)
    rows = () if stored is None else (Row(question.key, stored, reader.partition),)
    return FoundRows(rows=rows, covered={reader.partition: lag})


def range_of_keys(copies: Sequence[tuple[CopyReader, int]], question: RowsQuestion) -> FoundRows:
    """The rows of all these copies, each with how far it is behind, in the order of keys; read no further than the page goes.
    Copies that can't be read after all are missing from it."""
    left = list(copies)
    while left:
        failed: set[int] = set()
        scans = [_scanned(reader, question, failed) for reader, _ in left]
        rows, more_from = first_page(merge(*scans), question)
        for reader, _ in left:
            try:
                reader.position()  # a scan's own check comes at its end, which may not have been reached
            except RetriableError:
                failed.add(reader.partition)
        if not failed:
            return FoundRows(rows=rows, covered={reader.partition: lag for reader, lag in left}, more_from=more_from)
        left = [(reader, lag) for reader, lag in left if reader.partition not in failed]
    return FoundRows()


def _scanned(reader: CopyReader, question: RowsQuestion, failed: set[int]) -> Iterator[Row]:
    try:
        for key, stored in reader.scan(question.low, question.high):
            yield Row(key, stored, reader.partition)
    except RetriableError:
        failed.add(reader.partition)
