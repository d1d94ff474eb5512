"""Key-value stores: one row for each key; plain, or with the timestamp of the value.

Decides rows: the key's bytes, and the value's, in a timestamped store behind 8 bytes of timestamp. And changelog records: they
have the bare value; their timestamp is the value's in a timestamped store, else that of the record that is processed, which the
caller gives. Ranges include both ends and are in the order of the keys' bytes, as in Kafka Streams.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from tidemill.operators.record import Headers
from tidemill.operators.rows import Rows, require_key
from tidemill.topology.nodes import Store
from tidemill.topology.values import Serde, TableRow

_LONG = struct.Struct(">q")
_pack, _unpack = _LONG.pack, _LONG.unpack_from


class KeyValueStore:
    """Values by key. ``timestamp`` in writes is that of the record being processed."""

    def __init__(self, store: Store, rows: Rows) -> None:
        assert store.key_serde is not None
        assert store.value_serde is not None
        self._rows = rows
        self._write_key, self._read_key = store.key_serde.serialize, store.key_serde.deserialize
        self._write_value, self._read_value = store.value_serde.serialize, store.value_serde.deserialize

    def get(self, key: object) -> object:
        """The value of ``key``; None if there is none."""
        return self._read_value(self._rows.get(self._key(key)))

    def put(self, key: object, value: object, timestamp: int) -> None:
        """Sets the value; None deletes."""
        self._put(self._key(key), self._write_value(value), timestamp)

    def put_all(self, entries: Iterable[tuple[object, object]], timestamp: int) -> None:
        """``put`` for each (key, value); for none of them where one can't be written."""
        for raw, row in [(self._key(key), self._write_value(value)) for key, value in entries]:
            self._put(raw, row, timestamp)

    def delete(self, key: object, timestamp: int) -> object:
        """Deletes the key and gives the value that it had."""
        before = self.get(key)
        self.put(key, None, timestamp)
        return before

    def put_if_absent(self, key: object, value: object, timestamp: int) -> object:
        """Sets the value if there is none; gives the value that was there."""
        before = self.get(key)
        if before is None:
            self.put(key, value, timestamp)
        return before

    def all(self, *, reverse: bool = False) -> Iterator[tuple[object, object]]:
        """All (key, value)."""
        return self._decoded(self._rows.scan(reverse=reverse))

    def range(self, low: object = None, high: object = None, *, reverse: bool = False) -> Iterator[tuple[object, object]]:
        """(key, value) from ``low`` to ``high``, both included; None is no bound."""
        above = None if high is None else self._key(high) + b"\x00"
        return self._decoded(self._rows.scan(None if low is None else self._key(low), above, reverse=reverse))

    def prefix_scan(self, prefix: object, serde: Serde, *, reverse: bool = False) -> Iterator[tuple[object, object]]:
        """(key, value) of the keys whose bytes begin with those of ``prefix``."""
        low = _bytes_of_prefix(prefix, serde)
        return self._decoded(self._rows.scan(low, after_prefix(low), reverse=reverse))

    @property
    def approximate_num_entries(self) -> int:
        """Number of keys, the writes of this batch included."""
        return self._rows.entries()

    def restore(self, key: bytes, value: bytes | None, _timestamp: int, _headers: Headers = ()) -> None:
        self._rows.put(key, value)

    def _put(self, key: bytes, row: bytes | None, timestamp: int) -> None:
        self._rows.put(key, row)
        self._rows.log(key, row, timestamp)

    def _key(self, key: object) -> bytes:
        return require_key(self._write_key(key), "key-value")

    def _decoded(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[object, object]]:
        read_key, read_value = self._read_key, self._read_value
        for key, row in rows:
            yield read_key(key), read_value(row)


class TimestampedKeyValueStore:
    """(value, timestamp) by key; what the DSL keeps tables and aggregates in."""

    get_as_of: None = None
    """Only versioned stores have rows of earlier times."""

    def __init__(self, store: Store, rows: Rows) -> None:
        assert store.key_serde is not None
        assert store.value_serde is not None
        self._get, self._put, self._log, self._rows = rows.get, rows.put, rows.log, rows
        self._with_headers = store.logs_headers
        self.encode_key, self._read_key = store.key_serde.serialize, store.key_serde.deserialize
        self._write_value, self._read_value = store.value_serde.serialize, store.value_serde.deserialize

    def get(self, key: object) -> TableRow | None:
        """(value, timestamp) of ``key``; None if there is none."""
        raw = self.encode_key(key)
        row = None if raw is None else self._get(raw)
        return None if row is None else (self._read_value(row[8:]), _unpack(row)[0])

    def get_at(self, raw: bytes) -> TableRow | None:
        """``get`` for the bytes of a key (``encode_key``): spares who reads and writes a row to encode its key twice."""
        row = self._get(raw)
        return None if row is None else (self._read_value(row[8:]), _unpack(row)[0])

    def has_at(self, raw: bytes) -> bool:
        """True if there is a row for these bytes of a key."""
        return self._get(raw) is not None

    def put(
        self, key: object, value: object, timestamp: int, headers: Headers = (), came: int | None = None
    ) -> bool | None:
        """Sets value and timestamp; a value of None deletes. Always True: it is the newest (versioned stores say otherwise).

        ``headers`` and ``came``, the time of the record being processed if that is not ``timestamp``, are logged with deletions
        (headers in a store of the format with headers).
        """
        return self.put_at(self.key_bytes(key), value, timestamp, headers, came)

    def put_at(
        self, raw: bytes, value: object, timestamp: int, headers: Headers = (), came: int | None = None
    ) -> bool | None:
        """``put`` for the bytes of a key."""
        written = self._write_value(value)
        if written is None:
            self._put(raw, None)
            self._log(raw, None, timestamp if came is None else came, headers if self._with_headers else ())
        else:
            self._put(raw, _pack(timestamp) + written)
            self._log(raw, written, timestamp)
        return True

    def all(self, *, reverse: bool = False) -> Iterator[tuple[object, TableRow]]:
        """All (key, (value, timestamp))."""
        return self._decoded(self._rows.scan(reverse=reverse))

    def range(self, low: object = None, high: object = None, *, reverse: bool = False) -> Iterator[tuple[object, TableRow]]:
        """(key, (value, timestamp)) from ``low`` to ``high``, both included; None is no bound."""
        above = None if high is None else self.key_bytes(high) + b"\x00"
        return self._decoded(self._rows.scan(None if low is None else self.key_bytes(low), above, reverse=reverse))

    def prefix_scan(self, prefix: object, serde: Serde, *, reverse: bool = False) -> Iterator[tuple[object, TableRow]]:
        """(key, (value, timestamp)) of the keys whose bytes begin with those of ``prefix``."""
        low = _bytes_of_prefix(prefix, serde)
        return self._decoded(self._rows.scan(low, after_prefix(low), reverse=reverse))

    @property
    def approximate_num_entries(self) -> int:
        """Number of keys, the writes of this batch included."""
        return self._rows.entries()

    def restore(self, key: bytes, value: bytes | None, timestamp: int, _headers: Headers = ()) -> None:
        self._put(key, None if value is None else _pack(timestamp) + value)

    def key_bytes(self, key: object) -> bytes:
        """The bytes of ``key``, which ``get_at`` and ``put_at`` take; SerdeError where it has none."""
        return require_key(self.encode_key(key), "key-value")

    def _decoded(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[object, TableRow]]:
        read_key, read_value = self._read_key, self._read_value
        for key, row in rows:
            yield read_key(key), (read_value(row[8:]), _unpack(row)[0])


def after_prefix(prefix: bytes) -> bytes | None:
    """The least key after all that begin with ``prefix``; None if there is no such."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _bytes_of_prefix(prefix: object, serde: Serde) -> bytes:
    low = serde.serialize(prefix)
    if low is None:
        raise ValueError("a prefix of keys can't be null; all() has all of them")
    return low
