"""Versioned key-value stores: each key's values with the times from which they were valid.

    version   00 | length of key 4 | key | valid from 8      01 | value, or 00 for a deletion
    expiry    01 | valid to 8 | the version's row key        nothing
    clock     ff                                             highest timestamp that was put
    changelog key                                            value; the record's timestamp is the version's

Decides, as Kafka Streams: a put older than the highest timestamp put so far - history retention is refused (it is logged all
the same); the newest version of a key never expires; older ones are found as of a time down to that same bound. Versions that no
read can find any more are deleted now and then, by the expiry rows; a deletion expires with the version that it ended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from tidemill.operators.record import Headers
from tidemill.operators.rows import Rows
from tidemill.topology.nodes import Serde, Store

_LONG = struct.Struct(">q")
_pack, _unpack = _LONG.pack, _LONG.unpack_from
_VERSION, _EXPIRY, _CLOCK = b"\x00", b"\x01", b"\xff"
_DELETED, _PRESENT = b"\x00", b"\x01"
_DAY_MS = 86_400_000
_SWEEPS_PER_RETENTION = 8


class VersionedStore:
    """Values by key and time (org.apache.kafka.streams.state.VersionedKeyValueStore)."""

    def __init__(self, store: Store, rows: Rows) -> None:
        assert store.key_serde is not None
        assert store.value_serde is not None
        self._rows = rows
        self._key_serde: Serde = store.key_serde
        self._write_value, self._read_value = store.value_serde.serialize, store.value_serde.deserialize
        self._retention = _DAY_MS if store.retention_ms is None else store.retention_ms
        kept = rows.get(_CLOCK)
        self._kept = self._observed = -1 if kept is None else _unpack(kept)[0]
        self._swept = self._observed - self._retention

    def put(self, key: Any, value: Any, timestamp: int, _headers: Headers = ()) -> bool | None:
        """Adds a version, None for a deletion. True: it is the newest; False: a newer one is there; None: refused, too old."""
        raw, written = self._raw(key), self._write_value(value)
        is_newest = self._add(raw, written, timestamp)
        self._rows.log(raw, written, timestamp)
        return is_newest

    def get(self, key: Any) -> tuple[Any, int] | None:
        """The newest version, (value, valid from); None if the key was deleted or never put."""
        prefix = _prefix(self._raw(key))
        return self._first_of(self._rows.scan(prefix, prefix + b"\xff" * 9, reverse=True))

    def get_as_of(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        """The version that was valid at ``timestamp``; None if there was none, or if it lies behind the history retention."""
        if timestamp < self._observed - self._retention:
            newest = self.get(key)
            return newest if newest is not None and newest[1] <= timestamp else None
        prefix = _prefix(self._raw(key))
        return self._first_of(self._rows.scan(prefix, prefix + _pack(timestamp) + b"\x00", reverse=True))

    def delete(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        """Ends the version that was valid at ``timestamp`` and gives it."""
        before = self.get_as_of(key, timestamp)
        return None if self.put(key, None, timestamp) is None else before

    def history(self, key: Any, first: int, last: int) -> Iterator[tuple[Any, int]]:
        """(value, valid from) of the versions that were valid at a time in ``first .. last``, oldest first; no deletions."""
        prefix = _prefix(self._raw(key))
        valid_at_first = self._rows.scan(prefix, prefix + _pack(max(first, 0)) + b"\x00", reverse=True)
        low = next((row_key for row_key, _row in valid_at_first), prefix)
        for row_key, row in self._rows.scan(low, prefix + _pack(last) + b"\x00"):
            if row[:1] == _PRESENT:
                yield self._read_value(row[1:]), _unpack(row_key, len(row_key) - 8)[0]

    def all(self) -> Iterator[tuple[Any, tuple[Any, int]]]:
        """(key, (value, valid from)) of the newest version of each key that has one; in no order that means anything."""
        newest: tuple[bytes, int, bytes] | None = None
        for row_key, row in self._rows.scan(_VERSION, _EXPIRY):
            raw = row_key[5:-8]
            if newest is not None and newest[0] != raw and newest[2][:1] == _PRESENT:
                yield self._key_serde.deserialize(newest[0]), (self._read_value(newest[2][1:]), newest[1])
            newest = raw, _unpack(row_key, len(row_key) - 8)[0], row
        if newest is not None and newest[2][:1] == _PRESENT:
            yield self._key_serde.deserialize(newest[0]), (self._read_value(newest[2][1:]), newest[1])

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
        rows, prefix = self._rows, _prefix(key)
        at = prefix + _pack(timestamp)
        newer = next((row_key for row_key, _ in rows.scan(at + b"\x00", prefix + b"\xff" * 9)), None)
        older = next((row_key for row_key, _ in rows.scan(prefix, at, reverse=True)), None)
        rows.put(at, _DELETED if value is None else _PRESENT + value)
        if older is not None:
            rows.put(_EXPIRY + _pack(timestamp) + older, b"")
        if newer is not None:
            rows.put(_EXPIRY + newer[-8:] + at, b"")
        elif value is None:
            rows.put(_EXPIRY + _pack(timestamp) + at, b"")
        self._sweep()
        return newer is None

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
            # A deletion expires at its own time, unless a value of the very same time has taken its place.
            if entry[1:9] != entry[-8:] or rows.get(version) == _DELETED:
                rows.put(version, None)
            rows.put(entry, None)

    def _first_of(self, versions: Iterator[tuple[bytes, bytes]]) -> tuple[Any, int] | None:
        for row_key, row in versions:
            return (self._read_value(row[1:]), _unpack(row_key, len(row_key) - 8)[0]) if row[:1] == _PRESENT else None
        return None

    def _raw(self, key: Any) -> bytes:
        raw = self._key_serde.serialize(key)
        if raw is None:
            raise ValueError("a versioned store has no null keys")
        return raw


def _prefix(key: bytes) -> bytes:
    """What the row keys of all versions of ``key`` begin with; no other key's do."""
    return _VERSION + len(key).to_bytes(4, "big") + key
