"""The subscriptions of left rows to foreign keys: the store of a foreign-key join on the right table's side.

    row, changelog key  length of the foreign key 4 | foreign key | primary key
    row                 timestamp 8 | subscription, as in the internal topic
    changelog value     the subscription; the record's timestamp is the subscription's

Decides bytes, and that the subscribers of a foreign key come in the order of their primary keys' bytes.
"""

from __future__ import annotations

from struct import Struct

from tidemill.operators.key_value_store import after_prefix
from tidemill.operators.record import Headers
from tidemill.operators.rows import Rows
from tidemill.topology.foreign_keys import SubscriptionWrapper
from tidemill.topology.nodes import Store
from tidemill.topology.values import Serde

_INT = Struct(">i")
_LONG = Struct(">q")


class SubscriptionStore:
    """The subscriptions of one join in one task.

    The store's key serde writes foreign keys; its value serde subscriptions, with the left table's key serde as ``inner``.
    """

    def __init__(self, store: Store, rows: Rows) -> None:
        assert store.key_serde is not None
        assert store.value_serde is not None
        primary: Serde = store.value_serde.inner  # type: ignore[attr-defined]  # what the DSL gives stores of this kind
        self._rows = rows
        self._write_foreign = store.key_serde.serialize
        self._write_primary = primary.serialize
        self._write, self._read = store.value_serde.serialize, store.value_serde.deserialize

    def put(self, foreign_key: object, subscription: SubscriptionWrapper, timestamp: int, headers: Headers = ()) -> None:
        """Keeps a subscription, instead of the one that its left row had to this foreign key.

        ``timestamp`` and ``headers`` are those of the record being processed; the changelog record gets them, as in ``delete``.
        """
        key, data = self._key(foreign_key, subscription.primary_key), self._write(subscription) or b""
        self._rows.put(key, _LONG.pack(timestamp) + data)
        self._rows.log(key, data, timestamp, headers)

    def delete(self, foreign_key: object, primary_key: object, timestamp: int, headers: Headers = ()) -> None:
        """Forgets a subscription."""
        key = self._key(foreign_key, primary_key)
        self._rows.put(key, None)
        self._rows.log(key, None, timestamp, headers)

    def subscribers(self, foreign_key: object) -> list[SubscriptionWrapper]:
        """All subscriptions to a foreign key."""
        prefix = self._prefix(foreign_key)
        found = (self._read(row[8:]) for _key, row in self._rows.scan(prefix, after_prefix(prefix)))
        return [subscription for subscription in found if subscription is not None]

    def restore(self, key: bytes, value: bytes | None, timestamp: int, _headers: Headers = ()) -> None:
        """Applies a record of the changelog."""
        self._rows.put(key, None if value is None else _LONG.pack(timestamp) + value)

    def _prefix(self, foreign_key: object) -> bytes:
        data = self._write_foreign(foreign_key) or b""
        return _INT.pack(len(data)) + data

    def _key(self, foreign_key: object, primary_key: object) -> bytes:
        return self._prefix(foreign_key) + (self._write_primary(primary_key) or b"")
