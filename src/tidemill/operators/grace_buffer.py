"""Stream records that wait until a versioned table is as far as they are (a stream-table join with a grace period).

    changelog key    00 | timestamp 8 | key | sequence 4        the row's key is the same without its first byte
    changelog value  context | -1 | -1 | length 4, value | 0 8  the row is the same without its last 8 bytes

Decides order (timestamp, key's bytes, then as they came), the clock (the highest timestamp that was ever kept) and when a record
is too late to be kept; a context is written as ``suppress_buffer`` does. After the rows come clock and sequence (key 0xff),
which have no changelog: a restored buffer's are the highest that its changelog shows.
"""

from __future__ import annotations

from struct import Struct

from tidemill.operators.context import RecordMetadata, WaitedRecord
from tidemill.operators.record import Headers, Record
from tidemill.operators.rows import Rows
from tidemill.operators.suppress_buffer import read_buffered, read_context, write_context
from tidemill.topology.nodes import Store

_META = b"\xff"
_META_FORMAT = Struct(">qi")
_LONG = Struct(">q")
_INT = Struct(">i")
_PREFIX = b"\0"
_NO_PRIOR_AND_OLD = _INT.pack(-1) * 2
_TIME_OF_BUFFER = bytes(8)


class GraceBuffer:
    """The buffer of one join in one task."""

    def __init__(self, store: Store, rows: Rows) -> None:
        assert store.key_serde is not None
        assert store.value_serde is not None
        self._rows = rows
        self._write_key, self._read_key = store.key_serde.serialize, store.key_serde.deserialize
        self._write, self._read = store.value_serde.serialize, store.value_serde.deserialize
        kept = rows.get(_META)
        self._kept: tuple[int, int] = (-1, 0) if kept is None else _META_FORMAT.unpack(kept)
        self._observed, self._sequence = self._kept

    def put(self, record: Record, origin: RecordMetadata, grace_ms: int) -> bool:
        """Keeps a record; False if the clock is more than ``grace_ms`` past it: then nothing is kept."""
        key, value, timestamp, headers = record
        if timestamp < self._observed - grace_ms:
            return False
        self._sequence = self._sequence + 1 & 0x7FFFFFFF
        self._observed = max(self._observed, timestamp)
        row_key = _LONG.pack(timestamp) + (self._write_key(key) or b"") + _INT.pack(self._sequence)
        written = self._write(value) or b""
        row = write_context(timestamp, origin, headers) + _NO_PRIOR_AND_OLD + _INT.pack(len(written)) + written
        self._rows.put(row_key, row)
        self._rows.log(_PREFIX + row_key, row + _TIME_OF_BUFFER, None)
        return True

    def take_due(self, grace_ms: int) -> list[WaitedRecord]:
        """Takes out what is ``grace_ms`` behind the clock, or more."""
        due = self._observed - grace_ms
        if due < 0:
            return []
        found = list(self._rows.scan(None, _LONG.pack(due + 1)))
        for row_key, _row in found:
            self._rows.put(row_key, None)
            self._rows.log(_PREFIX + row_key, None, None)
        return [self._held(row_key, row) for row_key, row in found]

    def restore(self, key: bytes, value: bytes | None, _timestamp: int, _headers: Headers = ()) -> None:
        """Applies a record of the changelog; ValueError or struct.error where it is none."""
        if value is not None:
            read_buffered(value)
        row_key = key[len(_PREFIX) :]
        self._rows.put(row_key, None if value is None else value[: -len(_TIME_OF_BUFFER)])
        self._observed = max(self._observed, _LONG.unpack_from(row_key)[0])
        self._sequence = max(self._sequence, _INT.unpack(row_key[-4:])[0])
        self.flush()

    def flush(self) -> None:
        """Writes clock and sequence if they have moved; to be called at the end of a batch."""
        now = (self._observed, self._sequence)
        if now != self._kept:
            self._kept = now
            self._rows.put(_META, _META_FORMAT.pack(*now))

    def _held(self, row_key: bytes, row: bytes) -> WaitedRecord:
        timestamp, origin, headers, at = read_context(row)
        value = row[at + len(_NO_PRIOR_AND_OLD) + 4 :]
        key = row_key[8:-4]
        return WaitedRecord(Record(self._read_key(key), self._read(value), timestamp, headers), origin, (key, value))
