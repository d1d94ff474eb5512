"""Versioned key-value stores: each key's values with the times from which they were valid.

    newest    00 | key                                       valid from 8 | 01 | value, or valid from 8 | 00 for a deletion
    older     01 | length of key 4 | key | valid from 8      01 | value, 00 for a deletion that was the newest until a value came,
                                                             00 01 for another, also one that a value of its time has replaced
    expiry    02 | valid to 8 | the row key of an older version, or of a newest one that is a deletion
    clock     ff                                             highest timestamp that was put
    changelog key                                            value; the record's timestamp is the version's

Decides, as Kafka Streams: a put is refused if it is older than (highest timestamp put so far - history retention); it is logged
all the same. The newest version of a key never expires. Older ones are found as of a time down to that same bound. Versions that
no read can find any more are deleted now and then, by the expiry rows; a deletion expires with the version that it ended. A value
that is deleted as of its own time has never been, so that an older put may become the newest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tidemill.operators.record import Headers
from tidemill.operators.rows import Rows, require_key
from tidemill.operators.segments import LONG_MAX
from tidemill.topology.nodes import Store
from tidemill.topology.values import Serde, TableRow

_LONG = struct.Struct(">q")
_pack, _unpack = _LONG.pack, _LONG.unpack_from
_NEWEST, _OLDER, _EXPIRY, _CLOCK = b"\x00", b"\x01", b"\x02", b"\xff"
_DELETED, _PRESENT = b"\x00", b"\x01"
_GAP, _ENDED = b"\x00", b"\x00\x01"
_SWEEPS_PER_RETENTION = 8


NEWEST_END = _OLDER
"""Behind the rows of all newest versions."""


def newest_row_key(key: bytes) -> bytes:
    """The key of the row with the newest version of ``key``; these rows are in the order of ``key``'s bytes."""
    return _NEWEST + key


def as_timestamped(row: bytes) -> bytes | None:
    """A newest version's row as a timestamped key-value store has it; None for a deletion."""
    return None if row[8:9] == _DELETED else row[:8] + row[9:]


class VersionedStore:
    """Values by key and time (org.apache.kafka.streams.state.VersionedKeyValueStore)."""

    def __init__(self, store: Store, rows: Rows) -> None:
        assert store.key_serde is not None
        assert store.value_serde is not None
        self._rows = rows
        self._key_serde: Serde = store.key_serde
        self.encode_key = store.key_serde.serialize
        self._write_value, self._read_value = store.value_serde.serialize, store.value_serde.deserialize
        self._retention = store.keeps_ms
        kept = rows.get(_CLOCK)
        self._kept = self._observed = -1 if kept is None else _unpack(kept)[0]
        self._swept = self._observed - self._retention

    def put(
        self, key: object, value: object, timestamp: int, _headers: Headers = (), _came: int | None = None
    ) -> bool | None:
        """Adds a version, None for a deletion. True: it is the newest; False: a newer one is there; None: refused, too old."""
        return self.put_at(self.key_bytes(key), value, timestamp)

    def put_at(
        self, raw: bytes, value: object, timestamp: int, _headers: Headers = (), _came: int | None = None
    ) -> bool | None:
        """``put`` for the bytes of a key (``encode_key``)."""
        written = self._write_value(value)
        is_newest = self._add(raw, written, timestamp)
        self._rows.log(raw, written, timestamp)
        return is_newest

    def get(self, key: object) -> TableRow | None:
        """The newest version, (value, valid from); None if the key was deleted or never put."""
        return self.get_at(self.key_bytes(key))

    def get_at(self, raw: bytes) -> TableRow | None:
        """``get`` for the bytes of a key."""
        row = self._rows.get(_NEWEST + raw)
        return None if row is None or row[8:9] == _DELETED else (self._read_value(row[9:]), _unpack(row)[0])

    def get_as_of(self, key: object, timestamp: int) -> TableRow | None:
        """The version that was valid at ``timestamp``; None if there was none, or if it lies behind the history retention."""
        raw = self.key_bytes(key)
        newest = self._rows.get(_NEWEST + raw)
        if newest is None:
            return None
        since = _unpack(newest)[0]
        if since <= timestamp:
            return None if newest[8:9] == _DELETED else (self._read_value(newest[9:]), since)
        if timestamp < max(self._observed - self._retention, 0):
            return None
        prefix = _prefix(raw)
        for row_key, row in self._rows.scan(prefix, prefix + _pack(timestamp) + b"\x00", reverse=True):
            return None if row[:1] == _DELETED else (self._read_value(row[1:]), _unpack(row_key, len(row_key) - 8)[0])
        return None

    def history(self, key: object, first: int, last: int) -> list[TableRow]:
        """(value, valid from) of the versions that were valid at a time in ``first .. last``, oldest first; no deletions.

        Of a ``last`` behind the history retention, the newest version only, if it was valid then.
        """
        raw = self.key_bytes(key)
        if last < max(first, 0):
            return []
        versions = []
        if last >= self._observed - self._retention:
            prefix = _prefix(raw)
            found = self._rows.scan(prefix, prefix + _pack(min(last, LONG_MAX)) + b"\x00")
            versions = [(_unpack(k, len(k) - 8)[0], row) for k, row in found]
        newest = self._rows.get(_NEWEST + raw)
        if newest is not None and (since := _unpack(newest)[0]) <= last:
            versions.append((since, newest[8:]))
        begins = max((at for at, (since, _row) in enumerate(versions) if since <= first), default=0)
        return [(self._read_value(row[1:]), since) for since, row in versions[begins:] if row[:1] == _PRESENT]

    def all(self) -> Iterator[tuple[object, TableRow]]:
        """(key, (value, valid from)) of the newest version of each key that has one, in the order of the keys' bytes."""
        for row_key, row in self._rows.scan(_NEWEST, _OLDER):
            if row[8:9] == _PRESENT:
                yield self._key_serde.deserialize(row_key[1:]), (self._read_value(row[9:]), _unpack(row)[0])

    def restore(self, key: bytes, value: bytes | None, timestamp: int, _headers: Headers = ()) -> None:
        self._add(key, value, timestamp)
        self.flush()

    def flush(self) -> None:
        """Writes the clock if it has moved."""
        if self._observed != self._kept:
            self._kept = self._observed
            self._rows.put(_CLOCK, _pack(self._observed))

    def _add(self, key: bytes, value: bytes | None, timestamp: int) -> bool | None:
        observed = self._observed
        if timestamp > observed:
            self._observed = observed = timestamp
        elif timestamp < observed - self._retention:
            return None
        rows, at = self._rows, _NEWEST + key
        newest = rows.get(at)
        written = _DELETED if value is None else _PRESENT + value
        since = -1 if newest is None else _unpack(newest)[0]
        if timestamp > since:
            if newest is not None:
                ends_a_deletion = newest[8:9] == _DELETED and value is not None
                self._keep_older(key, newest[:8], _GAP if ends_a_deletion else _older(newest[8:]), timestamp)
            self._put_newest(at, _pack(timestamp) + written)
        elif timestamp == since and newest is not None:
            self._replace_newest(key, at, newest, written)
        else:
            later = _prefix(key) + _pack(timestamp + 1)
            following = next((k for k, _row in rows.scan(later, _prefix(key) + _pack(since))), None)
            ended = since if following is None else _unpack(following, len(following) - 8)[0]
            self._keep_older(key, _pack(timestamp), _older(written), ended)
        self._sweep()
        return timestamp >= since

    def _put_newest(self, at: bytes, row: bytes) -> None:
        self._rows.put(at, row)
        if row[8:9] == _DELETED:
            self._rows.put(_EXPIRY + row[:8] + at, b"")

    def _replace_newest(self, key: bytes, at: bytes, newest: bytes, written: bytes) -> None:
        """Another put of the newest version's time. Where a deletion was, it stays known that what came before it ends there."""
        was_deleted = newest[8:9] == _DELETED
        if written == _DELETED:
            if not was_deleted:
                self._take_back(key, at, newest[:8])
            return
        if was_deleted:
            self._rows.put(_prefix(key) + newest[:8], _ENDED)
        self._put_newest(at, newest[:8] + written)

    def _take_back(self, key: bytes, at: bytes, since: bytes) -> None:
        """The newest value is deleted as of its own time: as if it had never been, the deletion that it ended is the newest
        again, or there is none. Where a version ended at that time, it still does."""
        rows, prefix = self._rows, _prefix(key)
        row_key, row = next(rows.scan(prefix, prefix + b"\x80", reverse=True), (b"", b""))
        if row == _GAP:
            rows.put(_EXPIRY + since + row_key, None)
        if row == _GAP or row_key[-8:] == since:
            rows.put(row_key, None)
        if row:
            self._put_newest(at, (row_key[-8:] if row == _GAP else since) + _DELETED)
        else:
            rows.put(at, None)

    def _keep_older(self, key: bytes, since: bytes, written: bytes, until: int) -> None:
        row_key = _prefix(key) + since
        self._rows.put(row_key, written)
        self._rows.put(_EXPIRY + _pack(until) + row_key, b"")

    def _sweep(self) -> None:
        """Deletes what ended before everything that may be asked for."""
        bound = self._observed - self._retention
        if bound - self._swept <= self._retention // _SWEEPS_PER_RETENTION:
            return
        self._swept = bound
        if bound <= 0:
            return
        rows = self._rows
        for entry in [row_key for row_key, _ in rows.scan(_EXPIRY, _EXPIRY + _pack(bound))]:
            version = entry[9:]
            # A newest version only if it still is that deletion.
            if version[:1] == _OLDER or rows.get(version) == entry[1:9] + _DELETED:
                rows.put(version, None)
            rows.put(entry, None)

    def key_bytes(self, key: object) -> bytes:
        """The bytes of ``key``, which ``get_at`` and ``put_at`` take; SerdeError where it has none."""
        return require_key(self.encode_key(key), "versioned")


def _older(written: bytes) -> bytes:
    return _ENDED if written == _DELETED else written


def _prefix(key: bytes) -> bytes:
    """The beginning of the row keys of all older versions of ``key``, and of no other key's."""
    return _OLDER + len(key).to_bytes(4, "big") + key
