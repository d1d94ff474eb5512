"""A table in a store: what is put, and the change that is forwarded of it, at once or by the store's record cache
(TimestampedTupleForwarder, TimestampedCacheFlushListener).

A put that a versioned store refuses as too old is dropped and counted. In a store with a cache, the deletion of a row that is
not there is neither written nor forwarded (CachingKeyValueStore).
"""

from __future__ import annotations

from tidemill.operators.context import AsOfGetter, Context
from tidemill.operators.record import Headers, change_of, record_of
from tidemill.topology.values import Key, Value


class MaterializedTable:
    """The rows of one table node."""

    def __init__(self, store: str, context: Context) -> None:
        self._context, self._sends_old = context, context.sends_old
        self._changed, self._is_cached = context.changed(store), context.is_cached(store)
        self._table = table = context.store(store)
        self.get, self._key_bytes, self._put = table.get, table.key_bytes, table.put_at
        self.get_as_of: AsOfGetter | None = table.get_as_of

    def before(self, key: Key) -> Value:
        """The value that is stored, where a node below needs old values."""
        found = self.get(key) if self._sends_old else None
        return None if found is None else found[0]

    def change(
        self, key: Key, new: Value, old: Value, timestamp: int, headers: Headers, came: int | None = None
    ) -> None:
        """Puts ``new`` and forwards that it replaces ``old``. ``came``: the time of the record that is handled, where
        ``timestamp``, of the row, is another one; below a cache tombstones have it (TimestampedCacheFlushListener)."""
        raw, sends_old = self._key_bytes(key), self._sends_old
        is_new = self._is_cached and not (old is not None if sends_old else self._table.has_at(raw))
        is_latest = True if is_new and new is None else self._put(raw, new, timestamp, headers, came)
        if is_latest is None:
            self._context.drop()
            return
        change = change_of((new, old if sends_old else None, is_latest))
        sent_at = came if new is None and came is not None and self._is_cached else timestamp
        self._changed(raw, record_of((key, change, sent_at, headers)), is_new)
