"""Which class keeps a store of which kind: the one table, and the making of a store over its rows.

A store class is made with ``(store, rows)``: the topology's ``Store``, serdes filled in, and the task's rows of it. It has
``restore(key, value, timestamp, headers)``, which turns a changelog record into rows (written by ``rows.put``, not logged),
and the reads and writes of its kind. What it logs is byte for byte what Kafka Streams logs; its rows are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from tidemill.operators.key_value_store import KeyValueStore, TimestampedKeyValueStore
from tidemill.operators.record import Headers
from tidemill.operators.rows import Rows
from tidemill.operators.session_store import SessionStore
from tidemill.operators.suppress_buffer import SuppressBuffer
from tidemill.operators.window_store import TimestampedWindowStore, WindowStore
from tidemill.topology.nodes import Serde, Store, StoreKind


class Restorable(Protocol):
    """What all stores have in common."""

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers = ()) -> None:
        """Writes the rows that a changelog record stands for."""


_CLASSES: Mapping[StoreKind, Callable[[Store, Rows], Any]] = {
    StoreKind.KEY_VALUE: KeyValueStore,
    StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedKeyValueStore,
    StoreKind.WINDOW: WindowStore,
    StoreKind.TIMESTAMPED_WINDOW: TimestampedWindowStore,
    StoreKind.SESSION: SessionStore,
    StoreKind.SUPPRESS_BUFFER: SuppressBuffer,
}


def store_of(store: Store, rows: Rows, key_serde: Serde, value_serde: Serde) -> Any:
    """The store object over ``rows``; the serdes stand in where the store names none (``default.key.serde`` ...)."""
    if store.key_serde is None or store.value_serde is None:
        store = replace(store, key_serde=store.key_serde or key_serde, value_serde=store.value_serde or value_serde)
    return _CLASSES[store.kind](store, rows)
